"""A process dies inside COMMIT while another has the store open: what that one says of the write must stay so.

The dead process had written its frames to the log and not yet told the others.  They do not
see the write; but if all of them end before the frames are overwritten, the next process
finds it.  So a process that follows a holder that died makes the barrier first.
"""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure.engines.contract import Recorded
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.commit.file_lock import FileLock
from perdure.errors import Conflict, InDoubt, StaleHead
from perdure.model.head import Head
from perdure.testing.engines.builders import SPACE, START, made, moved, value, write
from tests.crash.processes import Pipe, running
from tests.crash.spying import spied

MILK, EGGS = made("milk"), made("eggs")
LOST = write("lost", MILK, moved(START, MILK))  # by the one that dies
REFUSED = write("refused", EGGS, moved(Head("main", 1, EGGS.digest), EGGS))  # by the one that lives

_WAL_INDEX_HEADER = 96  # where the shared memory says how far the log goes, twice


def die_in_commit(pipe: Pipe, path: str) -> None:
    """Make a write and die when its frames are in the log and the others have not been told."""
    engine = SqliteEngine(Path(path))
    shared = os.open(f"{path}-shm", os.O_RDWR)
    before = os.pread(shared, _WAL_INDEX_HEADER, 0)

    def die(sql: str) -> None:
        if sql == "COMMIT":
            os.pwrite(shared, before, 0)
            os.kill(os.getpid(), signal.SIGKILL)

    spied(engine, after=die)
    engine.apply(LOST)


def answer_questions(pipe: Pipe, path: str, how: str = "") -> None:
    """Have the store open, and do with it what the test asks for."""
    if how == "trusting":
        FileLock.acquire = _acquire_only  # pyright: ignore[reportAttributeAccessIssue]
        FileLock.was_left = lambda self: False
    engine = SqliteEngine(Path(path))
    engine.apply(write("first", value("first")))
    pipe.send("open")
    while True:
        pipe.send(_done(engine, pipe.recv()))


def _acquire_only(self: FileLock, seconds: float) -> bool:
    acquire(self, seconds)
    return False


acquire = FileLock.acquire


def _done(engine: SqliteEngine, asked: str) -> Any:
    try:
        match asked:
            case "look up":
                return engine.recorded(SPACE, LOST.op_id)
            case "repeat":
                return engine.apply(LOST)
            case _:
                return engine.apply(REFUSED)
    except (Conflict, InDoubt) as error:
        return error


def asked_after_the_death(path: Path, question: str, how: str = "") -> Any:
    """What a process that has the store open says after another died in its COMMIT; then it is killed too."""
    with running(answer_questions, str(path), how) as living:
        assert living.answer() == "open"
        with running(die_in_commit, str(path)) as dying:
            dying.process.join()
            assert dying.process.exitcode == -signal.SIGKILL
        living.tell(question)
        answer = living.answer()
        living.kill()
        return answer


def test_what_another_process_calls_absent_never_comes_back(path: Path) -> None:
    """It is looked up, found absent, and is still so when everybody has ended."""
    assert asked_after_the_death(path, "look up") is None

    with closing(SqliteEngine(path)) as engine:
        assert engine.recorded(SPACE, LOST.op_id) is None
        hold = engine.hold(SPACE, "main")
        assert hold is not None
        assert hold.head == START


def test_a_refusal_by_another_process_stays_true(path: Path) -> None:
    """It names a head that is still where it was when everybody has ended."""
    refusal = asked_after_the_death(path, "be refused")
    assert isinstance(refusal, StaleHead)

    with closing(SqliteEngine(path)) as engine:
        hold = engine.hold(SPACE, "main")
        assert hold is not None
        assert hold.head == refusal.actual


def test_repeated_by_another_process_it_is_made_once(path: Path) -> None:
    """The receipt of the repetition is the one that is recorded."""
    receipt = asked_after_the_death(path, "repeat")

    with closing(SqliteEngine(path)) as engine:
        assert engine.recorded(SPACE, LOST.op_id) == Recorded(LOST.intent, receipt)
        assert len(engine.moves(SPACE, "main", limit=9)) == 1


def test_if_everybody_died_the_next_process_may_find_it(path: Path) -> None:
    """It is whole then, and not forgotten: no caller has read that it is absent."""
    with running(answer_questions, str(path)) as living:
        living.answer()
        with running(die_in_commit, str(path)) as dying:
            dying.process.join()
        living.kill()

    with closing(SqliteEngine(path)) as engine:
        found = engine.recorded(SPACE, LOST.op_id)
        assert found is not None
        assert found.receipt == engine.apply(LOST)


@pytest.mark.parametrize("question", ["look up", "be refused"])
def test_control_a_process_that_trusts_the_lock_alone_tells_what_does_not_last(
    path: Path, question: str
) -> None:
    """Without the barrier after a dead holder, the write comes back after it was called absent."""
    answer = asked_after_the_death(path, question, "trusting")

    with closing(SqliteEngine(path)) as engine:
        assert engine.recorded(SPACE, LOST.op_id) is not None
        hold = engine.hold(SPACE, "main")
        assert hold is not None
        assert answer is None or answer.actual != hold.head
