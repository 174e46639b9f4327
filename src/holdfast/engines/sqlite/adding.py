"""Adding rows to the log: how the objects of a write are laid out in columns and packs."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import msgspec

from holdfast.engines.contract import Place
from holdfast.engines.rules import labels, placed
from holdfast.engines.sqlite.bases import Bases
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.keys import joined_keys, label_key, object_key, op_key, version_key
from holdfast.engines.sqlite.pack import KINDS, Form, Op, encode_pack
from holdfast.engines.sqlite.records import long, pack_commit, pack_move
from holdfast.engines.sqlite.rows import Rows
from holdfast.errors import Corrupt, Forgotten
from holdfast.model.changeset import Changeset
from holdfast.model.commit import Commit, MoveRecord
from holdfast.model.digest import Digest, Kind, Object, digest_of
from holdfast.model.event import MessageAppended

__all__ = ["Adding", "Group", "Line", "spans_of"]

_LOOK_FROM_BYTES = 4096  # a smaller object is looked for among recent rows only
_KIND_AT = {kind: at for at, kind in enumerate(KINDS)}
_BODY, _COMMIT, _CHANGESET = Kind.BODY, Kind.COMMIT, Kind.CHANGESET
_NOWHERE: tuple[int, int] = (0, 0)


class Line(msgspec.Struct, frozen=True):
    """What a commit's row says about its place on the line of first parents."""

    row: int
    digest: bytes
    jump: int | None
    depth: int
    turn: int
    sequence: int
    events: int
    run: int | None


class Group:
    """The objects of one row, and the commit among them, if any."""

    __slots__ = ("changeset", "changeset_text", "commit", "digest", "is_exact", "objects", "parent")

    def __init__(self, objects: list[Object] | None = None) -> None:
        """Hold these objects and no commit."""
        self.objects = objects if objects is not None else []
        self.digest: Digest | None = None
        self.commit: Commit | None = None
        self.is_exact = True  # whether our types give the commit's bytes back to the letter
        self.changeset: Changeset | None = None
        self.changeset_text: str | None = None
        self.parent: Line | None = None


