"""Reads nodes and finds entries: one, many, or all that start with a prefix, in the order of their keys.

The store checks that a node's bytes fit its digest.  `Reader` checks a node against what its
parent records about it, so that a false count or a false weight is `Corrupt` and never used.
It reads nodes in batches, decodes each once and keeps them in a `NodeCache`, one for all maps of
a store: a node's digest is its content, so a cached node is never out of date.

The functions work alike on a stored map and on a draft (except `find_many`, which no draft
needs), and read only the nodes on the path.  `scan` reads children in batches, at first small
ones, since many readers stop early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from perdure.errors import Corrupt
from perdure.history.tree.encoding import TALLY_AT, BranchNode, Leaf, Node, decode, encode, is_leaf, tally
from perdure.model.digest import Digest, Kind, Object, digest_of

__all__ = ["EMPTY", "NodeCache", "Nodes", "Reader", "decoded", "count", "find", "find_many", "scan"]


Nodes: TypeAlias = Callable[[Sequence[Digest]], Sequence[bytes]]
"""Read node bodies by digest, in order, each checked against its digest; raises `NotFound` or `Corrupt`."""

EMPTY: Digest = digest_of(Kind.NODE, encode(Leaf([], [])))
"""The root of the empty map.  It is a constant, so it is never stored and never read."""

_DECODED = 5  # memory of a decoded node, as a multiple of its bytes
_LIST_ENDS_MAX, _LIST_END_BYTES_MAX = 1_024, 16 * 1024


class NodeCache:
    """Decoded nodes by digest, within a bound of memory.

    Two generations: a node that was not read since the last change of generation is dropped.  No
    lock is needed, as every step is one operation on a dictionary; a race costs a second
    read of the same node.
    """

    __slots__ = ("_half", "_held", "_old", "_young", "list_ends")

    def __init__(self, bytes_max: int = 32 * 1024 * 1024) -> None:
        """Use about `bytes_max` bytes of memory; with 0 nothing is cached."""
        self._half = bytes_max // 2
        self._held = 0
        self._young: dict[Digest, tuple[Node, int]] = {}
        self._old: dict[Digest, tuple[Node, int]] = {}
        # The last node of each level and the last piece of lists that were made longer: the next append reads them again.
        self.list_ends: dict[Digest, Object] = {}

    def get(self, digest: Digest) -> Node | None:
        """Return the node, if it is here."""
        held = self._young.get(digest)
        if held is None:
            held = self._old.get(digest)
            if held is None:
                return None
            self.put(digest, *held)
        return held[0]

    def put(self, digest: Digest, node: Node, body_bytes: int) -> None:
        """Cache a node whose body has so many bytes; it must not be altered afterwards."""
        if self._held >= self._half:
            self._old, self._young, self._held = self._young, {}, 0
        if self._half:
            self._young[digest] = node, body_bytes
            self._held += body_bytes * _DECODED

    def put_list_ends(self, ends: Sequence[Object]) -> None:
        """Cache objects at the end of a list; a few hundred lists have room."""
        if len(self.list_ends) >= _LIST_ENDS_MAX:
            self.list_ends = {}
        if self._half:
            self.list_ends.update(
                {each.digest: each for each in ends if len(each.body) <= _LIST_END_BYTES_MAX}
            )

    def clear(self) -> None:
        """Drop all nodes, because some of them were forgotten."""
        self._old, self._young, self._held = {}, {}, 0
        self.list_ends = {}


class Reader:
    """The nodes of one store."""

    __slots__ = ("_nodes", "cache")

    def __init__(self, nodes: Nodes, cache: NodeCache) -> None:
        """Read by `nodes` what is not in `cache`."""
        self._nodes = nodes
        self.cache = cache

    def root(self, digest: Digest) -> Node:
        """Return the node at the top of the map with this root; raises `Corrupt` or `NotFound`."""
        if digest == EMPTY:
            return _EMPTY_LEAF
        node = self.cache.get(digest) or self._load_one(digest)
        if node.fit is None or node.fit[0]:
            if is_leaf(*node.weigh(0)) is not isinstance(node, Leaf):
                raise _misfit(digest)
            node.fit = (0, tally(node, 0))
        return node

    def child(self, branch: BranchNode, label: int, offset: int) -> Node | None:
        """Return the child for the keys that continue with `label`; None if there is none.  Its own offset is `offset`."""
        if label in branch.opened:
            return branch.opened[label]
        at = branch.labels.find(label)
        return None if at < 0 else self.fitting(branch.records[at], offset)

    def fitting(self, record: bytes, offset: int) -> Node:
        """Return the node that a record names; raises `Corrupt` if it does not fit the record at that offset."""
        digest = Digest(record[1:TALLY_AT].hex())
        node = self.cache.get(digest) or self._load_one(digest)
        fit = node.fit
        if fit is not None and fit[0] == offset and fit[1] == record[TALLY_AT:]:
            return node
        return _fitting(node, record, offset)

    def children(self, branch: BranchNode, indexes: Sequence[int], offset: int) -> Sequence[Node]:
        """Return some children of one branch, read together; `offset` is theirs."""
        if not branch.opened:
            return self.named([(branch.records[at], offset) for at in indexes])
        closed = [at for at in indexes if branch.labels[at] not in branch.opened]
        read = iter(self.named([(branch.records[at], offset) for at in closed]))
        return [branch.opened.get(branch.labels[at]) or next(read) for at in indexes]

    def named(self, wanted: Sequence[tuple[bytes, int]]) -> Sequence[Node]:
        """Return the nodes that these records name, each at its offset, read together."""
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
    """Return the node whose bytes these are; raises `Corrupt`, naming it."""
    try:
        node = decode(body)
    except Corrupt as error:
        raise Corrupt(
            f"node {digest} cannot be read: {error}; it was not used.",
            code="node_unreadable",
            advice="Run `perdure verify`.",
            node=digest,
        ) from error
    node.digest = digest
    return node


def _fitting(node: Node, record: bytes, offset: int) -> Node:
    """Return `node`, if it fits its parent's record; raises `Corrupt`."""
    fit = node.fit
    if fit is None or fit[0] != offset:
        node.fit = fit = (offset, tally(node, offset))
    if fit[1] != record[TALLY_AT:]:
        raise _misfit(Digest(record[1:TALLY_AT].hex()))
    return node


