"""A damaged page of a store's file costs what it holds: everything else can still be read, copied and restored."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

import perdure
from perdure.errors import Conflict, Corrupt
from tests.coded import raises
from tests.selection import some

THREADS, TURNS = 12, 8
PAGE = 8_192


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of a store with some threads of one agent."""
    place = tmp_path_factory.mktemp("whole")
    with perdure.open(place / "a.db", durability="process_crash") as store:
        for number in range(THREADS):
            thread = store.thread(f"t{number}", agent="planner")
            for turn in range(TURNS):
                with thread.change(f"turn {turn}") as change:
                    change.say("user", f"words {number} {turn} " * 20)
                    change.put("/n.json", {"turn": turn, "text": "x" * 300})
        store.backup(place / "whole.db")
    return place / "whole.db"


def damaged(whole: Path, tmp_path: Path, page: int, *, offset: int = 0) -> Path:
    """A copy of which half a page is overwritten."""
    place = tmp_path / "d.db"
    shutil.copyfile(whole, place)
    with place.open("r+b") as file:
        file.seek((page - 1) * PAGE + offset)
        file.write(random.Random(page).randbytes(PAGE // 2))
    return place


def pages_of(whole: Path, table: str) -> list[int]:
    """The pages of a table or an index that lead to no other page."""
    with sqlite3.connect(whole) as database:
        select = "SELECT pageno FROM dbstat WHERE name=? AND pagetype='leaf' ORDER BY pageno"
        found = [page for (page,) in database.execute(select, (table,))]
    database.close()
    return found


def contents(place: Path) -> dict[str, object]:
    """The state of each thread that can be read, and how many commits lead to it."""
    found: dict[str, object] = {}
    with perdure.open(place, read_only=True) as store:
        for number in range(THREADS):
            try:
                thread = store.thread(f"t{number}")
                found[thread.id] = thread.get("/n.json"), len(list(thread.log()))
            except perdure.errors.PerdureError:
                continue
    return found


@pytest.mark.parametrize("offset", [0, PAGE // 2])
@pytest.mark.parametrize("at", [0, 3, -1])
def test_a_damaged_page_of_the_log_costs_the_threads_in_it(
    whole: Path, tmp_path: Path, at: int, offset: int
) -> None:
    """The others are copied as they were, and those that are not are named."""
    place = damaged(whole, tmp_path, pages_of(whole, "log")[at], offset=offset)

    with perdure.open(place, read_only=True) as store:
        report, copied = store.verify(), store.copy_to(tmp_path / "s.db", sound=True)

    rescued, original = contents(tmp_path / "s.db"), contents(whole)
    assert rescued.items() <= original.items()
    assert len(rescued) >= THREADS - 4
    assert {
        name for name in original if f"thread '{name}'" in copied.left_out
    } == original.keys() - rescued.keys()
    assert not report.ok
    assert copied.verified is not None
    assert copied.verified.ok


def test_an_intact_thread_beside_a_damaged_page_is_read_and_copied_alone(whole: Path, tmp_path: Path) -> None:
    """What `export` reads of it, too; a thread in the page is refused."""
    pages = pages_of(whole, "log")
    place = next(place for page in pages if contents(place := damaged(whole, tmp_path, page)))
    left = contents(place)
    lost = next(name for name in contents(whole) if name not in left)

    with perdure.open(place, read_only=True) as store:
        store.copy_to(tmp_path / "one.db", threads=[next(iter(left))])
        with raises(Corrupt, "source_damaged"):
            store.copy_to(tmp_path / "lost.db", threads=[lost])

    assert contents(tmp_path / "one.db").items() <= left.items()


@pytest.mark.parametrize("table", ["places", "stretches", "cells_listed", "sqlite_autoindex_spaces_1"])
def test_a_damaged_page_of_an_index_costs_nothing(whole: Path, tmp_path: Path, table: str) -> None:
    """It is derived from the tables again; `verify` still says that the file is damaged."""
    place = damaged(whole, tmp_path, pages_of(whole, table)[0])

    with perdure.open(place, read_only=True) as store:
        report = store.verify()
        store.copy_to(tmp_path / "s.db")

    assert contents(tmp_path / "s.db") == contents(whole)
    assert [fault.kind for fault in report.faults] == ["file"]


def test_a_damaged_store_is_not_backed_up(whole: Path, tmp_path: Path) -> None:
    """What is left of it is not a backup of it, and it is not opened for writing as if it were whole."""
    place = damaged(whole, tmp_path, pages_of(whole, "log")[2])

    with perdure.open(place, read_only=True) as store:
        assert not store.verify().ok
        with pytest.raises(Corrupt):
            store.backup(tmp_path / "b.db")

    assert not (tmp_path / "b.db").exists()


def test_a_store_that_is_mended_meanwhile_is_read_again(whole: Path, tmp_path: Path) -> None:
    """What was salvaged is used for as long as the file is as it was."""
    page = pages_of(whole, "log")[2]
    place = damaged(whole, tmp_path, page)

    with perdure.open(place, read_only=True) as store:
        assert not store.verify().ok
        with place.open("r+b") as file:
            file.seek((page - 1) * PAGE)
            file.write(whole.read_bytes()[(page - 1) * PAGE : page * PAGE])

        assert store.verify().ok


@pytest.mark.parametrize("at", some(range(46), one_of=6))
def test_a_store_with_any_page_damaged_is_replaced_by_its_backup(
    whole: Path, tmp_path: Path, at: int
) -> None:
    """It is refused without `replace`, and else set aside as it is; an intact one needs `replace` as well."""
    place = damaged(whole, tmp_path, at // 2 + 1, offset=at % 2 * PAGE // 2)
    before = place.read_bytes()

    with raises(Conflict, "target_exists"):
        perdure.restore(whole, place)
    report = perdure.restore(whole, place, replace=True)

    assert contents(place) == contents(whole)
    assert Path(report.set_aside[0]).read_bytes() == before


def test_a_damaged_store_with_something_newer_is_not_set_aside(whole: Path, tmp_path: Path) -> None:
    """What can be read of it is compared with the backup: a damaged page does not hide a newer thread."""
    place = tmp_path / "newer.db"
    shutil.copyfile(whole, place)
    with perdure.open(place) as store:
        store.thread("t11").put("/n.json", "newer")
    place = damaged(place, tmp_path, pages_of(place, "log")[2])

    with raises(Conflict, "target_newer", threads=("t11",)):
        perdure.restore(whole, place, replace=True)


@pytest.mark.parametrize("replace", [False, True])
def test_an_empty_file_is_replaced_by_a_backup(whole: Path, tmp_path: Path, *, replace: bool) -> None:
    """It has nothing to lose, and is kept under another name all the same."""
    place = tmp_path / "empty.db"
    place.touch()

    report = perdure.restore(whole, place, replace=replace)

    assert contents(place) == contents(whole)
    assert [Path(name).stat().st_size for name in report.set_aside] == [0]
