"""What is not hashed is derived again: a wrong hint is named by `verify` and never loops."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import perdure
from perdure import Thread
from perdure.errors import Corrupt
from perdure.model.digest import Digest

OF_COMMITS = [
    "prev",
    "jump",
    "depth",
    "turn",
    "sequence",
    "events",
    "run",
    "at",
    "root",
    "changeset",
    "spans",
    "timeline",
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with one thread of twenty turns."""
    path = tmp_path / "agents.db"
    with perdure.open(str(path)) as store:
        thread = store.thread("t", agent="a")
        for number in range(20):
            with thread.change("count", run=f"run-{number}") as change:
                change.say("user", f"number {number}", id=f"m-{number}")
                change.put("/n.json", number)
    return path


def test_a_sound_store_has_no_odd_rows(path: Path) -> None:
    """The control: what we wrote passes its own audit."""
    with perdure.open(str(path)) as store:
        assert store.verify().faults == ()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE log SET jump = id WHERE depth = 15", "jumps to a row"),
        ("UPDATE log SET jump = NULL WHERE depth = 15", "jumps to a row"),
        ("UPDATE log SET events = events + 1 WHERE depth = 15", "miscounts its events"),
        ("UPDATE log SET run = 7 WHERE depth = 15", "names another run"),
        ("UPDATE log SET turn = 3 WHERE depth = 15", "is not where its parent puts it"),
        ("UPDATE log SET sequence = 3 WHERE depth = 15", "is not where its parent puts it"),
        ("UPDATE log SET turn = 2 WHERE depth = 0", "is not where its parent puts it"),
        ("UPDATE log SET bodies = bodies || 'x' WHERE depth = 15", "other words than those"),
        ("UPDATE log SET spans = '[[0,1,5,0,0]]' WHERE depth = 15", "words stand where they do not"),
        ("UPDATE log SET spans = NULL WHERE depth = 15", "words stand where they do not"),
        ("UPDATE log SET timeline = 'other' WHERE depth = 15", "names another timeline"),
        (
            "UPDATE log SET keys = CAST(keys || x'0102030405' AS BLOB) WHERE depth = 15",
            "does not carry the keys",
        ),
        (
            "UPDATE log SET keys = CAST(substr(keys, 1, length(keys) - 10) || zeroblob(10) AS BLOB) WHERE depth = 15",
            "does not carry the keys",
        ),
    ],
)
def test_a_wrong_hint_is_named(path: Path, change: str, named: str) -> None:
    """Though every digest still fits."""
    apsw.Connection(str(path)).execute(change)

    with perdure.open(str(path)) as store:
        faults = store.verify().faults

    assert any(named in str(fault) for fault in faults), faults


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("edit", ["NULL", "'main'", "'other'"])
def test_the_timeline_of_a_commit_follows_from_the_moves_of_its_write(
    path: Path, number: int, edit: str
) -> None:
    """Also of commits that were written together, of which the last one alone has the moves."""
    with perdure.open(str(path)) as store:
        with store.thread("t").fork("what-if").change("three", chain=True) as change:
            for value in range(3):
                change.put("/n.json", value)
        before = store.verify().faults
    apsw.Connection(str(path)).execute(f"UPDATE log SET timeline = {edit} WHERE depth = {20 + number}")

    with perdure.open(str(path)) as store:
        after = store.verify().faults

    assert before == ()
    assert any("names another timeline" in str(fault) for fault in after), after


@pytest.mark.parametrize("column", ["jump", "prev"])
def test_walking_in_a_circle_ends_in_an_error(path: Path, column: str) -> None:
    """A row that names itself as its ancestor is damage, not a reason to hang."""
    apsw.Connection(str(path)).execute(f"UPDATE log SET {column} = id WHERE depth = 15")

    with perdure.open(str(path)) as store, pytest.raises(Corrupt):
        store.thread("t").at("turn:3")


@pytest.mark.parametrize("column", OF_COMMITS)
def test_a_row_without_a_commit_has_nothing_in_the_columns_of_commits(path: Path, column: str) -> None:
    """Nothing reads them there, and `verify` names what an edit put into them."""
    apsw.Connection(str(path)).execute(f"UPDATE log SET {column} = 1 WHERE digest IS NULL")

    with perdure.open(str(path)) as store:
        faults = store.verify().faults

    assert any("has no commit" in str(fault) for fault in faults), faults


@pytest.mark.parametrize("column", OF_COMMITS)
def test_a_dropped_row_has_nothing_in_the_columns_of_commits(path: Path, column: str) -> None:
    """A dropped space is sound; what an edit puts into such a row is named."""
    with perdure.open(str(path)) as store:
        space = store.thread("t")._space
        space.engine.drop(space.name, why="asked")
        before = [fault for fault in store.verify().faults if fault.kind == "row"]
    apsw.Connection(str(path)).execute(f"UPDATE log SET {column} = 1 WHERE id = (SELECT max(id) FROM log)")

    with perdure.open(str(path)) as store:
        after = store.verify().faults

    assert before == []
    assert any("has no commit" in str(fault) for fault in after), after


@pytest.mark.parametrize("column", ["turn", "sequence", "events", "run", "prev", "depth"])
def test_a_commit_is_refused_where_its_row_says_another_place(path: Path, column: str) -> None:
    """Also when it is read alone, without its parent."""
    db = apsw.Connection(str(path))
    commit = Digest(str(db.execute("SELECT lower(hex(digest)) FROM log WHERE depth = 15").get))
    db.execute(f"UPDATE log SET {column} = {column} + 1 WHERE depth = 15")

    with perdure.open(str(path)) as store:
        thread = store.thread("t")
        with pytest.raises(Corrupt):
            thread._space.engine.steps(thread._space.name, commit, limit=1)


@pytest.mark.parametrize("column", ["turn", "sequence", "jump"])
def test_nothing_is_written_on_a_commit_whose_row_was_edited(path: Path, column: str) -> None:
    """The next commit would take its own place from it."""
    apsw.Connection(str(path)).execute(f"UPDATE log SET {column} = {column} - 1 WHERE depth = 19")

    with perdure.open(str(path)) as store, pytest.raises(Corrupt):
        store.thread("t").put("/n.json", 20)


def test_going_back_does_not_lead_to_a_commit_that_was_undone(path: Path) -> None:
    """A parent of the same depth, turn and number of events on another line is told by its digest."""
    with perdure.open(str(path)) as store:
        thread = store.thread("t")
        thread.put("/n.json", "undone")
        thread.undo()
        thread.put("/n.json", "done")
        last = _put(thread, "last")
        name = thread._space.name
    edit = "UPDATE log SET prev = (SELECT min(id) FROM log WHERE depth = 20) WHERE depth = 21"
    apsw.Connection(str(path)).execute(edit)

    with perdure.open(str(path)) as store, pytest.raises(Corrupt):
        store.thread("t")._space.engine.steps(name, last, skip=1, limit=1)


def _put(thread: Thread, value: str) -> Digest:
    thread.put("/n.json", value)
    assert thread.head.commit is not None
    return thread.head.commit
