"""A damaged page of a store's file costs what it holds: everything else can still be read, copied and restored."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import apsw
import pytest

import perdure
from perdure.engines.contract import CellWrite
from perdure.engines.sqlite import open_sqlite
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.format.index import Index
from perdure.errors import Conflict, Corrupt, PerdureError
from perdure.testing.engines.builders import SPACE, write
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


# ---- what damage makes of a number, and what a salvage costs


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """The statements that connections opened in this test run, as they come."""
    found: list[str] = []

    def watch(connection: apsw.Connection) -> None:
        connection.exec_trace = lambda _, sql, __: found.append(sql) is None

    apsw.connection_hooks.append(watch)
    yield found
    apsw.connection_hooks.remove(watch)


def edited(place: Path, *edits: str) -> Path:
    """The store at `place`, in which a program without Perdure has changed something."""
    database = sqlite3.connect(place)
    for edit in edits:
        database.execute(edit)
    database.commit()
    database.close()
    return place


def with_index(whole: Path, place: Path) -> Path:
    """A copy at `place` of which all rows are sorted into the index, as in a larger store."""
    shutil.copyfile(whole, place)
    connection = apsw.Connection(str(place))
    Index().sort_in(cast("Database", connection))
    connection.close()
    return place


def lost(store: perdure.Store) -> str | int:
    """What the file has lost, in words; empty: nothing."""
    return store.facts().get("lost", "")


def temporary(others: Sequence[Any] = ()) -> list[Any]:
    """The open databases that have no name, without the `others`, which an earlier test has left."""
    return [each for each in apsw.connections() if not each.filename and each not in others]


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE heads SET commit_row = 1 << 40",
        "UPDATE heads SET commit_row = 'text'",
        "UPDATE stretches SET last = 1 << 40",
        "UPDATE stretches SET last = 'text'",
        "UPDATE stretches SET last = 1e300",
        "UPDATE stretches SET first = -first, space = CAST(space AS BLOB)",
    ],
)
def test_a_number_of_a_row_that_damage_has_made_does_not_keep_a_reader_busy(
    whole: Path, tmp_path: Path, statements: list[str], edit: str
) -> None:
    """A file has no more rows than fit into it, so what follows from the number is looked for no further."""
    page = pages_of(whole, "log")[3]
    place = damaged(edited(with_index(whole, tmp_path / "e.db"), edit), tmp_path, page)

    with perdure.open(place, read_only=True) as store:
        report = store.verify()

    assert not report.ok
    assert len(statements) < 20_000


@pytest.mark.parametrize("edit", ["last = 1e300", "last = 'text'", "last = x'00'", "first = 'text' || first"])
def test_a_number_of_another_type_in_a_whole_file_is_damage(whole: Path, tmp_path: Path, edit: str) -> None:
    """It is not an error of Python's."""
    place = edited(with_index(whole, tmp_path / "e.db"), f"UPDATE stretches SET {edit}")

    with perdure.open(place, read_only=True) as store:
        assert not store.verify().ok
        with pytest.raises(Corrupt):
            store.thread("t1").get("/n.json")


@pytest.mark.parametrize("number", ["1e300", "'text'", "x'00'"])
def test_the_newest_row_of_a_space_is_a_number(whole: Path, tmp_path: Path, number: str) -> None:
    """What else an index holds in its place is damage, and not an error of Python's."""
    place = edited(with_index(whole, tmp_path / "e.db"), f"UPDATE stretches SET last = {number}")
    reader = open_sqlite(place, read_only=True)
    try:
        with raises(Corrupt, "index_damaged"):
            reader.standing(reader.spaces(limit=1)[0])
    finally:
        reader.close()


@pytest.mark.parametrize("seed", some(range(100), one_of=6))
def test_flipped_bits_raise_only_errors_of_perdure(
    whole: Path, tmp_path: Path, statements: list[str], seed: int
) -> None:
    """They end after a bounded number of statements, wherever the bits are after the first page."""
    chance, place = random.Random(seed), tmp_path / "f.db"
    content = bytearray((with_index(whole, place) if seed % 2 else whole).read_bytes())
    for _ in range(chance.choice([1, 8, 64])):
        content[chance.randrange(PAGE, len(content))] ^= 1 << chance.randrange(8)
    place.write_bytes(content)

    tried: list[Callable[[perdure.Store], object]] = [
        lambda store: [each.id for each in store.threads()],
        lambda store: [list(store.thread(f"t{number}").log()) for number in range(THREADS)],
        lambda store: store.thread("t3").get("/n.json"),
        lambda store: store.verify(),
        lambda store: store.copy_to(tmp_path / "s.db", sound=True),
        lambda store: store.facts(),
    ]
    for each in tried:
        try:
            with perdure.open(place, read_only=True) as store:
                each(store)
        except PerdureError:
            continue

    assert len(statements) < 200_000


