"""The least code that stores the same: what is left of Perdure without its checks and its layers.

It makes the rows that the engine makes, in the engine's own tables: messages, values and nodes
with their digests, the tree, the changeset, the commit and the move, values squeezed against the
ones before, keys, and the lock file.  It looks nothing up, checks nothing but the values
themselves, shares with no other writer and cannot be asked.  Its cost shows what could be gained by making Perdure's own code shorter.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import apsw
import msgspec

from bench.ours import Face
from bench.workload import Step, Turn
from perdure.engines.shared_rules import difference
from perdure.engines.sqlite.format.pack import PackForm, cut_digests, deflated
from perdure.history.tree import EMPTY, NodeCache, Tree
from perdure.model import canonical
from perdure.model.commit import NO_PATCH, Act, Changeset, Commit, MoveRecord
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import MessageAppended
from perdure.model.message import encode_message
from perdure.model.patch import Patch, Put
from perdure.store.plumbing.handles import Ids

__all__ = ["Straight"]

_ROW = "INSERT INTO log VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_HEAD = "INSERT OR REPLACE INTO heads VALUES (?,?,?,?,?)"
_SPACE = 9
_json = msgspec.json.Encoder(order="sorted").encode
_pack = msgspec.msgpack.Encoder().encode


class Straight:
    """One connection that writes what one thread of a store would hold."""

    name = "the least that stores the same"

    def __init__(self, directory: Path) -> None:
        self.path = directory / "straight" / "perdure.db"
        self.path.parent.mkdir()
        Face(self.path.parent).close()  # lays the schema
        db = apsw.Connection(str(self.path))
        db.pragma("journal_mode", "wal")
        db.pragma("synchronous", "extra")
        self._db, self._cursor = db, db.cursor()
        self._lock = os.open(self.path.with_name("lock"), os.O_RDWR | os.O_CREAT)
        self._ids = Ids(_now)
        self._cache, self._nodes = NodeCache(), dict[Digest, bytes]()
        self._bases: dict[Digest | None, tuple[int, int, int, bytes]] = {}
        self._row = int(db.execute("SELECT coalesce(max(id), 0) FROM log").get)
        self._root, self._head, self._move = EMPTY, None, None
        self._depth = -1
        self._known: dict[bytes, int] = {}

    def turn(self, turn: Turn) -> None:
        for step in turn.steps:
            self._commit(step, turn.run)

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)

    def _commit(self, step: Step, run: str) -> None:
        self._row += 1
        self._depth += 1
        body = encode_message(step.message)
        said = digest_of(Kind.BODY, body)
        items: list[tuple[Any, ...]] = [(2, PackForm.BODIES, b"", len(body))]
        keys = [bytes.fromhex(said[:10])]
        patch = NO_PATCH if step.key is None else self._put(step.key, step.value, items, keys)
        event = MessageAppended(id=self._ids(), role=step.message.role, body=said, size=len(body))
        changeset = _json(Changeset(reason=step.reason, run_id=run, events=(event,), patch=patch))
        named, at = digest_of(Kind.CHANGESET, changeset), _now()
        commit = Commit(
            parents=() if self._head is None else (self._head,),
            changeset=named,
            root=self._root,
            thread="t",
            depth=self._depth,
            reason=step.reason,
            at=at,
            run=run,
        )
        digest, op_id = digest_of(Kind.COMMIT, _json(commit)), self._ids()
        move = MoveRecord(
            timeline="main",
            version=self._depth + 1,
            act=Act.COMMIT,
            op_id=op_id,
            from_=self._head,
            to=digest,
            previous=self._move,
        )
        moved = _json(move)
        items += (3, PackForm.CHANGESET), (4, PackForm.COMMIT)
        pack = b"\0" + _pack((items, (op_id, bytes.fromhex(named), self._depth, self._move)))
        keys += bytes.fromhex(named[:10]), bytes.fromhex(digest[:10])
        keys += [
            blake2b(each.encode(), digest_size=5).digest() for each in (event.id, op_id, f"{self._depth}")
        ]
        text, digests = cut_digests(changeset.decode())
        plain = _pack(("t",)), text, digests, f"[[0,0,{len(body)},0,0]]", body.decode()
        place = self._row, _SPACE, self._row - 1, self._row - 1, self._depth, 1, self._depth, 1, 7
        root = bytes.fromhex(self._root)
        self._head, self._move = digest, digest_of(Kind.MOVE, moved)
        head = _SPACE, "main", moved.decode(), bytes.fromhex(self._move), self._row
        self._write((*place, b"".join(keys), at, bytes.fromhex(digest), root, *plain, pack, None), head)
        self._known.update(dict.fromkeys(keys, self._row))

    def _put(self, path: str, value: object, items: list[tuple[Any, ...]], keys: list[bytes]) -> Patch:
        """Put a document into the tree; what the row holds of both goes to `items` and `keys`."""
        body = canonical.encode(value)
        digest = digest_of(Kind.VALUE, body)
        draft = Tree(self._read, self._root, cache=self._cache).edit()
        base = draft.put_json(path, len(body), digest)
        self._root, nodes = draft.finish()
        self._store(0, digest, body, base, items)
        keys.append(bytes.fromhex(digest[:10]))
        for node in nodes:
            self._nodes[node.digest] = node.body
            self._store(1, node.digest, node.body, node.base, items)
            keys.append(bytes.fromhex(node.digest[:10]))
        return Patch((Put(path, digest, len(body)),))

    def _store(
        self, kind: int, digest: Digest, body: bytes, base: Digest | None, items: list[tuple[Any, ...]]
    ) -> None:
        row, index, depth, old = self._bases.get(base) or (0, 0, -1, b"")
        if 0 <= depth < 4 and kind == 0:
            items.append((kind, PackForm.DEFLATED, deflated(old, body), 0, row, index))
        elif 0 <= depth < 16 and kind == 1:
            head, tail, middle = difference(old, body)
            items.append((kind, PackForm.DIFFERENCE, middle, 0, row, index, head, tail))
        else:
            depth = -1
            items.append((kind, PackForm.WHOLE, body))
        self._bases[digest] = self._row, len(items) - 1, depth + 1, body

    def _write(self, row: tuple[Any, ...], head: tuple[Any, ...]) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(self._lock, b"writing", 0)
        self._cursor.execute("BEGIN IMMEDIATE")
        self._cursor.execute(_ROW, row)
        self._cursor.execute(_HEAD, head)
        self._cursor.execute("COMMIT")
        os.pwrite(self._lock, b"settled", 0)
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _read(self, digests: Sequence[Digest]) -> Sequence[bytes]:
        return [self._nodes[digest] for digest in digests]


def _now() -> int:
    return time.time_ns() // 1_000
