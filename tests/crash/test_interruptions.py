"""Interruptions: a signal that raises anywhere in a write leaves the store usable."""

from __future__ import annotations

import fcntl
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.commit.file_lock import FileLock
from perdure.errors import PerdureError, Unavailable

# Python drops what is raised while it finalizes an object, and reports it in the test that runs then.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SECONDS = 60.0 if os.environ.get("PERDURE_DEEP") else 3.0


@pytest.fixture
def interrupted() -> Iterator[random.Random]:
    """A signal that raises `KeyboardInterrupt`, whenever the test arms it."""

    def raise_it(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, raise_it)
    # A test library counts collections by a callback of its own: what is raised there is lost, and told as a fault of ours.
    callbacks, gc.callbacks[:] = gc.callbacks[:], []
    yield random.Random(7)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    gc.callbacks[:] = callbacks


def test_interrupted_writes_lose_nothing_and_block_no_writer(
    tmp_path: Path, interrupted: random.Random
) -> None:
    """Thousands of interruptions later every acknowledged write is there and the next one goes through."""
    store = perdure.open(str(tmp_path / "agents.db"), durability="process_crash")
    thread = store.thread("t", agent="a")
    thread.put("/start.json", 0)
    acknowledged: list[str] = []
    raised = number = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        number += 1
        try:
            signal.setitimer(signal.ITIMER_REAL, interrupted.uniform(1e-5, 8e-4))
            thread.put(f"/n/{number}.json", number)
            acknowledged.append(f"/n/{number}.json")
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            raised += 1
        except PerdureError:
            signal.setitimer(signal.ITIMER_REAL, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)

    thread.put("/end.json", 1)

    assert raised > 10
    assert set(acknowledged) <= set(thread.paths("/n"))
    assert store.verify().ok
    store.close()


def test_a_reader_that_was_interrupted_leaves_no_past_behind(tmp_path: Path) -> None:
    """An interruption can leave the snapshot of a read open; the next reader on that connection sees what is true now."""
    with perdure.open(str(tmp_path / "agents.db")) as store:
        thread = store.thread("t", agent="a")
        thread.put("/n.json", 1)
        engine = store._resources.engine
        assert isinstance(engine, SqliteEngine)
        space = thread._space.name
        before = engine.standing(space)
        connection = engine._connections.take()
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM log").fetchall()
        engine._connections.give_back(connection)

        thread.put("/n.json", 2)

        assert engine._connections._idle[-1] is connection, (
            "the control: the next reader gets that connection"
        )
        assert engine.standing(space) > before
        assert store.verify().ok


def test_a_wait_for_the_lock_that_is_interrupted_is_given_up_for_good(
    tmp_path: Path, interrupted: random.Random
) -> None:
    """The thread that waited in the kernel lets go as soon as it wins."""
    path = tmp_path / "lock"
    holder = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    lock = FileLock(path)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(KeyboardInterrupt):
        lock.acquire(30)

    os.close(holder)

    FileLock(path).acquire(10)
    lock.close()


def test_closing_after_a_wait_in_vain_closes_no_descriptor_of_others(tmp_path: Path) -> None:
    """The waiting thread owns its descriptor until it ends; the number is not closed twice."""
    path = tmp_path / "lock"
    holder = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    lock = FileLock(path)
    with pytest.raises(Unavailable):
        lock.acquire(0.05)
    lock.close()
    mine = [os.open(tmp_path / f"{number}", os.O_RDWR | os.O_CREAT) for number in range(8)]

    os.close(holder)
    for waiting in [each for each in threading.enumerate() if each.name == "perdure-lock"]:
        waiting.join(10)

    assert all(os.fstat(file) for file in mine)
    for file in mine:
        os.close(file)
