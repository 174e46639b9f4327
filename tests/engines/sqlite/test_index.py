"""The index: keys are found before and after they are sorted in, and by other processes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.engines.contract import Write
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.commit.file_lock import FileLock
from perdure.engines.sqlite.format import index
from perdure.errors import NotFound
from perdure.model.digest import Kind, Object, digest_of
from tests.coded import raises


def _value(number: int) -> Object:
    return Object.of(Kind.VALUE, b"value %d" % number)


def _put(engine: SqliteEngine, number: int) -> None:
    found = _value(number)
    engine.apply(Write(space="s", op_id=f"op-{number}", intent=found.digest, objects=(found,)))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sort keys in every few writes."""
    monkeypatch.setattr(index, "_BATCH_MIN", 8)


@pytest.mark.usefixtures("small_batches")
def test_objects_are_found_whether_or_not_their_keys_are_sorted_in(tmp_path: Path) -> None:
    """Twenty batches later every object and op_id is still found."""
    engine = SqliteEngine(tmp_path / "s.db", durable=False)
    for number in range(60):
        _put(engine, number)

    found = engine.objects("s", [_value(number).digest for number in range(60)])

    assert [each.body for each in found] == [_value(number).body for number in range(60)]
    assert all(engine.recorded("s", f"op-{number}") for number in range(60))
    engine.close()


@pytest.mark.usefixtures("small_batches")
def test_another_engine_sees_what_was_written_after_it_looked(tmp_path: Path) -> None:
    """Keys of rows that others wrote are read when something is not found."""
    writer = SqliteEngine(tmp_path / "s.db", durable=False)
    reader = SqliteEngine(tmp_path / "s.db", durable=False)
    for number in range(40):
        _put(writer, number)

        assert reader.objects("s", [_value(number).digest])[0].body == _value(number).body
    writer.close()
    reader.close()


def test_an_object_that_was_never_written_is_not_found(tmp_path: Path) -> None:
    """A key that leads nowhere ends in an error that names the object."""
    engine = SqliteEngine(tmp_path / "s.db", durable=False)
    _put(engine, 1)
    absent = digest_of(Kind.VALUE, b"never")

    with raises(NotFound, "object_not_found", digest=absent):
        engine.objects("s", [absent])
    engine.close()


def _unsorted(path: Path) -> int:
    """How many rows have keys that are not sorted in; read-only, as any other close may take the log away."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as stock:
        (rows,) = stock.execute(
            "SELECT count(*) FROM log WHERE id > (SELECT value FROM meta WHERE name='indexed_upto')"
        ).fetchone()
    return int(rows)


def test_who_wrote_and_closes_leaves_few_rows_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys are sorted in, so that the next opening finds them without reading rows."""
    monkeypatch.setattr(index, "_BATCH_LAST", 8)
    path = tmp_path / "s.db"
    engine = SqliteEngine(path, durable=False)
    for number in range(20):
        _put(engine, number)
    before = _unsorted(path)

    engine.close()

    assert (before, _unsorted(path)) == (20, 0)
    with closing(SqliteEngine(path, durable=False)) as again:
        assert again.objects("s", [_value(7).digest])[0].body == _value(7).body


def test_a_key_that_was_cut_short_does_not_keep_the_others_from_being_sorted_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage in one row's keys is for `verify` to report; writing and closing go on."""
    monkeypatch.setattr(index, "_BATCH_LAST", 8)
    path = tmp_path / "s.db"
    with closing(SqliteEngine(path, durable=False)) as engine:
        for number in range(3):
            _put(engine, number)
    with closing(sqlite3.connect(path)) as editor, editor:
        editor.execute("UPDATE log SET keys = substr(keys, 1, length(keys) - 2) WHERE id = 2")

    with closing(SqliteEngine(path, durable=False)) as engine:
        for number in range(3, 20):
            _put(engine, number)

    assert _unsorted(path) == 0
    with closing(SqliteEngine(path, durable=False)) as again:
        assert again.objects("s", [_value(7).digest])[0].body == _value(7).body


def test_who_wrote_nothing_changes_nothing_by_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader leaves the sorting to those who write, and so does who finds the lock taken."""
    path = tmp_path / "s.db"
    writer = SqliteEngine(path, durable=False)
    for number in range(20):
        _put(writer, number)
    monkeypatch.setattr(index, "_BATCH_LAST", 8)
    reader = SqliteEngine(path, durable=False)
    reader.objects("s", [_value(7).digest])

    reader.close()
    holder = FileLock(tmp_path / "s.db-lock")
    holder.acquire(10)
    writer.close()

    assert _unsorted(path) == 20
    holder.release(settled=True)
    holder.close()
