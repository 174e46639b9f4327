"""Forks: a process forks with a store open, as servers that preload their program do.

SQLite keeps its own account of the locks that a process holds.  A child would inherit the
account and not the locks, and its commits would go to a log that another process deletes.
So nothing is open while a process forks, and each opens its own afterwards.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from perdure.engines.sqlite import SqliteEngine
from perdure.errors import Forgotten
from perdure.testing.engines.builders import SPACE, value
from tests.crash import forks
from tests.crash.campaign import sized
from tests.crash.processes import running

FORKS = sized(6, 200)


@contextmanager
def looked_at(path: Path) -> Generator[SqliteEngine]:
    """The store as another process sees it; closing it again moves the log into the database if no process has it open."""
    with closing(SqliteEngine(path)) as engine:
        yield engine


def test_what_a_child_wrote_after_its_parent_closed_is_kept(path: Path) -> None:
    """The parent's close must not take the log away from under the child."""
    with running(forks.child_writes_after_parent_closed, str(path)) as process:
        head = process.answer()

    with looked_at(path) as engine:
        hold = engine.hold("child", "main")
        assert hold is not None
        assert hold.head == head


def test_what_a_child_wrote_after_its_parent_died_is_kept(path: Path) -> None:
    """Nor must that of any other process that comes and goes."""
    with running(forks.child_writes_after_parent_died, str(path)) as process:
        process.process.join()
        for version in range(1, 6):
            process.tell(True)
            head = process.answer()

            with looked_at(path) as engine:
                hold = engine.hold("child", "main")
                assert hold is not None
                assert hold.head == head
                assert head.version == version
        process.tell(False)


def test_a_child_that_ends_takes_nothing_from_its_parent(path: Path) -> None:
    """Whatever a child does with what it inherited, the parent's later writes are kept."""
    with running(forks.child_exits, str(path)) as process:
        written = [process.answer()]
        for _ in range(3):
            with looked_at(path) as engine:
                assert list(engine.missing(SPACE, written)) == []
            process.tell(True)
            written.append(process.answer())
        process.tell(False)

    with looked_at(path) as engine:
        assert list(engine.missing(SPACE, written)) == []


def test_upkeep_in_a_child_uses_its_own_connections(path: Path) -> None:
    """Forgetting, dropping and backing up work as a child's first act, and the parent goes on."""
    with running(forks.upkeep_in_child, str(path)) as process:
        assert process.answer() == "done"

    with looked_at(path) as engine:
        with pytest.raises(Forgotten):
            engine.objects(SPACE, [value("gone" * 99).digest])
        with pytest.raises(Forgotten):
            engine.recorded("theirs", "op")
        assert engine.recorded(SPACE, "after") is not None
    with looked_at(path.with_name("copy.db")) as copy:
        assert copy.recorded(SPACE, "op") is not None


def test_a_fork_in_the_middle_of_a_write_waits_for_it(path: Path) -> None:
    """Three writes, of a thread, of the child and of the parent, are all there once."""
    with running(forks.fork_inside_a_write, str(path)) as process:
        assert {process.answer(), process.answer()} == {"by the child", "by the parent"}

    with looked_at(path) as engine:
        for op_id in ("first", "slow", "by the child", "by the parent"):
            assert engine.recorded(SPACE, op_id) is not None
        assert engine._connections.writer.pragma("integrity_check") == "ok"


def test_forks_among_busy_threads_disturb_no_thread(path: Path) -> None:
    """Children come and go while threads read and write: no error, no deadlock, nothing lost."""
    with running(forks.fork_among_threads, str(path), FORKS) as process:
        answers = [process.answer() for _ in range(FORKS)]
        ended, errors, versions = process.answer()

    assert (answers, ended, errors) == ([[]] * FORKS, [True] * FORKS, [])
    with looked_at(path) as engine:
        assert [forks.hold_version(engine, f"parent {number}") for number in range(3)] == versions
        assert [forks.hold_version(engine, f"child {number}") for number in range(FORKS)] == [5] * FORKS
        assert engine._connections.writer.pragma("integrity_check") == "ok"


def test_a_child_writes_though_a_thread_of_its_parent_was_compressing(path: Path) -> None:
    """The compressor has a lock: one that is held while the process forks would stay locked in the child for ever."""
    with running(forks.fork_while_compressing, str(path)) as process:
        assert process.answer() == 0

    with looked_at(path) as engine:
        assert engine.recorded(SPACE, "by the child") is not None


def test_control_a_child_with_the_compressor_of_its_parent_hangs(path: Path) -> None:
    """It waits for a thread that it does not have, until a signal ends it."""
    with running(forks.fork_while_compressing, str(path), "unprepared") as process:
        assert process.answer() == -signal.SIGALRM


def test_control_a_process_that_forks_with_connections_open_loses_commits(path: Path) -> None:
    """The child's commits go to a log that its parent has deleted: it was told that they are durable."""
    with running(forks.child_writes_after_parent_closed, str(path), "unprepared") as process:
        head = process.answer()

    with looked_at(path) as engine:
        hold = engine.hold("child", "main")
        assert hold is not None
        assert hold.head.version < head.version


_TWO_AT_ONCE = """
import os, sys, threading, time

os.register_at_fork(before=lambda: time.sleep(0.1))  # registered first, so it comes after the store's own rest

import perdure

store = perdure.open(sys.argv[1])
thread = store.thread("t", agent="a")
thread.put("/n", 0)


def fork() -> None:
    child = os.fork()
    if not child:
        with perdure.open(sys.argv[1]) as mine:
            mine.thread(f"of-{os.getpid()}", agent="a").put("/n", 1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


threads = [threading.Thread(target=fork) for _ in range(3)]
for each in threads:
    each.start()
for each in threads:
    each.join()
thread.put("/n", 2)
print(sum(1 for _ in store.threads()), thread.get("/n"))
"""


def test_threads_that_fork_at_the_same_time_take_turns(path: Path) -> None:
    """A second fork that begins while a store is at rest for the first does not leave it there for ever."""
    done = subprocess.run(
        [sys.executable, "-c", _TWO_AT_ONCE, str(path)], capture_output=True, timeout=1_700, check=False
    )

    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.split() == [b"4", b"2"]
