"""Adding rows to the log: how the objects of a write are laid out in columns and packs."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.engines.rules import labels
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
from holdfast.model.event import MessageAppended, ToolCallRequested

__all__ = ["Adding", "Batch", "Committing", "spans_of"]

_LOOK_FROM_BYTES = 4096  # a smaller object is looked for among recent rows only
_KIND_AT = {kind: at for at, kind in enumerate(KINDS)}
_BODY = Kind.BODY
_BODY_AT, _COMMIT_AT, _CHANGESET_AT = _KIND_AT[_BODY], _KIND_AT[Kind.COMMIT], _KIND_AT[Kind.CHANGESET]
_NOWHERE: tuple[int, int] = (0, 0)
_ROW = "INSERT INTO log(id, space, keys, spans, bodies, pack) VALUES (?,?,?,?,?,?)"
_COMMIT_ROW = "INSERT INTO log VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"


class Committing(msgspec.Struct, gc=False):
    """The commit of a row, with what belongs to it."""

    stored: Object
    commit: Commit
    is_exact: bool  # whether our types give the commit's bytes back to the letter
    stored_changeset: Object
    changeset: Changeset
    is_exact_changeset: bool
    parent: Line | None  # where its first parent stands
    line: Line  # where it will stand itself
    is_same_run: bool  # as its first parent
    text: str = ""  # of the changeset, as the row has it

    def pack_changeset(self) -> bytes:
        """What is not in the changeset's text."""
        if not self.is_exact_changeset:
            self.text = self.stored_changeset.body.decode()
            return b""
        self.text, taken = pack_changeset(self.changeset)
        return taken


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

    def row(self, number: int, space: int, batch: Batch, op: Op | None, op_keys: list[bytes]) -> None:
        """Insert one row.  The row that completes a write has its `op`."""
        items, keys, bodies, spans = self._items(number, space, batch)
        committing = batch.committing
        if committing is not None:
            keys += [label_key(name) for name in _labels(committing)]
        keys += op_keys
        values = spans, "".join(bodies) or None, encode_pack(items, op)
        if committing is None:
            self._db.execute(_ROW, (number, space, b"".join(keys), *values))
        else:
            self._insert(space, committing, b"".join(keys), values)
        self._rows.index.add(space, number, keys)

    def _items(
        self, number: int, space: int, batch: Batch
    ) -> tuple[list[tuple[object, ...]], list[bytes], list[str], str | None]:
        items: list[tuple[object, ...]] = []
        keys: list[bytes] = []
        bodies: list[str] = []
        spans: dict[Digest, tuple[int, int]] = {}
        offset = 0
        committing = batch.committing
        recent = self._rows.index.keys_of(space)
        for found in batch.objects:
            key = object_key(found.digest)
            if committing is not None and found is committing.stored and committing.is_exact:
                packed = pack_commit(committing.commit, committing.changeset)
                items.append((_COMMIT_AT, Form.COMMIT, packed))
            elif committing is not None and found is committing.stored_changeset:
                items.append((_CHANGESET_AT, Form.CHANGESET, committing.pack_changeset()))
            elif (
                # The words of a commit stand in its own row, said before or not: that is where SQL looks for them.
                (committing is None or found.kind is not _BODY)
                and (key in recent or len(found.body) >= _LOOK_FROM_BYTES)
                and self._is_there(space, found)
            ):
                continue
            elif found.kind is _BODY and (text := _plain_text(found.body)) is not None:
                size = len(found.body)
                items.append((_BODY_AT, Form.BODIES, b"", size))
                bodies.append(text)
                spans[found.digest] = offset, size
                offset += size
            else:
                items.append(self._bases.item(_KIND_AT[found.kind], space, found, number, len(items)))
            keys.append(key)
        changeset = None if committing is None else committing.changeset
        return items, keys, bodies, spans_of(changeset, spans.get) if spans else None

    def _is_there(self, space: int, found: Object) -> bool:
        """Whether the space has these bytes already; stops hard if it has others under the same digest."""
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
        self, space: int, committing: Committing, keys: bytes, values: tuple[str | None, str | None, bytes]
    ) -> None:
        commit, line, parent = committing.commit, committing.line, committing.parent
        self._known.note_line(space, committing.stored.digest, line)
        self._db.execute(
            _COMMIT_ROW,
            (
                *(line.row, space, None if parent is None else parent.row, line.jump),
                *(line.depth, line.turn, line.sequence, line.events, line.run),
                *(keys, commit.at, line.digest, bytes.fromhex(commit.root), committing.text),
                *values,
            ),
        )


def spans_of(changeset: Changeset | None, span: Callable[[Digest], tuple[int, int] | None]) -> str | None:
    """Where words of a changeset's events stand in the row's bodies: [event, start, size, vendor start, vendor size].

    The words of a message and the arguments of a call, so that stock `sqlite3` can show them.
    """
    found: list[tuple[int, int, int, int, int]] = []
    for at, event in enumerate(() if changeset is None else changeset.events):
        if isinstance(event, MessageAppended) and (said := span(event.body)) is not None:
            vendor = span(event.vendor) if event.vendor is not None else None
            found.append((at, *said, *(vendor or _NOWHERE)))
        elif isinstance(event, ToolCallRequested) and (asked := span(event.args)) is not None:
            found.append((at, *asked, *_NOWHERE))
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
