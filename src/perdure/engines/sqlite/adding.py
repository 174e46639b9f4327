"""Adding rows to the log: what was prepared gets its numbers and goes in."""

from __future__ import annotations

import msgspec

from perdure.engines.sqlite.bases import Bases
from perdure.engines.sqlite.database import Cursor, Database
from perdure.engines.sqlite.keys import label_keys, object_key
from perdure.engines.sqlite.known import Known, Line
from perdure.engines.sqlite.pack import KINDS, Op, encode_pack
from perdure.engines.sqlite.preparing import Batch, Committing, lay
from perdure.engines.sqlite.rows import Rows
from perdure.errors import Corrupt, Forgotten
from perdure.model.digest import Kind, Object, digest_of

__all__ = ["Adding", "Stand"]

_LOOK_FROM_BYTES = 4_096  # a smaller object is looked for among recent rows only
_ROW = "INSERT INTO log(id, space, keys, bodies, pack) VALUES (?,?,?,?,?)"
_COMMIT_ROW = "INSERT INTO log VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_OF_A_COMMIT = (Kind.BODY, Kind.CHECKPOINT, Kind.CHANGESET, Kind.COMMIT)


class Stand(msgspec.Struct, frozen=True, gc=False):
    """Where the commit of a row will stand."""

    line: Line
    parent: int | None  # the row of its first parent
    is_same_run: bool  # as its first parent


class Adding:
    """Adds the rows of one write to one space."""

    def __init__(self, connection: Database, cursor: Cursor, rows: Rows, bases: Bases, known: Known) -> None:
        """Add behind the last row."""
        self._db = connection
        self._cursor = cursor
        self._rows = rows
        self._bases = bases
        self._known = known

    def row(
        self,
        number: int,
        space: int,
        batch: Batch,
        stand: Stand | None,
        timeline: str | None,
        op: Op | None,
        op_keys: list[bytes],
    ) -> None:
        """Insert one row; one with a commit has its `stand`, and its `timeline` unless that is `main`.

        The row that completes a write has its `op`.
        """
        batch = self._without_known(space, batch)
        for found, index, depth in batch.bases:
            self._bases.note(space, found, number, index, depth)
        committing, keys = batch.committing, batch.keys
        if committing is not None and stand is not None and not stand.is_same_run:
            run = committing.commit.run
            keys = keys if run is None else [*keys, *label_keys(run)]
        keys = keys + op_keys
        values = b"".join(keys), "".join(batch.bodies) or None, encode_pack(batch.items, op)
        if committing is None or stand is None:
            self._cursor.execute(_ROW, (number, space, *values))
        else:
            self._insert(space, committing, stand, values, timeline)
        self._rows.index.add(space, number, keys)

    def _without_known(self, space: int, batch: Batch) -> Batch:
        """The row without objects that the space has already, which is seldom so."""
        recent = self._rows.index.keys_of(space)
        found = [each for each in batch.objects if len(each.body) >= _LOOK_FROM_BYTES]
        if not found and recent.keys().isdisjoint(batch.keys):
            return batch
        # The words of a commit stand in its own row, said before or not: that is where SQL looks for them.
        stays = () if batch.committing is None else _OF_A_COMMIT
        left = [each for each in batch.objects if each.kind in stays or not self._is_there(space, each)]
        return batch if len(left) == len(batch.objects) else lay(left, space, self._bases)

    def _is_there(self, space: int, found: Object) -> bool:
        """Whether the space has these bytes already; stops hard if it has others under the same digest."""
        if len(found.body) < _LOOK_FROM_BYTES and not self._rows.index.recent(
            space, object_key(found.digest)
        ):
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
        space: int,
        committing: Committing,
        stand: Stand,
        values: tuple[bytes, str | None, bytes],
        timeline: str | None,
    ) -> None:
        commit, line = committing.commit, stand.line
        keys, bodies, pack = values
        self._known.note_line(space, committing.digest, line)
        self._cursor.execute(
            _COMMIT_ROW,
            (
                line.row,
                space,
                stand.parent,
                line.jump,
                line.depth,
                line.turn,
                line.sequence,
                line.events,
                line.run,
                keys,
                commit.at,
                line.digest,
                bytes.fromhex(commit.root),
                committing.text,
                committing.spans,
                bodies,
                pack,
                timeline,
            ),
        )
