"""What is not hashed is derived again: a wrong hint is named by `verify` and never loops."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.errors import Corrupt


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with one thread of twenty turns."""
    path = tmp_path / "agents.db"
    with holdfast.open(str(path)) as store:
        thread = store.thread("t", agent="a")
        for number in range(20):
            with thread.change("count", run=f"run-{number}") as change:
                change.say("user", f"number {number}", id=f"m-{number}")
                change.put("/n.json", number)
    return path


def test_a_sound_store_has_no_odd_rows(path: Path) -> None:
    """The control: what we wrote passes its own audit."""
    with holdfast.open(str(path)) as store:
        assert store.verify().faults == ()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE log SET jump = id WHERE depth = 15", "jumps to a row"),
        ("UPDATE log SET jump = NULL WHERE depth = 15", "jumps to a row"),
        ("UPDATE log SET events = events + 1 WHERE depth = 15", "miscounts its events"),
        ("UPDATE log SET run = 7 WHERE depth = 15", "names another run"),
        ("UPDATE log SET spans = '[[0,1,5,0,0]]' WHERE depth = 15", "words stand where they do not"),
        ("UPDATE log SET spans = NULL WHERE depth = 15", "words stand where they do not"),
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

    with holdfast.open(str(path)) as store:
        faults = store.verify().faults

    assert any(named in str(fault) for fault in faults), faults


@pytest.mark.parametrize("column", ["jump", "prev"])
def test_walking_in_a_circle_ends_in_an_error(path: Path, column: str) -> None:
    """A row that names itself as its ancestor is damage, not a reason to hang."""
    apsw.Connection(str(path)).execute(f"UPDATE log SET {column} = id WHERE depth = 15")

    with holdfast.open(str(path)) as store, pytest.raises(Corrupt):
        store.thread("t").at("turn:3")