def test_a_damaged_file_that_changes_all_the_time_is_read(whole: Path, tmp_path: Path) -> None:
    """What was salvaged answers the read that it was made for, whatever has happened to the file since."""
    place, done = damaged(whole, tmp_path, pages_of(whole, "places")[0]), Event()

    def touch() -> None:
        while not done.is_set():
            os.utime(place)

    toucher = Thread(target=touch)
    toucher.start()
    try:
        assert contents(place) == contents(whole)
    finally:
        done.set()
        toucher.join()


def test_damage_that_is_none_of_a_page_is_looked_for_once(
    whole: Path, tmp_path: Path, statements: list[str]
) -> None:
    """The check reads all of the file: it is made again only after the file has changed."""
    place = edited(Path(shutil.copyfile(whole, tmp_path / "e.db")), "UPDATE heads SET digest = x'00'")

    def checks() -> int:
        return len([sql for sql in statements if "quick_check" in sql])

    with perdure.open(place, read_only=True) as store:
        for number in range(THREADS):
            with pytest.raises(Corrupt):
                store.thread(f"t{number}").get("/n.json")
        assert checks() == 1
        os.utime(place)
        with pytest.raises(Corrupt):
            store.thread("t0").get("/n.json")
        assert checks() == 2


@pytest.mark.parametrize("at", [2, -1])
def test_the_facts_of_a_damaged_store_are_those_of_its_file(whole: Path, tmp_path: Path, at: int) -> None:
    """What is lost is named beside them, also where the file has changed since it was found."""
    place = damaged(whole, tmp_path, pages_of(whole, "log")[at])
    with perdure.open(whole, read_only=True) as store:
        expected = {**store.facts(), "path": str(place)}

    with perdure.open(place, read_only=True) as store:
        assert store.facts().items() >= expected.items() - {("rows", expected["rows"])}
        assert not store.verify().ok
        assert store.facts().items() >= expected.items() - {("rows", expected["rows"])}
        assert lost(store)
        os.utime(place)
        assert lost(store)


def test_a_closed_store_leaves_nothing_that_was_salvaged(whole: Path, tmp_path: Path) -> None:
    """Its temporary database is closed with it."""
    others = temporary()
    place = damaged(whole, tmp_path, pages_of(whole, "log")[2])
    with perdure.open(place, read_only=True) as store:
        assert not store.verify().ok
        assert len(temporary(others)) == 1

    assert temporary(others) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_forked_process_reads_around_the_damage_by_itself(whole: Path, tmp_path: Path) -> None:
    """No database is open in both, and both go on reading."""
    others = temporary()
    place = damaged(whole, tmp_path, pages_of(whole, "places")[0])
    with perdure.open(place, read_only=True) as store:
        before = list(store.thread("t1").log())
        assert len(temporary(others)) == 1
        child = os.fork()
        if child == 0:
            inherited = len(temporary(others))
            os._exit(2 * inherited + (list(store.thread("t1").log()) != before))
        _, status = os.waitpid(child, 0)

        assert status == 0
        assert list(store.thread("t1").log()) == before


def test_a_listing_is_refused_where_listed_cells_are_lost(tmp_path: Path) -> None:
    """What is left of them does not pass for all of them."""
    whole = tmp_path / "listed.db"
    engine = open_sqlite(whole, durability="process_crash")
    engine.apply(
        write(
            "op",
            *(
                CellWrite(name=f"mark/{number:04}", expected=0, value=b"x" * 200, listed=True)
                for number in range(200)
            ),
        )
    )
    engine.backup(tmp_path / "whole.db")
    engine.close()
    place = damaged(tmp_path / "whole.db", tmp_path, pages_of(tmp_path / "whole.db", "cells")[2])

    reader = open_sqlite(place, read_only=True)
    try:
        with raises(Corrupt, "listed_cells_damaged"):
            reader.listed(prefix="mark/", limit=500)
        assert reader.facts()["lost"] == f"cells of '{SPACE}', listed cells"
    finally:
        reader.close()


def test_lost_counters_are_named_alone(whole: Path, tmp_path: Path) -> None:
    """The names of threads are all there, though no sum says so any more."""
    place = damaged(whole, tmp_path, pages_of(whole, "meta")[0])

    with perdure.open(place, read_only=True) as store:
        assert not store.verify().ok
        assert lost(store) == "counters of the store"

    assert contents(place) == contents(whole)
