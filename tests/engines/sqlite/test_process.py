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

from perdure.engines.contract import Engine
from perdure.engines.holders import new_name
from perdure.engines.sqlite import SqliteEngine, process
from perdure.engines.sqlite.process import Presence
from perdure.errors import Unavailable
from perdure.testing import EngineSuite
from tests.coded import raises


class Careless(EngineSuite):
    """The suite on an engine whose forked children keep what they inherit."""

    def open(self, path: Path) -> Engine:
        engine = SqliteEngine(path / "store.db")
        engine._presence.after_fork_in_child = lambda: None
        return engine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "store.db"


@pytest.fixture
def marks(path: Path) -> Path:
    """Where its marks are."""
    return path.with_name("store.db-held")


@pytest.fixture
def present(path: Path) -> Generator[Presence]:
    """One opening."""
    present = Presence(path, read_only=False)
    yield present
    present.close()


def names(marks: Path) -> set[str]:
    """The names of all marks."""
    return {each.name for each in marks.iterdir()} if marks.exists() else set()


def left(marks: Path, name: str) -> Path:
    """A mark whose process is gone."""
    marks.mkdir(exist_ok=True)
    (marks / name).touch()
    return marks / name


def test_nothing_is_marked_before_a_caller_asks(path: Path, marks: Path) -> None:
    """A store that only keeps state leaves no directory beside it, nor does one that was closed."""
    with closing(SqliteEngine(path)) as engine:
        assert not marks.exists()
        name = engine.holder()
        assert names(marks) == {name}

    assert not marks.exists()


def test_a_read_only_opening_holds_nothing(path: Path, marks: Path) -> None:
    """It can ask who is gone, and removes nothing."""
    SqliteEngine(path).close()
    dead = left(marks, new_name())
    with closing(SqliteEngine(path, read_only=True)) as reader:
        with raises(Unavailable, "opened_read_only"):
            reader.holder()

        assert reader.gone(dead.name)
        assert dead.exists()


def test_what_others_left_is_removed(present: Presence, marks: Path) -> None:
    """An opening that marks itself does it; marks that are held, and files of any other name, stay."""
    with closing(Presence(marks.with_name("store.db"), read_only=False)) as alive:
        living = alive.holder()
        dead, unborn, foreign = (left(marks, name) for name in (new_name(), new_name() + ".new", "notes.txt"))

        mine = present.holder()

        assert names(marks) == {living, mine, foreign.name}
        assert not dead.exists()
        assert not unborn.exists()


def test_a_mark_that_is_proven_gone_is_removed(present: Presence, marks: Path) -> None:
    """The proof is as good without the file."""
    dead = left(marks, new_name())

    assert present.gone(dead.name)
    assert not dead.exists()
    assert present.gone(dead.name)


def test_two_who_ask_at_once_are_told_the_same(path: Path, marks: Path) -> None:
    """Looking at a mark does not make others believe that it is held."""
    dead = [left(marks, new_name()).name for _ in range(200)]
    readers = [Presence(path, read_only=True) for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda reader: [reader.gone(name) for name in dead], readers))

    assert found == [[True] * len(dead)] * 4


def test_marks_made_and_tidied_at_once_do_not_hurt_each_other(path: Path, marks: Path) -> None:
    """Openings come and go, each sweeping; no opening that is there is ever found gone."""

    def live(_: int) -> bool:
        with (
            closing(Presence(path, read_only=False)) as mine,
            closing(Presence(path, read_only=True)) as other,
        ):
            return other.gone(mine.holder()) or not (marks / mine.holder()).exists()

    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(live, range(400)))

    assert names(marks) == set()


def test_a_directory_that_is_tidied_away_in_the_making_is_made_again(
    present: Presence, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An opening that leaves removes it as it is empty, before it has its mode."""
    real, taken = process.mode_beside, list[Path]()

    def tidied(path: Path) -> int:
        if not taken:
            taken.append(marks)
            marks.rmdir()
        return real(path)

    monkeypatch.setattr(process, "mode_beside", tidied)

    mine = present.holder()

    assert taken
    assert names(marks) == {mine}


def test_a_name_that_is_a_path_touches_no_file(present: Presence, path: Path, marks: Path) -> None:
    """A hostile lease cannot have a file removed."""
    present.holder()
    victim = path.with_name("a" * 32)
    victim.touch()

    for name in (f"../{victim.name}", str(victim), f"{victim.name}\n", victim.name + "/."):
        assert not present.gone(name)

    assert victim.exists()


def test_a_mark_that_is_a_link_or_a_pipe_proves_nothing(present: Presence, path: Path, marks: Path) -> None:
    """Neither is followed nor waited for."""
    marks.mkdir()
    link, pipe = marks / new_name(), marks / new_name()
    path.touch()
    link.symlink_to(path)
    os.mkfifo(pipe)

    assert not present.gone(link.name)
    assert not present.gone(pipe.name)
    assert path.exists()


def test_an_opening_by_a_link_sees_the_same_marks(present: Presence, path: Path, tmp_path: Path) -> None:
    """Otherwise a holder that lives would seem gone."""
    path.touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link.db").symlink_to(path)
    name = present.holder()

    with closing(Presence(tmp_path / "other" / "link.db", read_only=False)) as other:
        assert not other.gone(name)


def test_a_place_that_cannot_be_marked_is_unavailable(present: Presence, marks: Path) -> None:
    """The driver's error is the cause."""
    marks.touch()

    with raises(Unavailable, "file_failed") as caught:
        present.holder()

    assert isinstance(caught.value.__cause__, OSError)


def test_a_program_that_was_started_does_not_inherit_the_mark(path: Path, marks: Path) -> None:
    """A tool's own processes live on without keeping the holder alive, even if they are given everything."""
    with closing(Presence(path, read_only=True)) as other:
        mine = Presence(path, read_only=False)
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
    monkeypatch.setattr(process, "_BOOT_ID", tmp_path / "none")

    clocks = {process._clock_name.__wrapped__() for _ in range(2)}

    assert len(clocks) == 2


def test_control_a_child_that_keeps_what_it_inherits_is_caught(tmp_path: Path) -> None:
    """The law of forks fails for an engine whose children do not close the parent's mark."""
    with closing(Careless().open(tmp_path)) as engine, pytest.raises(AssertionError):
        Careless().test_a_forked_child_does_not_keep_its_parent_alive(engine, tmp_path)
