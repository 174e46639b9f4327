"""The files of a store are private, and a store whose files are not its own any more takes no writes."""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import perdure
from perdure import Agent
from perdure.engines.sqlite import connections
from perdure.engines.sqlite.errors import translated
from perdure.errors import Corrupt, Unavailable
from perdure.testing import Script, say
from perdure.testing.disk import Disk
from perdure.testing.disk.faults import DiskCall
from perdure.testing.engines.builders import SPACE, value, write
from tests.coded import raises
from tests.crash.on_disk import FILE, engine_on

LARGE = value(random.Random(1).randbytes(50_000))
MARK = LARGE.body[20_000:20_016]  # is stored as it is: nothing can be compressed there


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A process that lets everybody read and write what it makes."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    """The modes of all files below a directory, by name."""
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in directory.rglob("*")}


@pytest.mark.usefixtures("open_umask")
def test_everything_that_a_new_store_makes_is_private(tmp_path: Path) -> None:
    """Database, log, shared memory, lock, marks, index and backup, whatever the umask."""
    with perdure.open(tmp_path / "store.db") as store:
        store.thread("t", agent=Agent("a", backend=Script(say("done")))).run("go")
        store.memory("ada").add("she drinks green tea")
        assert store.memory("ada").search("tea")
        store.backup(tmp_path / "copy.db")

        found = modes(tmp_path)

    assert {name for name, mode in found.items() if mode not in (0o600, 0o700)} == set()
    assert {"store.db", "store.db-wal", "store.db-shm", "store.db-lock", "store.db-held"} <= set(found)
    assert len(found) >= 8


def test_beside_a_store_that_was_opened_to_a_group_the_group_can_work(tmp_path: Path) -> None:
    """Lock and marks get the mode that somebody gave the store."""
    path = tmp_path / "store.db"
    perdure.open(path).close()
    path.chmod(0o660)
    path.with_name("store.db-lock").unlink()

    with perdure.open(path) as store:
        store.thread("t", agent=Agent("a", backend=Script(say("done")))).run("go")
        found = modes(tmp_path)

    assert (found["store.db-lock"], found["store.db-wal"], found["store.db-held"]) == (0o660, 0o660, 0o770)


def deleted(path: Path) -> None:
    """Delete the database."""
    path.unlink()


def replaced(path: Path) -> None:
    """Put a copy in its place."""
    shutil.copy(path, path.with_name("other"))
    path.with_name("other").replace(path)


def without_log(path: Path) -> None:
    """Delete the log."""
    path.with_name(path.name + "-wal").unlink()


def without_memory(path: Path) -> None:
    """Delete the shared memory."""
    path.with_name(path.name + "-shm").unlink()


def moved(path: Path) -> None:
    """Move the database away."""
    path.rename(path.with_name("moved.db"))


@pytest.mark.parametrize("harm", [deleted, replaced, moved, without_log, without_memory])
def test_a_store_whose_file_is_gone_takes_no_writes(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """What was written there would be lost when it is closed."""
    path = tmp_path / "store.db"
    with perdure.open(path) as store:
        thread = store.thread("t", agent="a")
        thread.put("/n", 1)
        harm(path)

        for number in range(3):
            with raises(Unavailable, "file_replaced"):
                thread.put("/n", number)


def test_a_copy_is_noticed_though_the_time_of_the_directory_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rsync -a`, `tar` and `cp -a` set it back, and what was written to the replaced files was lost."""
    monkeypatch.setattr(connections, "_TICK_NS", 0)  # a time is believed at once
    path = tmp_path / "store.db"
    with perdure.open(path) as store:
        thread = store.thread("t", agent="a")
        for number in range(3):
            thread.put("/n", number)
        before = tmp_path.stat()
        while tmp_path.stat().st_ctime_ns == before.st_ctime_ns:  # until the kernel's clock has ticked
            replaced(path)
            os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))

        with raises(Unavailable, "file_replaced"):
            thread.put("/n", 3)

    assert tmp_path.stat().st_mtime_ns == before.st_mtime_ns


