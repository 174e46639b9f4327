"""Adding rows to the log: how the objects of a write are laid out in columns and packs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b

import msgspec

from holdfast.engines.contract import Place
from holdfast.engines.rules import labels, placed
from holdfast.engines.sqlite.bases import Bases
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.keys import label_key, object_key
from holdfast.engines.sqlite.known import Known, Line
from holdfast.engines.sqlite.pack import KINDS, Form, Op, encode_pack
from holdfast.engines.sqlite.records import pack_changeset, pack_commit
from holdfast.engines.sqlite.rows import Rows
from holdfast.errors import Corrupt, Forgotten
from holdfast.model.changeset import Changeset
from holdfast.model.commit import Commit
from holdfast.model.digest import Digest, Kind, Object, digest_of
from holdfast.model.event import MessageAppended

__all__ = ["Adding", "Batch", "Committing", "place_of", "spans_of"]

_LOOK_FROM_BYTES = 4096  # a smaller object is looked for among recent rows only
_KIND_AT = {kind: at for at, kind in enumerate(KINDS)}
_BODY, _COMMIT, _CHANGESET = Kind.BODY, Kind.COMMIT, Kind.CHANGESET
_NOWHERE: tuple[int, int] = (0, 0)


class Committing(msgspec.Struct):
    """The commit of a row, with what belongs to it."""

    stored: Object
    commit: Commit
    is_exact: bool  # whether our types give the commit's bytes back to the letter
    stored_changeset: Object
    changeset: Changeset
    is_exact_changeset: bool
    place: Place
    is_same_run: bool  # as its first parent
    text: str = ""  # of the changeset, as the row has it

    def pack_changeset(self) -> bytes:
        """What is not in the changeset's text."""
        if not self.is_exact_changeset:
            self.text = self.stored_changeset.body.decode()
            return b""
        self.text, taken = pack_changeset(self.changeset)
        return taken

    def line(self, row: int, jump: int | None = None) -> Line:
        """What its row says about its place."""
        commit, place = self.commit, self.place
        run = None if commit.run is None else _run_key(commit.run)
        digest = bytes.fromhex(self.stored.digest)
        return Line(
            row, digest, jump, place.depth, place.turn, place.sequence, len(self.changeset.events), run
        )


class Batch:
    """The objects of one row, and the commit among them, if any."""

    __slots__ = ("committing", "objects")

    def __init__(self, objects: list[Object] | None = None) -> None:
        """Hold these objects and no commit."""
        self.objects = objects if objects is not None else []
        self.committing: Committing | None = None


