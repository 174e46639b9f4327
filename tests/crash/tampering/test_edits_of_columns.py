"""Every column of every table, edited one at a time: `verify` finds it, or nothing is ever read from it.

The store has all that the scene has, and words that were erased and a thread that was removed.  `make test` makes one
edit in many; `PERDURE_DEEP=1` makes all of them.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest

import perdure
from perdure.engines.sqlite.maintenance import scan
from tests.crash.campaign import SEED, sized
from tests.crash.tampering.columns import ColumnEdit, Text, column_edits, make
from tests.crash.tampering.scene import build, is_sound
from tests.crash.tampering.test_edits_of_stored_rows import copied
from tests.store.copies import engine_of

PARTS = sized(2, 8)
KINDS_LEFT_OUT = sized(4, 1)  # of so many kinds of edits one is made
ROWS_MAX = sized(1, 10_000)  # that an edit of one kind is made in

# Rows of `meta` whose number is only compared with itself: another one is as good.  That they are there is verified.
UNREAD = {
    b"barrier": "that it is written is what makes the barrier durable",
    b"generation": "a process compares it with the one that it saw last",
    b"log_mark": "it is random, and binds a log that the next transaction replaces",
    b"log_base": "it is the mark before",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store that is edited."""
    directory = tmp_path_factory.mktemp("columns")
    path = directory / "store.db"
    build(path, lambda: None)
    with closing(perdure.open(path)) as store:
        engine, erased, removed = engine_of(store), store.thread("e", agent="a"), store.thread("r", agent="a")
        erased.put("/secret.json", "x" * 200)
        with removed.change("words") as change:
            change.say("user", "Words that are removed.")
            change.put("/a.json", 1)
        value, (kept, gone) = (
            erased.entry("/secret.json").value,
            [each._space.name for each in (erased, removed)],
        )
        engine.forget(kept, [value], why="asked", standing=engine.standing(kept))
        removed.rm()
        engine.drop(gone, why="asked")
    return copied(path, directory / "whole.db")


def chosen(whole: Path, part: int) -> list[ColumnEdit]:
    """The edits of one part of the campaign."""
    kinds: defaultdict[tuple[str, ...], list[ColumnEdit]] = defaultdict(list)
    with closing(sqlite3.connect(whole)) as db:
        for edit in column_edits(db):
            kinds[edit.kind].append(edit)
    found: list[ColumnEdit] = []
    for number, edits in enumerate(kinds.values()):
        if (number + SEED) % KINDS_LEFT_OUT == 0:
            first = SEED * number % len(edits)
            found += (edits[first:] + edits[:first])[:ROWS_MAX]
    return found[part::PARTS]


def is_unread(edit: ColumnEdit) -> bool:
    """Whether it gives a number that nothing depends on another value."""
    rows = [edit.row, *([edit.next_row] if edit.next_row else [])]
    return (edit.table, edit.column) == ("meta", "value") and all(
        [isinstance(name, Text) and name.body in UNREAD for (name,) in rows]
    )


def missed(whole: Path, directory: Path, edits: list[ColumnEdit]) -> tuple[list[ColumnEdit], int]:
    """Make each edit on a copy; return those that `verify` does not find, and how many changed something."""
    unseen: list[ColumnEdit] = []
    made = 0
    for edit in edits:
        place = directory / "edited"
        place.mkdir()
        path = Path(shutil.copy(whole, place / "store.db"))
        with closing(sqlite3.connect(path)) as db:
            has_changed = make(db, edit)
        made += has_changed
        if has_changed and is_sound(path):
            unseen.append(edit)
        shutil.rmtree(place)
    return unseen, made


def test_a_store_without_edits_is_sound(whole: Path) -> None:
    """What is compared with: nothing is found in it, and it has words that were erased and a thread that was removed."""
    with closing(sqlite3.connect(whole)) as db:
        dropped = db.execute("SELECT count(*) FROM log WHERE instr(pack, 'asked')").fetchone()

    assert is_sound(whole)
    assert dropped[0] > 1


@pytest.mark.parametrize("part", range(PARTS))
def test_an_edit_of_any_column_is_found(whole: Path, tmp_path: Path, part: int) -> None:
    """A type, an empty value for none, a number beside it, or the value of another row: each is reported."""
    unseen, made = missed(whole, tmp_path, chosen(whole, part))

    assert [edit for edit in unseen if not is_unread(edit)] == []
    assert made > 20


def test_without_its_row_a_counter_is_reported(whole: Path, tmp_path: Path) -> None:
    """A file without one of the rows that a writer updates, or with one more, is not sound."""
    found: dict[str, bool] = {}
    for number, sql in enumerate(
        [
            *(f"DELETE FROM meta WHERE name='{name}'" for name in ("barrier", "generation", "indexed_upto")),
            *(f"DELETE FROM meta WHERE name='{name}'" for name in ("listed", "spaces")),
            "INSERT INTO meta VALUES ('another', 1)",
        ]
    ):
        path = Path(shutil.copy(whole, tmp_path / f"{number}.db"))
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(sql)
        found[sql] = is_sound(path)

    assert [sql for sql, sound in found.items() if sound] == []


def test_without_the_types_an_edit_is_missed(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: with the check of types off, words that became a blob are taken for the words that were written."""
    with closing(sqlite3.connect(whole)) as db:
        edits = [
            edit for edit in column_edits(db) if edit.kind == ("log", "bodies", "NoneType", "empty text")
        ]
    monkeypatch.setattr(scan, "_IS_TYPED", "1")
    monkeypatch.setattr(scan, "_BATCH", scan._BATCH.replace("l.bodies IS NOT ''", "1"))

    unseen, made = missed(whole, tmp_path, edits[:3])

    assert len(unseen) == made == 3
