"""Queueing: writers of one process share a commit, processes wait for each other, and no writer waits for ever."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import pytest

from perdure.engines.contract import Receipt
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.commit import group
from perdure.errors import Unavailable
from perdure.testing.disk import Disk
from perdure.testing.disk.platter import Sync
from perdure.testing.engines.builders import SPACE, Pen, value, write
from tests.coded import raises
from tests.crash.campaign import SEED
from tests.crash.on_disk import engine_on, group_of
from tests.crash.processes import Pipe, running
from tests.crash.spying import DEADLINE_SECONDS, Crowd, spied

THREADS, WRITES = 8, 25


@pytest.fixture
def engine(path: Path) -> Iterator[SqliteEngine]:
    """A store that does not wait long."""
    with closing(SqliteEngine(path, wait_seconds=0.3)) as engine:
        yield engine


def hold_the_lock(pipe: Pipe, path: str) -> None:
    """Be about to commit, until the test says so."""
    engine = SqliteEngine(Path(path))

    def wait(sql: str) -> None:
        if sql == "COMMIT":
            pipe.send(os.getpid())
            pipe.recv()

    spied(engine, before=wait)
    pipe.send(engine.apply(write("slow", value("slow"))))


class TestBetweenProcesses:
    def test_a_wait_that_is_too_long_names_the_holder(self, engine: SqliteEngine, path: Path) -> None:
        """The error names the process that holds the lock, says that nothing was written, and when to try again."""
        with running(hold_the_lock, str(path)) as other:
            pid = other.answer()

            with raises(Unavailable, "store_locked", process=str(pid), seconds=0.3, retry_after=1.0):
                engine.apply(write("op", value("x")))

            other.tell("go on")
            assert isinstance(other.answer(), Receipt)
        assert engine.recorded(SPACE, "op") is None

    def test_the_wait_ends_when_it_said_it_would(self, engine: SqliteEngine, path: Path) -> None:
        """The deadline is kept, give or take the time of a busy machine."""
        with running(hold_the_lock, str(path)) as other:
            other.answer()
            began = time.monotonic()

            with pytest.raises(Unavailable):
                engine.apply(write("op", value("x")))

            assert 0.25 < time.monotonic() - began < 60

    def test_when_the_holder_lets_go_the_next_one_writes(self, path: Path) -> None:
        """Waiting is not failing."""
        with running(hold_the_lock, str(path)) as other, closing(SqliteEngine(path)) as engine:
            other.answer()
            Thread(target=lambda: (time.sleep(0.2), other.tell("go on"))).start()

            receipt = engine.apply(write("op", value("x")))

            assert receipt.op_id == "op"
            assert engine.recorded(SPACE, "slow") is not None

    def test_a_killed_holder_is_not_waited_for(self, engine: SqliteEngine, path: Path) -> None:
        """The kernel knows that it is gone; its write is not there."""
        with running(hold_the_lock, str(path)) as other:
            other.answer()
            other.kill()

        assert engine.apply(write("op", value("x"))).op_id == "op"
        assert engine.recorded(SPACE, "slow") is None

    def test_after_a_wait_in_vain_the_store_still_works(self, engine: SqliteEngine, path: Path) -> None:
        """Waits that were given up leave nothing behind: neither a lock nor a descriptor for each."""
        # The first write reads the file without its log, and SQLite keeps that one descriptor for the next time.
        engine.apply(write("first", value("first")))
        with running(hold_the_lock, str(path)) as other:
            other.answer()
            before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
            for number in range(3):
                with pytest.raises(Unavailable):
                    engine.apply(write(f"op {number}", value("x")))
            other.tell("go on")
            other.answer()
        for number in range(20):
            engine.apply(write(f"again {number}", value("x")))

        after = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
        # SQLite keeps one descriptor of the file for the next look at its mark.
        assert after <= before + 1


class TestInOneProcess:
    def test_writers_that_arrive_during_a_commit_share_one(
        self, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ten who queue behind one are written with one COMMIT, and each gets its own receipt."""
        commits: list[str] = []
        spied(engine, before=lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        crowd = Crowd(engine, monkeypatch, then=lambda: None)
        for number in range(11):
            crowd.come(write(f"op {number}", value(f"{number}")))

        answers = crowd.answers()

        assert [getattr(answer, "op_id", answer) for answer in answers] == [f"op {n}" for n in range(11)]
        assert len(commits) == 2

    def test_they_share_one_sync(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Counted on the disk: two commits, two syncs of the log, for eleven writes."""
        disk = Disk(seed=SEED)
        with engine_on(disk, tmp_path / "lock") as engine:
            crowd = Crowd(engine, monkeypatch, then=lambda: None)
            before = disk.operations
            for number in range(11):
                crowd.come(write(f"op {number}", value(f"{number}")))

            crowd.answers()

            assert sum(isinstance(each, Sync) for each in disk.record[before:]) == 2

    def test_control_without_groups_each_has_its_own(
        self, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A group of one at most: eleven commits."""
        monkeypatch.setattr(group, "_GROUP_MAX", 1)
        commits: list[str] = []
        spied(engine, before=lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        crowd = Crowd(engine, monkeypatch, then=lambda: None)
        for number in range(11):
            crowd.come(write(f"op {number}", value(f"{number}")))

        crowd.answers()

        assert len(commits) == 11

    def test_a_lone_writer_needs_no_other_thread(self, engine: SqliteEngine) -> None:
        """It commits on the thread that called."""
        from threading import get_ident

        wrote: list[int] = []
        spied(engine, before=lambda sql: wrote.append(get_ident()) if sql == "COMMIT" else None)

        engine.apply(write("op", value("x")))

        assert wrote == [get_ident()]

    def test_threads_write_and_read_on_one_engine(self, path: Path) -> None:
        """Any thread may use it, and what it wrote it sees."""
        with closing(SqliteEngine(path)) as engine, ThreadPoolExecutor(THREADS) as pool:

            def work(number: int) -> list[int]:
                pen = Pen(engine, space=f"space {number}")
                return [
                    len(engine.steps(pen.space, pen.commit(f"{turn}").digest, limit=WRITES))
                    for turn in range(WRITES)
                ]

            assert list(pool.map(work, range(THREADS))) == [list(range(1, WRITES + 1))] * THREADS

    def test_a_wait_in_the_queue_that_is_too_long_is_refused(
        self, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The write that it waited for goes on, and its own is not made."""
        crowd = Crowd(engine, monkeypatch, then=lambda: None)
        crowd.come(write("slow", value("slow")))

        with raises(Unavailable, "store_busy"):
            engine.apply(write("op", value("x")))

        assert isinstance(crowd.answers()[0], Receipt)
        assert engine.recorded(SPACE, "op") is None

    def test_a_waiting_writer_that_is_interrupted_blocks_no_writer(self, path: Path) -> None:
        """Ctrl-C in a thread that stood next in line: those behind it, and those who come later, get through."""
        with running(interrupted_in_the_queue, str(path)) as other:
            assert other.answer() == "interrupted"
            assert other.answer() == ["slow", "behind", "later"]

    def test_a_writer_that_is_interrupted_while_its_group_commits_blocks_no_writer(self, path: Path) -> None:
        """Each of a group wakes the next; one whose thread has left is passed over, and its write is made."""
        with running(interrupted_in_the_group, str(path)) as other:
            assert other.answer() == "interrupted"
            assert sorted(other.answer()) == ["behind", "leads", "slow"]
            assert other.answer() is True

    def test_forgetting_waits_its_turn(self, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        """Work that has a transaction of its own waits in the same queue."""
        gone = value("gone" * 50)
        engine.apply(write("first", gone))
        crowd = Crowd(engine, monkeypatch, then=lambda: None)
        crowd.come(write("before", value("before"), space="elsewhere"))
        freed: list[int] = []
        standing = engine.standing(SPACE)
        work = Thread(
            target=lambda: freed.append(engine.forget(SPACE, [gone.digest], why="asked", standing=standing))
        )
        work.start()
        while not group_of(engine)._queue:
            work.join(0.001)
        crowd.come(write("after", value("after"), space="elsewhere"), behind=1)

        answers = crowd.answers()
        work.join()

        assert [type(answer) for answer in answers] == [Receipt, Receipt]
        assert freed[0] > 0


def interrupted_in_the_group(pipe: Pipe, path: str) -> None:
    """Another thread commits the main thread's write with its own, and one behind it; meanwhile the main thread is interrupted."""
    group._AWAKE_MAX = 1
    engine = SqliteEngine(Path(path))
    reached, go_on, done = (Event(), Event()), (Event(), Event()), list[str]()
    commits = iter(range(2))

    def hold(sql: str) -> None:
        number = next(commits, None) if sql == "COMMIT" else None
        if number is not None:
            reached[number].set()
            go_on[number].wait(DEADLINE_SECONDS)

    def apply(op_id: str, behind: int) -> None:
        if op_id != "slow":
            _until_queued(engine, behind)
        done.append(engine.apply(write(op_id, value(op_id))).op_id)

    def interrupt() -> None:
        _until_queued(engine, 3)
        go_on[0].set()
        reached[1].wait(DEADLINE_SECONDS)
        os.kill(os.getpid(), signal.SIGALRM)

    spied(engine, before=hold)
    threads = [Thread(target=apply, args=("slow", 0))]
    threads[0].start()
    reached[0].wait(DEADLINE_SECONDS)
    threads += [Thread(target=apply, args=("leads", 0)), Thread(target=apply, args=("behind", 2))]
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    threads[1].start()
    _until_queued(engine, 1)
    for thread in (threads[2], Thread(target=interrupt)):
        thread.start()
    try:
        engine.apply(write("interrupted", value("x")))
    except KeyboardInterrupt:
        pipe.send("interrupted")
    go_on[1].set()
    for thread in threads:
        thread.join()
    pipe.send(done)
    pipe.send(engine.recorded(SPACE, "interrupted") is not None)


def interrupted_in_the_queue(pipe: Pipe, path: str) -> None:
    """The main thread waits to write behind a slow writer, and is interrupted; another waits behind it."""
    engine = SqliteEngine(Path(path))
    reached, go_on, done = Event(), Event(), list[str]()

    def hold(sql: str) -> None:
        if sql == "COMMIT" and not reached.is_set():
            reached.set()
            go_on.wait(DEADLINE_SECONDS)

    def apply(op_id: str) -> None:
        done.append(engine.apply(write(op_id, value(op_id))).op_id)

    spied(engine, before=hold)
    threads = [Thread(target=apply, args=("slow",))]
    threads[0].start()
    reached.wait(DEADLINE_SECONDS)
    threads.append(Thread(target=lambda: (_until_queued(engine, 1), apply("behind"))))
    threads[1].start()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    Thread(target=lambda: (_until_queued(engine, 2), os.kill(os.getpid(), signal.SIGALRM))).start()
    try:
        engine.apply(write("interrupted", value("x")))
    except KeyboardInterrupt:
        pipe.send("interrupted")
    go_on.set()
    for thread in threads:
        thread.join()
    apply("later")
    pipe.send(done)


def _until_queued(engine: SqliteEngine, number: int) -> None:
    while len(group_of(engine)._queue) < number:
        time.sleep(0.001)
