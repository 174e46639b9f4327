"""Finding entries: one, many, or all that start with a prefix, in the order of their keys.

Everything works alike on a stored map and on a draft (`find_many` excepted, which no draft
needs), and reads only the nodes on the way.  Listing reads children in batches, at first small ones, since many readers stop early.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.history.tree.node import Branch, Leaf, Node
from perdure.history.tree.read import Reader

__all__ = ["count", "find", "find_many", "scan"]

BATCH_MAX = 64


def find(reader: Reader, node: Node, key: bytes) -> bytes | None:
    """The tail of the entry with this key in the map whose top is `node`."""
    offset = 0
    while isinstance(node, Branch):
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
    """Those of `keys` that are in a stored map, with their tails, in no promised order.

    Each level of the tree is one read.
    """
    level = [(node, 0, sorted(set(keys)))]
    while level:
        wanted: list[tuple[Branch, int, int, list[bytes]]] = []
        for node, offset, sought in level:
            if isinstance(node, Leaf):
                yield from _in_leaf(node, offset, sought)
            else:
                yield from _at_end(node, offset, sought)
                wanted += _by_child(node, offset, sought)
        level = _next_level(reader, wanted)


def count(reader: Reader, node: Node, prefix: bytes) -> int:
    """How many keys start with `prefix`, from the counts that branches keep."""
    offset = 0
    while isinstance(node, Branch):
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
    """The full keys under `node` that start with `prefix` and are not below `low`, in order, with their tails.

    `at` is the part of the keys that stands above `node`.
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
        """Whether any key that starts with `stem` can be in the span."""
        below = stem < self._low and not self._low.startswith(stem)
        return not below and (stem.startswith(self._prefix) or self._prefix.startswith(stem))

    def in_leaf(self, at: bytes, leaf: Leaf) -> Iterator[tuple[bytes, bytes]]:
        for key, tail in zip(leaf.keys, leaf.tails(), strict=True):
            if self.holds(at + key):
                yield at + key, tail

    def children(self, reader: Reader, stem: bytes, branch: Branch) -> Iterator[tuple[bytes, Node]]:
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


def _at_end(branch: Branch, offset: int, keys: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    end = offset + len(branch.prefix)
    for key in keys:
        if branch.end is not None and len(key) == end and key.startswith(branch.prefix, offset):
            yield key, branch.end


def _by_child(
    branch: Branch, offset: int, keys: list[bytes]
) -> Iterator[tuple[Branch, int, int, list[bytes]]]:
    """The children that some of `keys` lead to: index, offset and those keys."""
    end = offset + len(branch.prefix)
    groups: dict[int, list[bytes]] = {}
    for key in keys:
        if len(key) > end and key.startswith(branch.prefix, offset) and key[end] in branch.labels:
            groups.setdefault(key[end], []).append(key)
    for label, group in groups.items():
        yield branch, branch.labels.index(label), end + 1, group


def _next_level(
    reader: Reader, wanted: list[tuple[Branch, int, int, list[bytes]]]
) -> list[tuple[Node, int, list[bytes]]]:
    nodes = reader.named([(branch.records[index], offset) for branch, index, offset, _ in wanted])
    return [(node, offset, keys) for node, (_, _, offset, keys) in zip(nodes, wanted, strict=True)]
