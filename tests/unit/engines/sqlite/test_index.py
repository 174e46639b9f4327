"""The index: keys are found before and after they are sorted in, and by other processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.engines.contract import Write
from holdfast.engines.sqlite import SqliteEngine, index
from holdfast.errors import NotFound
from holdfast.model.digest import Kind, Object, digest_of


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

    with pytest.raises(NotFound, match=absent):
        engine.objects("s", [absent])
    engine.close()
