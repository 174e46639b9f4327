"""The lock between processes: waits that end, waits that are given up, and the one thread that makes them."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.engines.sqlite.commit.file_lock import SPACES_MAX, FileLock
from perdure.errors import Unavailable
from tests.coded import raises


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the lock file is."""
    return tmp_path / "lock"


@pytest.fixture
def lock(path: Path) -> Iterator[FileLock]:
    """One process's handle on it."""
    lock = FileLock(path)
    yield lock
    lock.close()


class Holder:
    """Another holder of the lock."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def let_go(self) -> None:
        """Have it no more."""
        os.close(self._file)

    def let_go_once_awaited(self, lock: FileLock) -> None:
        """Have it no more when a caller of `lock` waits for it in the kernel, however late that is."""
        while not lock._waiter._is_wanted:  # pyright: ignore[reportPrivateUsage]
            time.sleep(0.001)
        self.let_go()


def is_free(path: Path) -> bool:
    """True if the lock is free."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def waiters() -> list[threading.Thread]:
    """The threads that wait in the kernel."""
    return [each for each in threading.enumerate() if each.name == "perdure-lock"]


def test_a_wait_ends_when_the_holder_lets_go(path: Path, lock: FileLock) -> None:
    """The caller that waited then holds the lock, and can let go of it."""
    holder = Holder(path)
    threading.Timer(0.05, holder.let_go).start()

    lock.acquire(30)

    assert not is_free(path)
    lock.release(settled=True)
    assert is_free(path)


def test_waits_one_after_another_share_a_thread(path: Path, lock: FileLock) -> None:
    """Starting a thread for every wait would cost more than the wait."""
    before = set(waiters())
    for _ in range(5):
        threading.Thread(target=Holder(path).let_go_once_awaited, args=(lock,)).start()
        lock.acquire(30)
        lock.release(settled=True)

    assert len(set(waiters()) - before) == 1
    assert is_free(path)


def test_a_wait_in_vain_lets_go_when_it_is_its_turn(path: Path, lock: FileLock) -> None:
    """A lock that no caller waits for any more is free for others."""
    holder = Holder(path)
    with raises(Unavailable, "store_locked"):
        lock.acquire(0.02)

    holder.let_go()

    other = FileLock(path)
    for _ in range(3):  # before and after the thread has had its turn
        other.acquire(30)
        other.release(settled=True)
    other.close()


def test_the_next_wait_takes_over_one_in_vain(path: Path, lock: FileLock) -> None:
    """The thread still stands in the kernel's queue, and who waits next has its place there."""
    holder = Holder(path)
    with pytest.raises(Unavailable):
        lock.acquire(0.02)
    threading.Timer(0.05, holder.let_go).start()

    lock.acquire(30)

    assert not is_free(path)
    lock.release(settled=True)
    assert is_free(path)


def test_closing_ends_the_thread(path: Path) -> None:
    """A store that is closed leaves nothing behind."""
    before = set(waiters())
    lock, holder = FileLock(path), Holder(path)
    threading.Timer(0.02, holder.let_go).start()
    lock.acquire(30)

    lock.close()

    for each in set(waiters()) - before:
        each.join(30)
    assert is_free(path)


def written(lock: FileLock, *spaces: int) -> int:
    """Take the lock, let go of it after a write to these spaces, and return the count before."""
    lock.acquire(30)
    before = lock.count
    lock.release(settled=True, spaces=spaces)
    return before


def test_the_file_names_the_spaces_that_were_written_to(path: Path, lock: FileLock) -> None:
    """A process that has seen a count learns what is new since, and nothing from before."""
    other = FileLock(path)
    seen = other.writes()

    first = written(lock, 7)
    second = written(lock, 8, 9)

    assert seen == first
    assert other.written_since(first) == (other.writes(), {7, 8, 9})
    assert other.written_since(second) == (other.writes(), {8, 9})
    assert other.written_since(other.writes()) == (other.writes(), set())
    other.close()


def test_the_next_holder_learns_the_same(path: Path, lock: FileLock) -> None:
    """The holder reads what was written before it, not what it writes."""
    other = FileLock(path)
    seen = written(lock, 7)

    other.acquire(30)

    assert other.written_before(seen) == {7}
    assert other.written_before(other.count) == set()
    other.release(settled=True)
    other.close()


def test_a_write_that_names_no_space_may_be_anywhere(lock: FileLock) -> None:
    """So may all that a longer file would have named, and what follows a count that is not known."""
    any_space = written(lock, 0)
    known = written(lock, 7)
    assert lock.written_since(any_space)[1] is None
    assert lock.written_since(known)[1] == {7}
    assert lock.written_since(-1)[1] is None

    for _ in range(SPACES_MAX):
        written(lock, 8)

    assert lock.written_since(known)[1] is None
    assert lock.written_since(known + 1)[1] == {8}


@pytest.mark.parametrize("at", [20, 24, 80])
def test_a_file_that_was_read_while_it_was_written_names_no_space(
    path: Path, lock: FileLock, at: int
) -> None:
    """The first part is then from one release and the rest from another: the two counts differ, or it is cut off."""
    seen = written(lock, 7)
    old = path.read_bytes()
    written(lock, 8)
    new = path.read_bytes()
    assert lock.written_since(seen)[1] == {7, 8}

    path.write_bytes(new[:at] + old[at:])
    mixed = lock.written_since(seen)[1]
    path.write_bytes(old[:at] + new[at:])
    mixed_otherwise = lock.written_since(seen)[1]
    path.write_bytes(new[:at])

    assert (mixed, mixed_otherwise) == (None, None)
    assert lock.written_since(seen)[1] is None


def test_after_a_file_of_another_form_no_space_is_known(path: Path, lock: FileLock) -> None:
    """What was written before is not named by the next release either."""
    path.write_bytes(b" " * 12 + (5).to_bytes(8))

    count = written(lock, 7)

    assert count == 5
    assert lock.written_since(5) == (6, {7})
    assert lock.written_since(4) == (6, None)
