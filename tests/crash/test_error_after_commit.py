"""At the engine and between processes: the write commits, but the caller sees an error, and repeats it.

The repetition gets the original receipt and doubles nothing: at once, after others have
written, and from another process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from perdure.engines.contract import CellWrite, Receipt, Write
from perdure.engines.sqlite import SqliteEngine
from perdure.errors import InDoubt, OpReused, StaleHead
from perdure.testing.engines.builders import SPACE, START, Made, Pen, made, moved, portrait, value, write
from tests.coded import raises
from tests.crash.processes import Pipe, running
from tests.crash.spying import spied

MILK = made("milk", messages=["m-1"])
PARTS = (MILK, moved(START, MILK), value("milk"), CellWrite(name="cell", expected=0, value=b"1"), b'"entry"')
MILK_WRITE = write("op", *PARTS)


def apply_and_die(pipe: Pipe, path: str, wanted: Write) -> None:
    """Make a write, and die when it is durable and not yet acknowledged."""
    engine = SqliteEngine(Path(path))
    spied(engine, after=lambda sql: os.kill(os.getpid(), signal.SIGKILL) if sql == "COMMIT" else None)
    engine.apply(wanted)


@pytest.fixture
def engine(path: Path) -> Iterator[SqliteEngine]:
    """The store."""
    with closing(SqliteEngine(path)) as engine:
        yield engine


class Failing:
    """Makes the next COMMIT raise after it took effect, and as many barriers after it as wanted."""

    def __init__(self, engine: SqliteEngine, *, barriers: int) -> None:
        self._commits = 1
        self._barriers = barriers
        spied(engine, before=self._before, after=self._after)

    def _before(self, sql: str) -> None:
        if "'barrier'" in sql and self._barriers:  # the row that the barrier writes
            self._barriers -= 1
            raise apsw.IOError("no barrier")

    def _after(self, sql: str) -> None:
        if sql == "COMMIT" and self._commits:
            self._commits -= 1
            raise apsw.IOError("an error after the fact")


def in_doubt(engine: SqliteEngine) -> None:
    """Make the write so that it takes effect and its caller is left in doubt."""
    Failing(engine, barriers=1)
    with raises(InDoubt, "in_doubt", op_id="op", why="IOError: an error after the fact"):
        engine.apply(MILK_WRITE)


def original(engine: SqliteEngine) -> Receipt:
    """The receipt that was recorded."""
    found = engine.recorded(SPACE, "op")
    assert found is not None
    return found.receipt


def test_an_error_that_can_be_settled_is_none(engine: SqliteEngine) -> None:
    """Behind the barrier the write is found, and its caller gets the receipt as if nothing had been."""
    Failing(engine, barriers=0)

    receipt = engine.apply(MILK_WRITE)

    assert receipt == original(engine)
    assert receipt.heads[0].commit == MILK.digest


def test_repeated_at_once_it_is_made_once(engine: SqliteEngine) -> None:
    """The same receipt as recorded, and nothing changes."""
    in_doubt(engine)
    before = portrait(engine)

    assert engine.apply(MILK_WRITE) == original(engine)
    assert portrait(engine) == before
    assert [len(engine.entries(SPACE, limit=9)), len(engine.moves(SPACE, "main", limit=9))] == [1, 1]


def test_repeated_after_others_have_written_it_is_made_once(engine: SqliteEngine, path: Path) -> None:
    """The op_id is looked up before the head is compared: no `StaleHead` for what is true already."""
    in_doubt(engine)
    with closing(SqliteEngine(path)) as other:
        hold = other.hold(SPACE, "main")
        assert hold is not None
        Pen(other, head=hold.head, tip=MILK).commit("eggs")
        before = portrait(other)

    assert engine.apply(MILK_WRITE).heads[0].version == 1
    assert portrait(engine) == before


def test_repeated_by_another_process_it_is_made_once(engine: SqliteEngine, path: Path) -> None:
    """The first process died before it could tell; the second gets what it would have been told."""
    with running(apply_and_die, str(path), MILK_WRITE) as dying:
        dying.process.join()
        assert dying.process.exitcode == -signal.SIGKILL

    receipt = engine.apply(MILK_WRITE)

    assert receipt == original(engine)
    assert receipt.heads[0].version == len(engine.moves(SPACE, "main", limit=9)) == 1
    assert (receipt.revisions, receipt.position) == ((1,), 1)


def test_repeated_by_many_processes_it_is_made_once(path: Path) -> None:
    """Each dies with the same write on its lips."""
    for _ in range(5):
        with running(apply_and_die, str(path), MILK_WRITE) as dying:
            dying.process.join()

    with closing(SqliteEngine(path)) as engine:
        assert engine.apply(MILK_WRITE) == original(engine)
        assert len(engine.entries(SPACE, limit=9)) == 1


def test_the_same_op_id_with_another_intent_is_refused(engine: SqliteEngine) -> None:
    """Also while the first is in doubt; nothing is written."""
    in_doubt(engine)
    eggs = made("eggs")

    with raises(OpReused, "op_reused", op_id="op"):
        engine.apply(write("op", eggs, moved(START, eggs), intent="another"))

    assert list(engine.missing(SPACE, [eggs.digest])) == [eggs.digest]


def test_control_repeating_without_the_op_id_doubles_the_write(engine: SqliteEngine) -> None:
    """A caller that repeats under a new name, and reads the head again to get through, does it twice."""
    Failing(engine, barriers=1)
    with pytest.raises(InDoubt):
        engine.apply(write("first try", value("ticket"), b'"ticket"'))

    engine.apply(write("second try", value("ticket"), b'"ticket"'))

    assert [entry.body for entry in engine.entries(SPACE, limit=9)] == [b'"ticket"'] * 2


def test_control_a_head_that_moved_refuses_a_write_that_was_never_made(engine: SqliteEngine) -> None:
    """What protects the repetition above is its op_id and nothing else."""
    first: Made = Pen(engine).commit("first")
    assert first.commit.depth == 0

    with pytest.raises(StaleHead):
        engine.apply(MILK_WRITE)
