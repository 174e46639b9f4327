"""One byte is flipped at rest; `verify` names what it was in, and reading it fails closed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import msgspec
import pytest

import perdure
from perdure import Thread
from perdure.engines.sqlite.format.pack import KINDS, PackItem, decode_pack, encode_pack
from perdure.errors import Corrupt, NotFound, PerdureError
from perdure.history.verify import VerifyReport
from perdure.model.digest import Kind
from tests.crash.campaign import sized

Read = Callable[[Thread], object]

STRIDE = sized(31, 1)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a store with one thread of three turns."""
    path = tmp_path_factory.mktemp("sound") / "agents.db"
    with perdure.open(path.as_posix()) as store:
        thread = store.thread("trip-42", agent="planner")
        for turn in ("milk", "eggs", "carrots"):
            with thread.change(turn) as change:
                change.say("user", f"add {turn}", id=f"m-{turn}")
                change.put("/list.json", [*change.get("/list.json", default=[]), turn])
                change.put(f"/notes/{turn}", {"text": turn * 200})
    assert report_of(path).ok
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, sound: bytes) -> Path:
    """That store, closed, for one test to damage."""
    path = tmp_path / "agents.db"
    path.write_bytes(sound)
    return path


def report_of(path: Path) -> VerifyReport:
    """What `verify` says of the store."""
    with perdure.open(path.as_posix()) as store:
        return store.verify()


def portrait(path: Path) -> object:
    """Everything that a reader of the thread can see, or the kind of error he gets instead."""
    with perdure.open(path.as_posix()) as store:
        try:
            thread = store.thread("trip-42")
            seen: list[object] = [
                thread.head,
                [(entry.id, entry.text, entry.at) for entry in thread.transcript()],
            ]
            for commit in thread.log():
                view = thread.at(commit.digest)
                state = {path: view.get(path) for path in view.paths("/")}
                seen.append((commit.digest, commit.parents, commit.root, commit.reason, commit.at, state))
        except PerdureError as error:
            return type(error)
        return seen


def execute(
    path: Path, sql: str, bindings: tuple[apsw.SQLiteValue, ...] = ()
) -> list[tuple[apsw.SQLiteValue, ...]]:
    """Run one statement behind the back of the engine."""
    connection = apsw.Connection(str(path))
    try:
        return list(connection.execute(sql, bindings))
    finally:
        connection.close()


def flipped(data: bytes, at: int) -> bytes:
    """`data` with one bit of one byte turned over."""
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


def last_row(path: Path) -> tuple[int, bytes]:
    """The number and the pack of the newest commit's row."""
    ((row, pack),) = execute(
        path, "SELECT id, pack FROM log WHERE digest IS NOT NULL ORDER BY id DESC LIMIT 1"
    )
    assert isinstance(row, int)
    assert isinstance(pack, bytes)
    return row, pack


