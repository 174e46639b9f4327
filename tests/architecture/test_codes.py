"""The tables in the reference of errors are what the source says, and codes have one pattern: the subject comes first."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from perdure import errors
from perdure.cli.hints import COMMANDS
from tests.docs.codes_page import PAGE, Coded, codes, rendered

_CLASS_CODES = {
    kind.code
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.PerdureError)
}


def test_the_page_lists_the_codes_of_the_source() -> None:
    """`python -m tests.docs.codes_page` writes the tables again."""
    page = PAGE.read_text(encoding="utf-8")

    assert rendered(page) == page
    assert "| `path_not_found` | `NotFound` |" in page


def test_the_page_lists_every_code_that_the_command_line_has_advice_for() -> None:
    """The codes that are names of classes need no row."""
    page = PAGE.read_text(encoding="utf-8")

    assert [each for each in COMMANDS if f"| `{each}` |" not in page and each not in _CLASS_CODES] == []


def test_every_code_begins_with_its_subject() -> None:
    """`turns_invalid` and not `invalid_turns`, `backend_missing` and not `no_backend`."""
    assert _turned_round([*COMMANDS, *(each.code for each in codes())]) == []


def test_control_of_codes_that_are_turned_round() -> None:
    """A code that is turned round is found, and a word that only begins alike is not."""
    assert _turned_round(["turns_invalid", "invalid_turns", "no_backend", "not_json"]) == [
        "invalid_turns",
        "no_backend",
    ]


def test_a_code_comes_with_its_class_and_message() -> None:
    """A call that is no error, and one without a code, have none."""
    assert _found(
        """
raise errors.NotFound(f"path '{path}' has no value; nothing was read.", code="path_not_found", path=path)
raise Invalid("no code")
translate("x", code="y")
"""
    ) == {Coded("path_not_found", "NotFound", "path '…' has no value")}


def test_a_code_is_found_behind_a_condition_a_variable_and_a_function() -> None:
    """A reason in the message is the one that belongs to the code."""
    assert _found(
        """
def opened(path):
    kind, advice = (Invalid, "Mend it.") if path else (NotFound, "Look.")
    return kind(f"{path} cannot be opened by a.b; nothing was done.", code="cannot_open", advice=advice)

def check(late):
    code, why = reason(late)
    raise Invalid(f"it was refused: {why}.", code=code)

def reason(late):
    if late:
        return "too_late", "it is late"
    return "too_early", "it is early"
"""
    ) == {
        Coded("cannot_open", "Invalid", "… cannot be opened by a.b"),
        Coded("cannot_open", "NotFound", "… cannot be opened by a.b"),
        Coded("too_late", "Invalid", "it was refused: it is late"),
        Coded("too_early", "Invalid", "it was refused: it is early"),
    }


def test_a_function_that_makes_an_error_is_known_by_its_module() -> None:
    """Another function of that name takes no code, so its first argument is none."""
    made = """
def unreadable(code, message):
    return Invalid(f"{message}; nothing was read.", code=code)
"""
    assert _found(
        """
from made import unreadable
raise unreadable("not_json", "it is no JSON")
""",
        made=made,
    ) == {Coded("not_json", "Invalid", "it is no JSON")}
    assert _found('raise unreadable("patch", "it is no JSON")', made=made) == set()


def _turned_round(names: Iterable[str]) -> list[str]:
    return [each for each in names if each.startswith(("invalid_", "no_"))]


def _found(text: str, **others: str) -> frozenset[Coded]:
    kinds = "class Invalid(PerdureError): ...\nclass NotFound(PerdureError): ..."
    texts = {"text": text, "errors": kinds} | others
    return codes({name: ast.parse(each) for name, each in texts.items()})
