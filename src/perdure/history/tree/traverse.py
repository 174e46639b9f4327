"""Visits all nodes of a map: to mark them, to copy them, or to check them.

Maps share most of their nodes.  A caller that visits many maps passes `seen`, which is called
once for each node before it is read: True skips the node and everything below it.  A node that
is in two places of one map is visited twice, unless `seen` remembers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from perdure.errors import Corrupt, NotFound
from perdure.history.tree.encoding import DIGEST_BYTES, KEY_BYTES_MAX, TALLY_AT, Leaf, Node, decode, path_of
from perdure.history.tree.read import EMPTY, NodeCache, Nodes, Reader, decoded
from perdure.model.digest import Digest

__all__ = ["NodeFault", "bodies", "check", "reachable", "refs"]

_BATCH = 64


class NodeFault(msgspec.Struct, frozen=True):
    """A node that is missing, damaged, or not as the rule requires."""

    digest: Digest
    why: str


def never(_digest: Digest) -> bool:
    """Return False: no node was seen before."""
    return False


def refs(body: bytes) -> tuple[tuple[Digest, ...], tuple[Digest, ...]]:
    """Return the children and the values that a node names, in order; raises `Corrupt`."""
    node = decode(body)
    if isinstance(node, Leaf):
        return (), tuple(_value_of(item) for item in node.items)
    return _children(node), () if node.end is None else (_value_of(node.end),)


def bodies(
    nodes: Nodes, root: Digest, *, seen: Callable[[Digest], bool] = never
) -> Iterator[tuple[Digest, bytes]]:
    """Yield the nodes of a map with their bytes, parents before children."""
    left = [] if root == EMPTY else [root]
    while left:
        batch = [digest for digest in dict.fromkeys(left[: -_BATCH - 1 : -1]) if not seen(digest)]
        del left[-_BATCH:]
        for digest, body in zip(batch, nodes(batch) if batch else (), strict=True):
            yield digest, body
            left += reversed(_children(decoded(digest, body)))


def reachable(nodes: Nodes, root: Digest, *, seen: Callable[[Digest], bool] = never) -> Iterator[Digest]:
    """Return the digests of a map's nodes, parents before children.  The empty map has none."""
    return (digest for digest, _ in bodies(nodes, root, seen=seen))


def check(nodes: Nodes, root: Digest, *, seen: Callable[[Digest], bool] = never) -> Iterator[NodeFault]:
    """Yield what is wrong with a map: nodes that cannot be read, and any departure from the rule.

    It does not raise for what it finds, and continues with the other nodes.  Nodes that were seen
    count as right.
    """
    if root == EMPTY or seen(root):
        return
    reader = Reader(nodes, NodeCache(0))
    found: list[_NodePlace | NodeFault] = [_attempt(root, lambda: _NodePlace(b"", reader.root(root)))]
    while found:
        item = found.pop()
        if isinstance(item, NodeFault):
            yield item
            continue
        yield from item.faults()
        found += reversed(_below(reader, item, seen))


class _NodePlace(NamedTuple):
    """A node, and the bytes that all its keys start with."""

    at: bytes
    node: Node

    def faults(self) -> Iterator[NodeFault]:
        """Yield the keys that no path can have."""
        node, digest = self.node, self.node.digest or EMPTY
        keys = node.keys if isinstance(node, Leaf) else [node.prefix] if node.end is not None else []
        for key in (self.at + key for key in keys):
            try:
                path_of(key)
            except Corrupt as error:
                yield NodeFault(digest, error.message)
            if len(key) > KEY_BYTES_MAX:
                yield NodeFault(digest, f"the key {key[:60]!r}… is longer than {KEY_BYTES_MAX} bytes")


def _below(reader: Reader, place: _NodePlace, seen: Callable[[Digest], bool]) -> list[_NodePlace | NodeFault]:
    """Return the children of a branch that were not seen, in order."""
    if isinstance(place.node, Leaf):
        return []
    stem = place.at + place.node.prefix
    records = [record for record in place.node.records if not seen(_digest_of(record))]
    try:
        nodes = reader.named([(record, len(stem) + 1) for record in records])
    except (Corrupt, NotFound):
        return [_alone(reader, record, stem + record[:1]) for record in records]
    return [_NodePlace(stem + record[:1], node) for record, node in zip(records, nodes, strict=True)]


def _alone(reader: Reader, record: bytes, at: bytes) -> _NodePlace | NodeFault:
    return _attempt(_digest_of(record), lambda: _NodePlace(at, reader.named([(record, len(at))])[0]))


def _attempt(digest: Digest, read: Callable[[], _NodePlace]) -> _NodePlace | NodeFault:
    try:
        return read()
    except (Corrupt, NotFound) as error:
        return NodeFault(digest, error.message)


def _children(node: Node) -> tuple[Digest, ...]:
    return () if isinstance(node, Leaf) else tuple(_digest_of(record) for record in node.records)


def _digest_of(record: bytes) -> Digest:
    return Digest(record[1:TALLY_AT].hex())


def _value_of(tail: bytes) -> Digest:
    return Digest(tail[-DIGEST_BYTES:].hex())
