"""Tests expect an error of Perdure by its code and its facts, never by the words of its message."""

from __future__ import annotations

import ast
from functools import cache

from tests.architecture.source import ROOT, modules, walk

# Files that test the sentences themselves, with the reason.
BY_WORDS = {
    "tests/store/contract/test_messages_to_people.py": "people are promised what these messages say",
}


@cache
def our_errors() -> frozenset[str]:
    """The names of the classes of errors and warnings in the package."""
    classes = [node for each in modules() for node in walk(each.tree) if isinstance(node, ast.ClassDef)]
    found = {"PerdureError", "PerdureWarning"}
    while more := {each.name for each in classes if _names(*each.bases) & found} - found:
        found |= more
    return frozenset(found)


def expected_by_words(tree: ast.Module) -> list[int]:
    """The lines on which `match=` is used for an error of ours, or for one that a variable names."""
    return [
        call.lineno
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and call.args
        and any(keyword.arg == "match" for keyword in call.keywords)
        and _names(call.func) & {"raises", "warns"}
        and (
            _names(call.args[0]) & our_errors()
            or (isinstance(call.args[0], ast.Name) and call.args[0].id.islower())
        )
    ]


def _names(*nodes: ast.expr) -> set[str]:
    parts = [part for node in nodes for part in ast.walk(node)]
    return {part.id for part in parts if isinstance(part, ast.Name)} | {
        part.attr for part in parts if isinstance(part, ast.Attribute)
    }


def test_errors_are_expected_by_their_code() -> None:
    """A message may be reworded in any release, and no test fails for it."""
    found = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if "match=" in (text := path.read_text(encoding="utf-8"))  # to parse all of them takes seconds
        and (lines := expected_by_words(ast.parse(text)))
    }

    assert {name: lines for name, lines in found.items() if name not in BY_WORDS} == {}
    assert set(BY_WORDS) <= set(found), "these files need no exception any more"


def test_control() -> None:
    """An error of ours, a subclass of one and a variable are found; an error of Python or of a driver is not."""
    text = """
pytest.raises(Invalid, match="x")
pytest.raises((errors.NotFound, KeyError), match="x")
pytest.raises(RateLimited, match="x")
pytest.raises(kind, match="x")
pytest.warns(PerdureWarning, match="x")
pytest.raises(KeyError, match="x")
pytest.raises(sqlite3.OperationalError, match="x")
raises(Invalid, "code")
"""
    assert expected_by_words(ast.parse(text)) == [2, 3, 4, 5, 6]
