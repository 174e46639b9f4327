"""A few screens as people see them at 80 columns, letter for letter.

`HOLDFAST_GOLDEN=1` writes them anew; look at the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.surfaces.shell import BEGAN, Shell

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "cli"

SCREENS = {
    "threads": ["threads"],
    "threads-show": ["threads", "show", "shopping"],
    "threads-log": ["threads", "log", "shopping"],
    "threads-log-commits": ["threads", "log", "shopping", "--commits"],
    "threads-turns": ["threads", "turns", "shopping"],
    "threads-diff": ["threads", "diff", "shopping", "main", "what-if"],
    "threads-diff-json": ["threads", "diff", "shopping", "turn:3", "what-if", "--json"],
    "threads-undo": ["threads", "undo", "shopping"],
    "threads-promote": ["threads", "promote", "shopping", "what-if"],
    "state": ["state", "ls", "shopping"],
    "state-log": ["state", "log", "shopping", "/todos.json"],
    "state-blame": ["state", "blame", "shopping", "/todos.json"],
    "sql": ["sql", "select hash, parent_hash from state_commits"],
    "help": ["--help"],
    "help-threads": ["threads", "--help"],
    "help-state-put": ["state", "put", "--help"],
}


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_looks_as_it_did(shell: Shell, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With clock and ids fixed, every digest and time is the same in every run."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("holdfast.cli.threads.ls.now", lambda: BEGAN + 3_600_000_000)
    monkeypatch.setattr("holdfast.threads.opening._now", lambda: BEGAN + 3_600_000_000)
    file = GOLDEN / f"{name}.txt"

    shown = shell.ok(*SCREENS[name]).out

    if os.environ.get("HOLDFAST_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")
    assert max(map(len, shown.splitlines())) <= 80 or name in (
        "threads-diff-json",
        "verify",
        "threads-promote",
    )


def test_a_screen_that_changed_would_be_found(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: one more commit shows."""
    monkeypatch.setenv("COLUMNS", "80")
    shell.ok("state", "put", "shopping", "/x", "1")

    shown = shell.ok("threads", "log", "shopping", "--commits").out

    assert shown != (GOLDEN / "threads-log-commits.txt").read_text(encoding="utf-8")