class Adding:
    """Adds the rows of one write."""

    def __init__(self, connection: Database, rows: Rows, bases: Bases, space: int) -> None:
        """Add behind the last row."""
        self._db = connection
        self._rows = rows
        self._bases = bases
        self._space = space
        self._lines: dict[Digest, Line] = {}
        self._next = int(connection.execute("SELECT coalesce(max(id), 0) + 1 FROM log").get)
        self.commits: dict[Digest, int] = {}  # rows of the commits added

    def row(self, group: Group, op: Op | None, moves: tuple[MoveRecord, ...]) -> tuple[int, int, list[int]]:
        """Insert one row; its number, space and keys."""
        number, self._next = self._next, self._next + 1
        parent = group.parent
        if parent is None and group.commit is not None and group.commit.parents:
            parent = self._lines[group.commit.parents[0]]
        items, keys, bodies, spans = self._items(group, number)
        if group.commit is not None and group.changeset is not None:
            same = (
                parent is not None
                and group.commit.run is not None
                and _run_key(group.commit.run) == parent.run
            )
            keys += [
                label_key(name)
                for name in labels(group.commit, group.changeset, group.commit.run if same else None)
            ]
        if op is not None:
            keys.append(op_key(long(op.op_id)))
            keys += [version_key(move.timeline, move.version) for move in moves]
            op = _with_moves(op, moves, group, parent)
        self._insert(number, group, parent, joined_keys(keys), spans, "".join(bodies), encode_pack(items, op))
        return number, self._space, keys

    def _items(
        self, group: Group, number: int
    ) -> tuple[list[tuple[object, ...]], list[int], list[str], str | None]:
        items: list[tuple[object, ...]] = []
        keys: list[int] = []
        bodies: list[str] = []
        spans: dict[Digest, tuple[int, int]] = {}
        offset = 0
        for found in group.objects:
            kind, key = found.kind, object_key(found.digest)
            if (
                kind is _COMMIT
                and found.digest == group.digest
                and group.is_exact
                and group.commit is not None
            ):
                items.append((_KIND_AT[kind], Form.COMMIT, pack_commit(group.commit)))
            elif kind is _CHANGESET and group.commit is not None and found.digest == group.commit.changeset:
                items.append((_KIND_AT[kind], Form.CHANGESET))
            elif self._is_there(found, key):
                continue
            elif kind is _BODY and (text := _plain_text(found.body)) is not None:
                size = len(found.body)
                items.append((_KIND_AT[kind], Form.BODIES, b"", size))
                bodies.append(text)
                spans[found.digest] = offset, size
                offset += size
            else:
                items.append(self._bases.item(_KIND_AT[kind], self._space, found, number, len(items)))
            keys.append(key)
        return items, keys, bodies, spans_of(group.changeset, spans.get) if spans else None

    def _is_there(self, found: Object, key: int) -> bool:
        """Whether the space has these bytes already; stops hard if it has others under the same digest."""
        recent = self._rows.index.recent(self._space, key)
        if not recent and len(found.body) < _LOOK_FROM_BYTES:
            return False
        there = self._rows.find(self._db, self._space, found.digest)
        if there is None:
            return False
        row, at = there
        try:
            body = self._rows.body(self._db, row, at)
        except (Corrupt, Forgotten):
            return False  # what is damaged or was forgotten is supplied again
        if digest_of(KINDS[row.pack.items[at].kind], body) != found.digest:
            return False  # only the key was equal, or the bytes are damaged
        if body != found.body:
            raise Corrupt(f"two different objects have the digest {found.digest}; nothing was written.")
        return True

    def _insert(
        self,
        number: int,
        group: Group,
        parent: Line | None,
        keys: bytes,
        spans: str | None,
        bodies: str,
        pack: bytes,
    ) -> None:
        commit, changeset = group.commit, group.changeset
        if commit is None or changeset is None or group.digest is None:
            sql = "INSERT INTO log(id, space, keys, bodies, pack) VALUES (?,?,?,?,?)"
            self._db.execute(sql, (number, self._space, keys, bodies or None, pack))
            return
        place = _place(commit, parent)
        line = Line(
            number,
            bytes.fromhex(group.digest),
            self._jump(parent),
            place.depth,
            place.turn,
            place.sequence,
            len(changeset.events),
            None if commit.run is None else _run_key(commit.run),
        )
        self._lines[group.digest] = line
        self.commits[group.digest] = number
        self._db.execute(
            "INSERT INTO log VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                *(number, self._space, None if parent is None else parent.row, line.jump),
                *(line.depth, line.turn, line.sequence, line.events, line.run),
                *(keys, commit.at, line.digest, bytes.fromhex(commit.root)),
                *(group.changeset_text, spans, bodies or None, pack),
            ),
        )

    def _jump(self, parent: Line | None) -> int | None:
        """The far ancestor: where two equal jumps would end, or else the parent."""
        if parent is None:
            return None
        first = self._short(parent.jump)
        second = self._short(first[1]) if first is not None else None
        if first is not None and second is not None and parent.depth - first[0] == first[0] - second[0]:
            return first[1]
        return parent.row

    def _short(self, row: int | None) -> tuple[int, int | None] | None:
        if row is None:
            return None
        values = self._db.execute("SELECT depth, jump FROM log WHERE id=?", (row,)).fetchone()
        return None if values is None else (values[0], values[1])


def spans_of(changeset: Changeset | None, span: Callable[[Digest], tuple[int, int] | None]) -> str | None:
    """Where the messages of a changeset stand in the row's bodies: [event, start, size, vendor start, vendor size]."""
    found: list[tuple[int, int, int, int, int]] = []
    for at, event in enumerate(() if changeset is None else changeset.events):
        if isinstance(event, MessageAppended) and (said := span(event.body)) is not None:
            vendor = span(event.vendor) if event.vendor is not None else None
            found.append((at, *said, *(vendor or _NOWHERE)))
    return msgspec.json.encode(found).decode() if found else None


def _place(commit: Commit, parent: Line | None) -> Place:
    if parent is None:
        return placed(commit, None, 0)
    same = commit.run is not None and _run_key(commit.run) == parent.run
    before = Place(parent.depth, parent.turn, parent.sequence), commit.run if same else None
    return placed(commit, before, parent.events)


def _with_moves(op: Op, moves: tuple[MoveRecord, ...], group: Group, parent: Line | None) -> Op:
    if not moves:
        return op
    digest = None if group.digest is None else bytes.fromhex(group.digest)
    above = None if parent is None else parent.digest
    stored = tuple(pack_move(move, digest, above) for move in moves)
    # A move names the write itself, so the op_id need not be kept twice.
    return Op(b"", op.intent, stored, op.revisions, op.position, op.chain)


def _plain_text(body: bytes) -> str | None:
    """The text of a body that can stand in a text column, so that stock `sqlite3` reads it."""
    if b"\0" in body:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _run_key(run: str) -> int:
    return int.from_bytes(blake2b(run.encode("utf-8", "surrogatepass"), digest_size=6).digest(), "big")
