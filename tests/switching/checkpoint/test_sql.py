"""Checkpoints in plain SQL: the table of the document, filled by a switch, readable without Perdure."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import perdure
from perdure import Thread, testing
from perdure.errors import Unsupported
from tests.coded import raises
from tests.golden.test_old_stores import STORES
from tests.switching.checkpoint.works import Work, opened


def switched(path: Path) -> tuple[Path, Thread]:
    """A store in a file, and a thread in it that was moved once."""
    with opened(path) as store:
        work = Work(store)
        thread = work.turn("Find a flight to “Ålesund”.", testing.say("Which day?"))
        thread.put("/task/goals.json", ["a window seat"])
        thread.switch(testing.Script(testing.say("Hello."), backend="script:two"))
        assert store.verify().faults == ()
    return path / "work.db", thread


def rows(path: Path, sql: str) -> list[tuple[str, ...]]:
    """What stock `sqlite3` finds."""
    with closing(sqlite3.connect(path)) as database:
        return database.execute(sql).fetchall()


def test_the_table_holds_what_the_checkpoint_says(tmp_path: Path) -> None:
    """Digest, summary, goals and references, as JSON, beside the event that made it part of the line."""
    path, _ = switched(tmp_path)

    ((id, thread, summary, goals, memory, artifacts),) = rows(
        path,
        "SELECT id, conversation_id, summary, active_goals_json, memory_refs_json, artifact_refs_json "
        "FROM state_checkpoints",
    )

    with perdure.open(path) as store:
        (kept,) = store.thread("trip").checkpoints()
    assert (id, thread) == (kept.digest, "trip")
    assert json.loads(summary)["userGoal"] == "Find a flight to “Ålesund”."
    assert json.loads(summary)["openQuestions"] == ["Which day?"]
    assert (json.loads(goals), json.loads(memory), json.loads(artifacts)) == (["a window seat"], [], [])


def test_the_checkpoint_of_an_undone_switch_is_not_in_main(tmp_path: Path) -> None:
    """Its row stays, and says so."""
    path, _ = switched(tmp_path)
    with perdure.open(path) as store:
        store.thread("trip").undo()

    assert rows(path, "SELECT in_main FROM state_checkpoints") == [(0,)]


@pytest.mark.parametrize("version", [2, 4])
def test_a_store_from_before_the_first_release_is_refused(version: int, tmp_path: Path) -> None:
    """Of 2 the cells have no digests, and of 4 the commits count no turns: neither can be made true afterwards."""
    path = tmp_path / "old.db"
    shutil.copy(STORES / "0.1.0.db", path)
    rows(path, f"PRAGMA user_version = {version}")

    with raises(Unsupported, "schema_too_old", version=version):
        perdure.open(path)

    assert rows(path, "PRAGMA user_version") == [(version,)]
