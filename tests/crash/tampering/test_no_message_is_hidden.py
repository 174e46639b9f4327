"""A row counts the events of its commit and those before it, and no digest covers these numbers.

A reader that skipped commits by them missed a message, or the switch to another model, after two updates.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Thread
from perdure.errors import Corrupt
from perdure.testing import Script, say

RULE, SWITCH = "Never pay more than 10.", "backend.switched"
BEFORE, AFTER = 120, 300  # changes of the state only, as many as were once skipped
USES: dict[str, Callable[[Thread], object]] = {
    "plan": lambda thread: thread.plan(),
    "run": lambda thread: thread.run("Pay."),
    "backend": lambda thread: thread.backend,
}


def clerk() -> Agent:
    """An agent of the first model."""
    return Agent("clerk", backend=Script(say("Paid."), backend="script:first"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two threads: a rule is far behind the head of one, and a switch behind that of the other."""
    path = tmp_path_factory.mktemp("hidden") / "store.db"
    with perdure.open(path, durability="process_crash") as store:
        for id in ("ruled", "switched"):
            thread = store.thread(id, agent=clerk())
            thread.run("Hello.")
            count(thread, BEFORE)
            if id == "switched":
                thread.switch(Script(backend="script:second"))
            else:
                with thread.change("rule") as change:
                    change.say("user", RULE)
            count(thread, AFTER)
    return path


@pytest.fixture
def path(filled: Path, tmp_path: Path) -> Path:
    """A copy of it, to edit."""
    with (
        closing(sqlite3.connect(filled)) as database,
        closing(sqlite3.connect(tmp_path / "store.db")) as copy,
    ):
        database.backup(copy)
    return tmp_path / "store.db"


def count(thread: Thread, changes: int) -> None:
    """Change the state."""
    for number in range(changes):
        thread.put("/n.json", number)


def hide(path: Path, word: str) -> None:
    """Say of the commit that has `word` that it has no events, and of every later one that fewer came before it."""
    with closing(sqlite3.connect(path)) as database, database:
        found = "SELECT id, events, space FROM log WHERE events > 0 AND instr(changeset || coalesce(bodies, ''), ?)"
        row, events, space = database.execute(found, (word,)).fetchone()
        database.execute("UPDATE log SET events = 0 WHERE id = ?", (row,))
        later = "UPDATE log SET sequence = sequence - ? WHERE id > ? AND space = ? AND sequence IS NOT NULL"
        assert database.execute(later, (events, row, space)).rowcount >= AFTER


@pytest.mark.parametrize(
    ("id", "word", "use"),
    [
        ("ruled", RULE, "plan"),
        ("ruled", RULE, "run"),
        ("switched", SWITCH, "backend"),
        ("switched", SWITCH, "run"),
    ],
)
def test_a_message_or_a_switch_that_an_edit_hides_is_damage(path: Path, id: str, word: str, use: str) -> None:
    """Nothing is answered, and no model asked, as if it had never been there."""
    hide(path, word)

    with perdure.open(path) as store, pytest.raises(Corrupt):
        USES[use](store.thread(id, agent=clerk()))


def test_without_the_edit_both_are_seen(path: Path) -> None:
    """Control: the same questions have answers."""
    with perdure.open(path) as store:
        assert store.thread("switched", agent=clerk()).backend == "script:second"
        assert RULE in repr(list(store.thread("ruled", agent=clerk()).plan().context.messages))