def _misfit(digest: Digest) -> Corrupt:
    return Corrupt(
        f"node {digest} is not where the rule puts it; it was not used.",
        code="node_misplaced",
        advice="Run `perdure verify`.",
        node=digest,
    )


_EMPTY_LEAF = Leaf([], [])
_EMPTY_LEAF.digest = EMPTY


BATCH_MAX = 64


def find(reader: Reader, node: Node, key: bytes) -> bytes | None:
    """Return the tail of the entry with this key in the map whose top is `node`."""
    offset = 0
    while isinstance(node, BranchNode):
        if not key.startswith(node.prefix, offset):
            return None
        offset += len(node.prefix)
        if offset == len(key):
            return node.end
        child = reader.child(node, key[offset], offset + 1)
        if child is None:
            return None
        node, offset = child, offset + 1
    return node.tail(key[offset:])


def find_many(reader: Reader, node: Node, keys: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield those of `keys` that are in a stored map, with their tails, in no promised order.

    Each level of the tree is one read.
    """
    level = [(node, 0, sorted(set(keys)))]
    while level:
        wanted: list[tuple[BranchNode, int, int, list[bytes]]] = []
        for node, offset, sought in level:
            if isinstance(node, Leaf):
                yield from _in_leaf(node, offset, sought)
            else:
                yield from _at_end(node, offset, sought)
                wanted += _by_child(node, offset, sought)
        level = _next_level(reader, wanted)


def count(reader: Reader, node: Node, prefix: bytes) -> int:
    """Return how many keys start with `prefix`, from the counts that branches keep."""
    offset = 0
    while isinstance(node, BranchNode):
        if node.prefix.startswith(prefix[offset:]):
            return node.count
        if not prefix.startswith(node.prefix, offset):
            return 0
        offset += len(node.prefix)
        child = reader.child(node, prefix[offset], offset + 1)
        if child is None:
            return 0
        node, offset = child, offset + 1
    return sum(key.startswith(prefix[offset:]) for key in node.keys)


def scan(
    reader: Reader, node: Node, *, at: bytes = b"", prefix: bytes = b"", low: bytes = b""
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the full keys under `node` that start with `prefix` and are not below `low`, in order, with their tails.

    `at` is the part of the keys that is above `node`.
    """
    span = _Span(prefix, low)
    pending: list[Iterator[tuple[bytes, Node]]] = [iter(((at, node),))]
    while pending:
        step = next(pending[-1], None)
        if step is None:
            pending.pop()
        elif isinstance(step[1], Leaf):
            yield from span.in_leaf(step[0], step[1])
        else:
            stem = step[0] + step[1].prefix
            if step[1].end is not None and span.holds(stem):
                yield stem, step[1].end
            pending.append(span.children(reader, stem, step[1]))


class _Span:
    """A stretch of keys: those that start with a prefix and are not below a bound."""

    def __init__(self, prefix: bytes, low: bytes) -> None:
        self._prefix = prefix
        self._low = low
        self._batch = 2

    def holds(self, key: bytes) -> bool:
        return key >= self._low and key.startswith(self._prefix)

    def meets(self, stem: bytes) -> bool:
        """True if any key that starts with `stem` can be in the span."""
        below = stem < self._low and not self._low.startswith(stem)
        return not below and (stem.startswith(self._prefix) or self._prefix.startswith(stem))

    def in_leaf(self, at: bytes, leaf: Leaf) -> Iterator[tuple[bytes, bytes]]:
        for key, tail in zip(leaf.keys, leaf.tails(), strict=True):
            if self.holds(at + key):
                yield at + key, tail

    def children(self, reader: Reader, stem: bytes, branch: BranchNode) -> Iterator[tuple[bytes, Node]]:
        stems = [stem + bytes((label,)) for label in branch.labels]
        left = [index for index, stem in enumerate(stems) if self.meets(stem)]
        while left:
            batch, left = left[: self._batch], left[self._batch :]
            nodes = reader.children(branch, batch, len(stem) + 1)
            yield from zip((stems[index] for index in batch), nodes, strict=True)
            self._batch = min(self._batch * 2, BATCH_MAX)


def _in_leaf(leaf: Leaf, offset: int, keys: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    for key in keys:
        tail = leaf.tail(key[offset:])
        if tail is not None:
            yield key, tail


def _at_end(branch: BranchNode, offset: int, keys: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    end = offset + len(branch.prefix)
    for key in keys:
        if branch.end is not None and len(key) == end and key.startswith(branch.prefix, offset):
            yield key, branch.end


def _by_child(
    branch: BranchNode, offset: int, keys: list[bytes]
) -> Iterator[tuple[BranchNode, int, int, list[bytes]]]:
    """Yield the children that some of `keys` lead to: index, offset and those keys."""
    end = offset + len(branch.prefix)
    groups: dict[int, list[bytes]] = {}
    for key in keys:
        if len(key) > end and key.startswith(branch.prefix, offset) and key[end] in branch.labels:
            groups.setdefault(key[end], []).append(key)
    for label, group in groups.items():
        yield branch, branch.labels.index(label), end + 1, group


def _next_level(
    reader: Reader, wanted: list[tuple[BranchNode, int, int, list[bytes]]]
) -> list[tuple[Node, int, list[bytes]]]:
    nodes = reader.named([(branch.records[index], offset) for branch, index, offset, _ in wanted])
    return [(node, offset, keys) for node, (_, _, offset, keys) in zip(nodes, wanted, strict=True)]
