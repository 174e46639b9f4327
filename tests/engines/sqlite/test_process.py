"""Marks on the disk: who holds a store, however it was opened, and what is left of those who are gone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from perdure.engines import holders
from perdure.engines.contract import Engine
from perdure.engines.holders import HostPresence, new_name
from perdure.engines.sqlite import SqliteEngine
from perdure.errors import Unavailable
from perdure.testing import EngineSuite
from tests.coded import raises


class Careless(EngineSuite):
    """The suite on an engine whose forked children keep what they inherit."""

    def open(self, path: Path) -> Engine:
        engine = SqliteEngine(path / "store.db")
        engine._presence.after_fork_in_child = lambda: None
        return engine


def present_at(path: Path, *, read_only: bool) -> HostPresence:
    """One use of the store at `path`."""
    return HostPresence(path.with_name(path.name + "-held"), is_local=True, read_only=read_only)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "store.db"


@pytest.fixture
def marks(path: Path) -> Path:
    """Where its marks are."""
    return path.with_name("store.db-held")


@pytest.fixture
def present(path: Path) -> Generator[HostPresence]:
    """One opening."""
    present = present_at(path, read_only=False)
    yield present
    present.close()


def names(marks: Path) -> set[str]:
    """The names of all files beside the list."""
    return {each.name for each in marks.iterdir()} - {CLOSED} if marks.exists() else set()


def left(marks: Path, name: str) -> Path:
    """A file of that name that nobody has locked."""
    marks.mkdir(exist_ok=True)
    (marks / name).touch()
    return marks / name


def dead_mark(marks: Path, *, device: int = 0, inode: int = 0, boot: str = "") -> Path:
    """A mark whose process is gone; its name has its own device, inode and boot, and what is added to them."""
    file = left(marks, new_name())
    stats = file.stat()
    identity = f"{stats.st_dev + device:x}-{stats.st_ino + inode:x}-{boot or holders._boot()}"
    return file.rename(file.with_name(f"{file.name}-{identity}"))


CLOSED = "closed"  # the list of those who are over


def test_nothing_is_marked_before_a_caller_asks(path: Path, marks: Path) -> None:
    """A store that only keeps state leaves no directory beside it, and one that was closed a line in a list."""
    with closing(SqliteEngine(path)) as engine:
        assert not marks.exists()
        name = engine.holder()
        assert names(marks) == {name}

    assert not marks.exists()
    assert path.with_name("store.db-closed").read_text() == f"{name}\n"


def test_a_read_only_opening_holds_nothing(path: Path, marks: Path) -> None:
    """It can ask who is gone, and removes nothing."""
    SqliteEngine(path).close()
    dead = dead_mark(marks)
    with closing(SqliteEngine(path, read_only=True)) as reader:
        with raises(Unavailable, "opened_read_only"):
            reader.holder()

        assert reader.gone(dead.name)
        assert dead.exists()


def test_what_others_left_is_removed(present: HostPresence, marks: Path) -> None:
    """An opening that marks itself does it; marks that are held, and files of any other name, stay."""
    with closing(present_at(marks.with_name("store.db"), read_only=False)) as alive:
        living = alive.holder()
        unborn, foreign, old = (left(marks, name) for name in (new_name() + ".new", "notes.txt", new_name()))
        dead, copied = dead_mark(marks), dead_mark(marks, inode=1)

        mine = present.holder()

        assert names(marks) == {living, mine, foreign.name, copied.name}
        assert not any(each.exists() for each in (dead, unborn, old))
        assert present.gone(dead.name)


def test_a_mark_that_is_proven_gone_is_removed(present: HostPresence, marks: Path) -> None:
    """The proof is noted in the list before the file is removed."""
    dead = dead_mark(marks)

    assert present.gone(dead.name)
    assert not dead.exists()
    assert present.gone(dead.name)


def test_a_missing_file_proves_nothing(present: HostPresence, marks: Path) -> None:
    """Somebody may have removed it, or it may be in another container."""
    dead = dead_mark(marks)
    dead.unlink()

    assert not present.gone(dead.name)


@pytest.mark.parametrize(("device", "inode"), [(0, 1), (1, 0)], ids=["another inode", "another device"])
def test_another_file_of_that_name_proves_nothing(
    present: HostPresence, marks: Path, device: int, inode: int
) -> None:
    """A copied store has copies of the marks, which nobody has locked though their processes live."""
    copied = dead_mark(marks, device=device, inode=inode)

    assert not present.gone(copied.name)
    assert copied.exists()


def test_a_mark_of_an_earlier_boot_is_proven_by_its_inode_beside_a_local_store(
    present: HostPresence, marks: Path
) -> None:
    """A device may have another number after a start; only this host can have the file locked."""
    before = dead_mark(marks, device=1, boot="0" * 16)

    assert present.gone(before.name)


def test_in_a_directory_of_the_host_only_this_boot_counts(tmp_path: Path) -> None:
    """The users of a server may be on other hosts, whose kernels nobody here can ask."""
    here = HostPresence(tmp_path)
    before, now = dead_mark(tmp_path, boot="0" * 16), dead_mark(tmp_path)

    assert not here.gone(before.name)
    assert here.gone(now.name)


def test_the_list_of_those_who_are_over_stays_short(
    present: HostPresence, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that has become long replaces the one before it, so that the newest are always known."""
    monkeypatch.setattr(holders, "_CLOSED_BYTES_MAX", 1_000)
    dead = [dead_mark(marks).name for _ in range(60)]

    assert all(present.gone(name) for name in dead)

    assert present.gone(dead[-1])
    assert not present.gone(dead[0])
    assert sum(each.stat().st_size for each in marks.glob(f"{CLOSED}*")) < 2_200


