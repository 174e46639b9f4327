"""Codes of errors have one pattern: the subject first, then what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.cli.hints import COMMANDS
from tests.docs.codes_page import codes


def test_every_code_begins_with_its_subject() -> None:
    """`turns_invalid` and not `invalid_turns`, `backend_missing` and not `no_backend`."""
    assert _turned_round([*COMMANDS, *(each.code for each in codes())]) == []


def test_control() -> None:
    """A code that is turned round is found, and a word that only begins alike is not."""
    assert _turned_round(["turns_invalid", "invalid_turns", "no_backend", "not_json"]) == [
        "invalid_turns",
        "no_backend",
    ]


def _turned_round(names: Iterable[str]) -> list[str]:
    return [each for each in names if each.startswith(("invalid_", "no_"))]