def flip_item(path: Path, kind: Kind) -> None:
    """Flip a byte in the first item of that kind in the newest commit's row."""
    row, pack = last_row(path)
    record = decode_pack(pack)
    items = list(record.items)
    at = next(at for at, item in enumerate(items) if KINDS[item.kind] is kind and item.data)
    items[at] = msgspec.structs.replace(items[at], data=flipped(items[at].data, len(items[at].data) // 2))
    execute(
        path,
        "UPDATE log SET pack=? WHERE id=?",
        (encode_pack([fields(item) for item in items], record.op), row),
    )


def fields(item: PackItem) -> tuple[object, ...]:
    """The item as the encoder takes it."""
    return msgspec.structs.astuple(item)


def flip_column(path: Path, column: str, *, cast: str) -> None:
    """Flip a byte in the middle of a column of the newest commit's row."""
    row, _ = last_row(path)
    ((data,),) = execute(path, f"SELECT CAST({column} AS BLOB) FROM log WHERE id=?", (row,))
    assert isinstance(data, bytes)
    execute(
        path, f"UPDATE log SET {column}=CAST(? AS {cast}) WHERE id=?", (flipped(data, len(data) // 2), row)
    )


def flip_head(path: Path) -> None:
    """Flip a byte in the row of the thread's head: the version that it says."""
    sql = "UPDATE heads SET move=replace(move, '\"version\":3', '\"version\":2') WHERE timeline='main'"
    execute(path, sql)


def all_values(thread: Thread) -> list[object]:
    """Every value at the head."""
    return [thread.get(path) for path in thread.paths("/")]


DAMAGES: dict[str, tuple[Callable[[Path], None], str, Read]] = {
    "value": (lambda path: flip_item(path, Kind.VALUE), "value", all_values),
    "node": (lambda path: flip_item(path, Kind.NODE), "node", lambda thread: thread.paths("/")),
    "message": (lambda path: flip_column(path, "bodies", cast="TEXT"), "body", Thread.transcript),
    "changeset": (lambda path: flip_column(path, "changeset", cast="TEXT"), "changeset", Thread.log),
    "commit": (lambda path: flip_column(path, "fields", cast="BLOB"), "commit", Thread.log),
    "changeset's digests": (lambda path: flip_column(path, "digests", cast="BLOB"), "changeset", Thread.log),
    "commit's digest": (lambda path: flip_column(path, "digest", cast="BLOB"), "commit", Thread.log),
    "head": (flip_head, "head", lambda thread: thread.head),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_verify_names_what_a_flipped_byte_is_in(path: Path, what: str) -> None:
    """The kind of thing is named, whichever it is."""
    damage, kind, _ = DAMAGES[what]
    damage(path)

    report = report_of(path)

    assert kind in {fault.kind for fault in report.faults}


@pytest.mark.parametrize("what", DAMAGES)
def test_reading_what_a_flipped_byte_is_in_fails_closed(path: Path, what: str) -> None:
    """Nothing is returned in its place: it is damaged, or not found where its name says."""
    damage, _, read = DAMAGES[what]
    damage(path)

    with perdure.open(path.as_posix()) as store, pytest.raises((Corrupt, NotFound)):
        read(store.thread("trip-42"))


@pytest.mark.parametrize("what", DAMAGES)
def test_without_the_flip_the_same_reading_succeeds(path: Path, what: str) -> None:
    """Control: it is the flipped byte that makes it fail."""
    with perdure.open(path.as_posix()) as store:
        assert DAMAGES[what][2](store.thread("trip-42"))


COLUMNS = (
    ("log", "pack", "BLOB", "id"),
    ("log", "keys", "BLOB", "id"),
    ("log", "digest", "BLOB", "id"),
    ("log", "root", "BLOB", "id"),
    ("log", "fields", "BLOB", "id"),
    ("log", "changeset", "TEXT", "id"),
    ("log", "digests", "BLOB", "id"),
    ("log", "bodies", "TEXT", "id"),
    ("heads", "move", "TEXT", "commit_row"),
    ("heads", "digest", "BLOB", "commit_row"),
)


@pytest.mark.parametrize(("table", "column", "kind", "key"), COLUMNS)
def test_no_byte_can_be_flipped_unseen(path: Path, table: str, column: str, kind: str, key: str) -> None:
    """Every byte of a commit's row and of a head's: either `verify` finds it, or nobody reads anything else."""
    before = portrait(path)
    row, _ = last_row(path)
    ((data,),) = execute(path, f"SELECT CAST({column} AS BLOB) FROM {table} WHERE {key}=?", (row,))
    assert isinstance(data, bytes)
    unseen: list[int] = []

    for at in range(0, len(data), STRIDE):
        execute(
            path, f"UPDATE {table} SET {column}=CAST(? AS {kind}) WHERE {key}=?", (flipped(data, at), row)
        )
        if report_of(path).ok and portrait(path) != before:
            unseen.append(at)

    assert unseen == []


@pytest.mark.parametrize("column", ["prev", "depth", "turn", "sequence", "at"])
def test_no_number_can_be_changed_unseen(path: Path, column: str) -> None:
    """The index is not hashed, but it follows from what is."""
    before = portrait(path)
    row, _ = last_row(path)

    execute(path, f"UPDATE log SET {column}={column} - 1 WHERE id=?", (row,))

    assert not report_of(path).ok or portrait(path) == before