def test_a_directory_that_has_not_changed_proves_that_no_file_in_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nothing else is looked at; any change in it, also of another file, ends the proof."""
    path = tmp_path / "store.db"
    with perdure.open(path) as store:
        store.thread("t", agent="a").put("/n", 1)
        files = connections.StoreFiles(path)
        monkeypatch.setattr(connections, "_TICK_NS", 1 << 60)
        monkeypatch.setattr(connections, "_FINE_TICK_NS", 1 << 60)
        young = [files.check(), files.check()]
        monkeypatch.setattr(connections, "_TICK_NS", 0)  # a time is believed at once

        believed = [files.check(), files.check()]
        before = tmp_path.stat().st_ctime_ns
        while tmp_path.stat().st_ctime_ns == before:  # until the kernel's clock has ticked
            (tmp_path / "other").touch()
            (tmp_path / "other").unlink()
        changed = [files.check(), files.check()]

    assert young == [False, False]  # control: two changes may have the same time
    assert (believed, changed) == ([False, True], [False, True])


def test_a_file_that_was_put_back_is_written_again(tmp_path: Path) -> None:
    """It is the same file."""
    path = tmp_path / "store.db"
    with perdure.open(path) as store:
        thread = store.thread("t", agent="a")
        moved(path)
        with pytest.raises(Unavailable):
            thread.put("/n", 1)

        path.with_name("moved.db").rename(path)

        thread.put("/n", 2)
        assert thread.get("/n") == 2


def test_what_the_disk_does_not_give_is_not_called_damaged(tmp_path: Path) -> None:
    """SQLite says corrupt where the system says EIO; a file that can be read and is damaged is `Corrupt`."""
    disk = Disk()
    with engine_on(disk, tmp_path / "lock") as engine:
        engine.apply(write("op", LARGE))
    error = apsw.CorruptError("database disk image is malformed")

    healthy = translated(error, "reading", FILE, vfs=disk.vfs)
    disk.fail(at=disk.calls, calls=frozenset({DiskCall.READ}), times=None)
    failing = translated(error, "reading", FILE, vfs=disk.vfs)

    assert (type(healthy), type(failing)) == (Corrupt, Unavailable)


def test_an_error_of_the_disk_while_reading_is_unavailable(tmp_path: Path) -> None:
    """And reading works once the disk does."""
    disk = Disk()
    with engine_on(disk, tmp_path / "lock") as engine:
        engine.apply(write("op", LARGE))
    with engine_on(disk, tmp_path / "lock") as engine:
        disk.fail(at=disk.calls, calls=frozenset({DiskCall.READ}), times=None)
        with pytest.raises(Unavailable):
            engine.objects(SPACE, [LARGE.digest])

        disk.heal()

        assert engine.objects(SPACE, [LARGE.digest])[0].body == LARGE.body


@pytest.mark.parametrize("times", [1, None])
def test_damage_counts_if_a_second_read_finds_it(
    tmp_path: Path, times: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that gives wrong bytes once is asked again; one that gives them twice holds a damaged store."""
    disk = Disk()
    with engine_on(disk, tmp_path / "lock") as engine:
        engine.apply(write("op", LARGE))
    with engine_on(disk, tmp_path / "lock") as engine:
        read, left = disk._cache.read, [times]

        def garbled(file: int, amount: int, offset: int) -> bytes:
            found = read(file, amount, offset)
            if MARK not in found or left[0] == 0:
                return found
            left[0] = None if left[0] is None else left[0] - 1
            return found.replace(MARK, MARK[::-1])

        monkeypatch.setattr(disk._cache, "read", garbled)
        if times is None:
            with pytest.raises(Corrupt):
                engine.objects(SPACE, [LARGE.digest])
        else:
            assert engine.objects(SPACE, [LARGE.digest])[0].body == LARGE.body
            assert left == [0]
