"""A few screens as people see them at 80 columns, letter for letter.

`PERDURE_GOLDEN=1` writes them anew; look at the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.surfaces.shell import BEGAN, Shell

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "cli"

HOUSE = {
    "runs": ["runs"],
    "runs-show": ["runs", "show", "house"],
    "calls": ["calls", "ls", "house"],
    "calls-show": ["calls", "show", "house", "id-0007"],
    "calls-resolve": ["calls", "resolve", "house", "id-0007", "done", "--by", "ann", "--why", "they called"],
    "approvals": ["approvals"],
    "approvals-show": ["approvals", "show", "house", "id-0006"],
    "approvals-edit": ["approvals", "edit", "house", "id-0006", "--value", '{"to": "roofer", "amount": 500}'],
}

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
    "threads-context": ["threads", "context", "shopping", "--to", "local:smollm2"],
    "threads-render": ["threads", "render", "shopping", "--to", "anthropic:claude-haiku-4-5"],
    "checkpoints-derive": ["checkpoints", "derive", "shopping", "--to", "anthropic:claude-sonnet-5-5"],
    "export": ["export", "shopping", "--format", "openai-responses"],
    "export-git": ["export", "shopping", "--git", "shopping.git"],
    "providers": ["providers"],
    "help-providers-check": ["providers", "check", "--help"],
    "help-import": ["import", "--help"],
    "state": ["state", "ls", "shopping"],
    "state-log": ["state", "log", "shopping", "/todos.json"],
    "state-blame": ["state", "blame", "shopping", "/todos.json"],
    "sql": ["sql", "select hash, parent_hash from state_commits"],
    "help": ["--help"],
    "help-threads": ["threads", "--help"],
    "help-state-put": ["state", "put", "--help"],
    "help-approvals": ["approvals", "--help"],
    "help-memory": ["memory", "--help"],
    "help-memory-restore": ["memory", "restore", "--help"],
    "help-runs-resume": ["runs", "resume", "--help"],
}


def fix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be an hour later, on a terminal of 80 columns without colour."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    for module in ("threads.ls", "runs.ls", "calls.ls", "approvals.ls", "approvals.show"):
        monkeypatch.setattr(f"perdure.cli.commands.{module}.now", lambda: BEGAN + 3_600_000_000)
    monkeypatch.setattr("perdure.store.open_store.system_clock", lambda: BEGAN + 3_600_000_000)
    monkeypatch.setattr("perdure.cli.commands.approvals.show.os_user", lambda: "os:ann")


def kept(name: str, shown: str) -> str:
    """The screen as it is kept; written anew if that was asked for."""
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("PERDURE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(shown, encoding="utf-8")
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", HOUSE)
def test_a_screen_of_an_agent_at_work_looks_as_it_did(
    house: Shell, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for runs, calls and approvals."""
    fix(monkeypatch)

    shown = house.ok(*HOUSE[name]).out

    assert shown == kept(name, shown)
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_looks_as_it_did(shell: Shell, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With clock and ids fixed, every digest and time is the same in every run."""
    fix(monkeypatch)

    shown = shell.ok(*SCREENS[name]).out

    assert shown == kept(name, shown)
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