class Adding:
    """Adds the rows of one write to one space."""

    def __init__(self, connection: Database, rows: Rows, bases: Bases, known: Known) -> None:
        """Add behind the last row."""
        self._db = connection
        self._rows = rows
        self._bases = bases
        self._known = known

    def row(self, space: int, batch: Batch, op: Op | None, op_keys: list[bytes]) -> int:
        """Insert one row; its number.  The row that completes a write has its `op`."""
        number = self._known.next_row()
        items, keys, bodies, spans = self._items(space, batch, number)
        committing = batch.committing
        if committing is not None:
            keys += [label_key(name) for name in _labels(committing)]
        keys += op_keys
        values = b"".join(keys), spans, "".join(bodies) or None, encode_pack(items, op)
        if committing is None:
            sql = "INSERT INTO log(id, space, keys, spans, bodies, pack) VALUES (?,?,?,?,?,?)"
            self._db.execute(sql, (number, space, *values))
        else:
            self._insert(number, space, committing, *values)
        self._rows.index.add(space, number, keys)
        return number

    def _items(
        self, space: int, batch: Batch, number: int
    ) -> tuple[list[tuple[object, ...]], list[bytes], list[str], str | None]:
        items: list[tuple[object, ...]] = []
        keys: list[bytes] = []
        bodies: list[str] = []
        spans: dict[Digest, tuple[int, int]] = {}
        offset = 0
        committing = batch.committing
        for found in batch.objects:
            kind, key = found.kind, object_key(found.digest)
            if committing is not None and found is committing.stored and committing.is_exact:
                packed = pack_commit(committing.commit, committing.changeset)
                items.append((_KIND_AT[_COMMIT], Form.COMMIT, packed))
            elif committing is not None and found is committing.stored_changeset:
                items.append((_KIND_AT[_CHANGESET], Form.CHANGESET, committing.pack_changeset()))
            elif self._is_there(space, found, key):
                continue
            elif kind is _BODY and (text := _plain_text(found.body)) is not None:
                size = len(found.body)
                items.append((_KIND_AT[kind], Form.BODIES, b"", size))
                bodies.append(text)
                spans[found.digest] = offset, size
                offset += size
            else:
                items.append(self._bases.item(_KIND_AT[kind], space, found, number, len(items)))
            keys.append(key)
        changeset = None if committing is None else committing.changeset
        return items, keys, bodies, spans_of(changeset, spans.get) if spans else None

    def _is_there(self, space: int, found: Object, key: bytes) -> bool:
        """Whether the space has these bytes already; stops hard if it has others under the same digest."""
        recent = self._rows.index.recent(space, key)
        if not recent and len(found.body) < _LOOK_FROM_BYTES:
            return False
        there = self._rows.find(self._db, space, found.digest)
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
        space: int,
        committing: Committing,
        keys: bytes,
        spans: str | None,
        bodies: str | None,
        pack: bytes,
    ) -> None:
        commit = committing.commit
        parent = self._known.line(space, commit.parents[0]) if commit.parents else None
        line = committing.line(number, self._jump(parent))
        self._known.note_line(space, committing.stored.digest, line)
        self._db.execute(
            "INSERT INTO log VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                *(number, space, None if parent is None else parent.row, line.jump),
                *(line.depth, line.turn, line.sequence, line.events, line.run),
                *(keys, commit.at, line.digest, bytes.fromhex(commit.root)),
                *(committing.text, spans, bodies, pack),
            ),
        )

    def _jump(self, parent: Line | None) -> int | None:
        """The far ancestor: where two equal jumps would end, or else the parent."""
        if parent is None:
            return None
        first = None if parent.jump is None else self._known.ancestor(parent.jump)
        if first is None or first[1] is None:
            return parent.row
        second = self._known.ancestor(first[1])
        if second is not None and parent.depth - first[0] == first[0] - second[0]:
            return first[1]
        return parent.row


def place_of(commit: Commit, parent: Line | None) -> tuple[Place, bool]:
    """Where a commit stands, and whether it belongs to the run of its first parent."""
    if parent is None:
        return placed(commit, None, 0), False
    same = commit.run is not None and _run_key(commit.run) == parent.run
    before = Place(parent.depth, parent.turn, parent.sequence), commit.run if same else None
    return placed(commit, before, parent.events), same


def spans_of(changeset: Changeset | None, span: Callable[[Digest], tuple[int, int] | None]) -> str | None:
    """Where the messages of a changeset stand in the row's bodies: [event, start, size, vendor start, vendor size]."""
    found: list[tuple[int, int, int, int, int]] = []
    for at, event in enumerate(() if changeset is None else changeset.events):
        if isinstance(event, MessageAppended) and (said := span(event.body)) is not None:
            vendor = span(event.vendor) if event.vendor is not None else None
            found.append((at, *said, *(vendor or _NOWHERE)))
    return msgspec.json.encode(found).decode() if found else None


def _labels(committing: Committing) -> set[str]:
    commit = committing.commit
    return labels(commit, committing.changeset, commit.run if committing.is_same_run else None)


def _plain_text(body: bytes) -> str | None:
    """The text of a body that can stand in a text column, so that stock `sqlite3` reads it."""
    if b"\0" in body:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


@lru_cache(maxsize=256)
def _run_key(run: str) -> int:
    return int.from_bytes(blake2b(run.encode("utf-8", "surrogatepass"), digest_size=6).digest(), "big")