def test_two_who_ask_at_once_are_told_the_same(path: Path, marks: Path) -> None:
    """Looking at a mark does not make others believe that it is held."""
    dead = [dead_mark(marks).name for _ in range(200)]
    readers = [present_at(path, read_only=True) for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda reader: [reader.gone(name) for name in dead], readers))

    assert found == [[True] * len(dead)] * 4


def test_marks_made_and_tidied_at_once_do_not_hurt_each_other(path: Path, marks: Path) -> None:
    """Openings come and go, each sweeping; no opening that is there is ever found gone."""

    def live(_: int) -> bool:
        with (
            closing(present_at(path, read_only=False)) as mine,
            closing(present_at(path, read_only=True)) as other,
        ):
            return other.gone(mine.holder()) or not (marks / mine.holder()).exists()

    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(live, range(400)))

    assert names(marks) == set()


def test_a_directory_that_is_tidied_away_in_the_making_is_made_again(
    present: HostPresence, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who tidies up removes it, before it has its mode."""
    taken = list[Path]()

    def tidied() -> int:
        if not taken:
            taken.append(marks)
            marks.rmdir()
        return 0o600

    monkeypatch.setattr(present, "_mode", tidied)

    mine = present.holder()

    assert taken
    assert names(marks) == {mine}


def test_a_name_that_is_a_path_touches_no_file(present: HostPresence, path: Path, marks: Path) -> None:
    """A hostile lease cannot have a file removed."""
    present.holder()
    victim = path.with_name("a" * 32)
    victim.touch()

    for name in (f"../{victim.name}", str(victim), f"{victim.name}\n", victim.name + "/."):
        assert not present.gone(name)

    assert victim.exists()


def test_a_mark_that_is_a_link_or_a_pipe_proves_nothing(
    present: HostPresence, path: Path, marks: Path
) -> None:
    """Neither is followed nor waited for."""
    target, pipe = dead_mark(marks), marks / "pipe"
    link = target.with_name(new_name() + target.name[32:])
    link.symlink_to(target)
    os.mkfifo(pipe)
    stats = pipe.stat()
    pipe = pipe.rename(marks / f"{new_name()}-{stats.st_dev:x}-{stats.st_ino:x}-{holders._boot()}")

    assert not present.gone(link.name)
    assert not present.gone(pipe.name)
    assert target.exists()
    assert present.gone(target.name)


def test_an_opening_by_a_link_sees_the_same_marks(path: Path, tmp_path: Path) -> None:
    """Otherwise a holder that was closed would never seem gone."""
    with closing(SqliteEngine(path)) as engine:
        name = engine.holder()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link.db").symlink_to(path)

    with closing(SqliteEngine(tmp_path / "other" / "link.db")) as other:
        assert other.gone(name)


def test_a_place_that_cannot_be_marked_is_unavailable(path: Path, marks: Path) -> None:
    """The driver's error is the cause."""
    with closing(SqliteEngine(path)) as engine:
        marks.touch()

        with raises(Unavailable, "file_failed") as caught:
            engine.holder()

    assert isinstance(caught.value.__cause__, OSError)


def test_a_program_that_was_started_does_not_inherit_the_mark(path: Path, marks: Path) -> None:
    """A tool's own processes live on without keeping the holder alive, even if they are given everything."""
    with closing(present_at(path, read_only=True)) as other:
        mine = present_at(path, read_only=False)
        name = mine.holder()
        program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        with subprocess.Popen(program, stdin=subprocess.PIPE, close_fds=False):
            assert mine._mark is not None
            os.close(mine._mark.file)  # as the end of this process would
            mine._mark = None

            # The kernel closes what is not inherited one by one, and we are told in the middle of it.
            end = time.monotonic() + 10
            while not other.gone(name):
                assert time.monotonic() < end


def test_where_the_platform_names_no_boot_every_process_has_its_own_clock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is compared that cannot be."""
    monkeypatch.setattr(holders, "_BOOT_ID", tmp_path / "none")

    clocks = {holders.boot_name.__wrapped__() for _ in range(2)}

    assert len(clocks) == 2


def test_control_a_child_that_keeps_what_it_inherits_is_caught(tmp_path: Path) -> None:
    """The law of forks fails for an engine whose children do not close the parent's mark."""
    with closing(Careless().open(tmp_path)) as engine, pytest.raises(AssertionError):
        Careless().test_a_forked_child_does_not_keep_its_parent_alive(engine, tmp_path)
