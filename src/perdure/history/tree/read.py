"""Reading nodes: from the store in batches, decoded once, and checked against their place.

The store checks that a node's bytes fit its digest.  Here a node is checked against what its
parent says about it, so that a false count or a false weight is `Corrupt` and never used.

Decoded nodes are kept in a `Cache`, one for all maps of a store: a node's digest is its
content, so what is cached can be old but never out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from perdure.errors import Corrupt
from perdure.history.tree.codec import decode, encode
from perdure.history.tree.node import TALLY_AT, Branch, Leaf, Node, tally
from perdure.history.tree.rule import is_leaf
from perdure.model.digest import Digest, Kind, digest_of

__all__ = ["EMPTY", "Cache", "Nodes", "Reader", "decoded"]

Nodes: TypeAlias = Callable[[Sequence[Digest]], Sequence[bytes]]
"""Read node bodies by digest, in order, each checked against its digest; raises `NotFound` or `Corrupt`."""

EMPTY: Digest = digest_of(Kind.NODE, encode(Leaf([], [])))
"""The root of the empty map.  It is known to everybody, so it is never stored and never read."""

_DECODED = 5  # memory of a decoded node, as a multiple of its bytes


class Cache:
    """Decoded nodes by digest, within a bound of memory.

    Two generations: what was not asked for since the last change of generation goes.  No
    lock is needed, as every step is one operation on a dictionary; a race costs a second
    read of the same node.
    """

    __slots__ = ("_half", "_held", "_old", "_young")

    def __init__(self, bytes_max: int = 32 * 1024 * 1024) -> None:
        """Hold about `bytes_max` bytes of memory; 0 holds nothing."""
        self._half = bytes_max // 2
        self._held = 0
        self._young: dict[Digest, tuple[Node, int]] = {}
        self._old: dict[Digest, tuple[Node, int]] = {}

    def get(self, digest: Digest) -> Node | None:
        """The node, if it is here."""
        held = self._young.get(digest)
        if held is None:
            held = self._old.get(digest)
            if held is None:
                return None
            self.put(digest, *held)
        return held[0]

    def put(self, digest: Digest, node: Node, body_bytes: int) -> None:
        """Hold a node whose body has so many bytes; nobody alters it from now on."""
        if self._held >= self._half:
            self._old, self._young, self._held = self._young, {}, 0
        if self._half:
            self._young[digest] = node, body_bytes
            self._held += body_bytes * _DECODED

    def clear(self) -> None:
        """Hold nothing any more, because some of it was forgotten."""
        self._old, self._young, self._held = {}, {}, 0


class Reader:
    """The nodes of one store."""

    __slots__ = ("_nodes", "cache")

    def __init__(self, nodes: Nodes, cache: Cache) -> None:
        """Read by `nodes` what is not in `cache`."""
        self._nodes = nodes
        self.cache = cache

    def root(self, digest: Digest) -> Node:
        """The node at the top of the map with this root; raises `Corrupt` or `NotFound`."""
        if digest == EMPTY:
            return _EMPTY_LEAF
        node = self.cache.get(digest) or self._load_one(digest)
        if node.fit is None or node.fit[0]:
            if is_leaf(*node.weigh(0)) is not isinstance(node, Leaf):
                raise _misfit(digest)
            node.fit = (0, tally(node, 0))
        return node

    def child(self, branch: Branch, label: int, offset: int) -> Node | None:
        """The child for the keys that go on with `label`; None if there is none.  Its own offset is `offset`."""
        if label in branch.opened:
            return branch.opened[label]
        at = branch.labels.find(label)
        if at < 0:
            return None
        record = branch.records[at]
        digest = Digest(record[1:TALLY_AT].hex())
        return _fitting(self.cache.get(digest) or self._load_one(digest), record, offset)

    def children(self, branch: Branch, indexes: Sequence[int], offset: int) -> Sequence[Node]:
        """Some children of one branch, read together; `offset` is theirs."""
        if not branch.opened:
            return self.named([(branch.records[at], offset) for at in indexes])
        closed = [at for at in indexes if branch.labels[at] not in branch.opened]
        read = iter(self.named([(branch.records[at], offset) for at in closed]))
        return [branch.opened.get(branch.labels[at]) or next(read) for at in indexes]

    def named(self, wanted: Sequence[tuple[bytes, int]]) -> Sequence[Node]:
        """The nodes that these records name, each with the offset at which it stands, read together."""
        nodes = self._load([Digest(record[1:TALLY_AT].hex()) for record, _ in wanted])
        return [_fitting(node, *want) for node, want in zip(nodes, wanted, strict=True)]

    def _load(self, digests: Sequence[Digest]) -> Sequence[Node]:
        held = {digest: self.cache.get(digest) for digest in digests}
        missing = [digest for digest, node in held.items() if node is None]
        bodies = self._nodes(missing) if missing else ()
        for digest, body in zip(missing, bodies, strict=True):
            held[digest] = self._decoded(digest, body)
        return [node for digest in digests if (node := held[digest]) is not None]

    def _load_one(self, digest: Digest) -> Node:
        return self._decoded(digest, self._nodes((digest,))[0])

    def _decoded(self, digest: Digest, body: bytes) -> Node:
        node = decoded(digest, body)
        self.cache.put(digest, node, len(body))
        return node


def decoded(digest: Digest, body: bytes) -> Node:
    """The node whose bytes these are; raises `Corrupt`, naming it."""
    try:
        node = decode(body)
    except Corrupt as error:
        raise Corrupt(f"node {digest} is not one: {error}; it was not used. Run `perdure verify`.") from error
    node.digest = digest
    return node


def _fitting(node: Node, record: bytes, offset: int) -> Node:
    """`node`, if it is what its parent's record says it is."""
    fit = node.fit
    if fit is None or fit[0] != offset:
        node.fit = fit = (offset, tally(node, offset))
    if fit[1] != record[TALLY_AT:]:
        raise _misfit(Digest(record[1:TALLY_AT].hex()))
    return node


def _misfit(digest: Digest) -> Corrupt:
    return Corrupt(f"node {digest} is not where the rule puts it; it was not used. Run `perdure verify`.")


_EMPTY_LEAF = Leaf([], [])
_EMPTY_LEAF.digest = EMPTY
