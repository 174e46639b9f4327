"""Nodes: the pieces a map is kept in.

A node holds its entries and children as ready-made bytes beside the sorted list that finds
them, so that changing one of them encodes nothing but that one again.  A node that came from
storage is shared and never altered; a draft alters its own copies.

A node's keys lack what stands above it in the tree; `offset` is how many bytes that is.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import ClassVar, TypeAlias

from perdure.history.tree.entry import DIGEST_BYTES
from perdure.history.tree.rule import is_leaf
from perdure.history.tree.varint import read_varint, varint
from perdure.model.digest import Digest

__all__ = ["TALLY_AT", "Branch", "Leaf", "Node", "make_item", "make_record", "tally"]

TALLY_AT = 1 + DIGEST_BYTES  # in a record


class Leaf:
    """A few entries, in the order of their keys."""

    __slots__ = ("base", "digest", "fit", "items", "keys")
    height: ClassVar[int] = 0

    def __init__(self, keys: list[bytes], items: list[bytes]) -> None:
        """Hold entries by what is left of their keys; an item is an entry's bytes, key included."""
        self.keys = keys
        self.items = items
        self.digest: Digest | None = None  # None: not stored
        self.base: Digest | None = None  # the stored node that this one began as
        self.fit: tuple[int, bytes] | None = None  # an offset, and the tally there; None: not known

    def weigh(self, offset: int) -> tuple[int, int]:
        """The number of entries, and the bytes of their full keys."""
        count = len(self.keys)
        return count, sum(map(len, self.keys)) + count * offset

    def tail(self, suffix: bytes) -> bytes | None:
        """The tail of the entry with this key."""
        at = bisect_left(self.keys, suffix)
        if at == len(self.keys) or self.keys[at] != suffix:
            return None
        return _tail_of(self.items[at], suffix)

    def tails(self) -> list[bytes]:
        """The tails of all entries, in order."""
        return [_tail_of(item, key) for item, key in zip(self.items, self.keys, strict=True)]

    def copy(self) -> Leaf:
        """The same entries, for a draft to alter."""
        mine = Leaf(self.keys.copy(), self.items.copy())
        mine.base, mine.fit = self.digest, self.fit
        return mine


class Branch:
    """A fork in the keys: what they share, and a child for each byte that comes next."""

    __slots__ = (
        "base",
        "below",
        "count",
        "digest",
        "end",
        "fit",
        "height",
        "labels",
        "opened",
        "prefix",
        "records",
    )

    def __init__(self, prefix: bytes, end: bytes | None = None) -> None:
        """Begin without children; `end` is the tail of the entry whose key ends with `prefix`."""
        self.prefix = prefix
        self.end = end
        self.labels = b""
        self.records: list[bytes] = []
        self.opened: dict[int, Node] = {}  # children under edit, by label; their records are out of date
        self.count = 0 if end is None else 1
        self.below = 0  # bytes of the full keys of all children
        self.height = 1  # branches on the longest path from here, this one included
        self.digest: Digest | None = None
        self.base: Digest | None = None
        self.fit: tuple[int, bytes] | None = None

    def weigh(self, offset: int) -> tuple[int, int]:
        """The number of entries, and the bytes of their full keys."""
        return self.count, self.below + (0 if self.end is None else offset + len(self.prefix))

    def tail(self, rest: bytes) -> bytes | None:
        """The tail of the entry whose key ends here, where `rest` is what is left of it; None if it goes on."""
        return self.end if rest == self.prefix else None

    def attach(self, label: int, child: Node, offset: int) -> None:
        """Add a child under edit, with everything it holds; `offset` is this branch's own."""
        at = bisect_left(self.labels, label)
        self.labels = self.labels[:at] + bytes((label,)) + self.labels[at:]
        self.records.insert(at, b"")
        self.opened[label] = child
        self.add(*child.weigh(offset + len(self.prefix) + 1))
        self.height = max(self.height, child.height + 1)

    def add(self, count: int, key_bytes: int) -> None:
        """Count entries that came, or with negative numbers went, below."""
        self.count += count
        self.below += key_bytes
        self.fit = None

    def detach(self, label: int) -> None:
        """Drop a child under edit that holds nothing any more."""
        at = self.labels.index(label)
        self.labels = self.labels[:at] + self.labels[at + 1 :]
        del self.records[at], self.opened[label]

    def measure(self) -> None:
        """Find the height afresh, from what the children say."""
        children = zip(self.labels, self.records, strict=True)
        self.height = 1 + max(
            self.opened[label].height if label in self.opened else _height_of(record)
            for label, record in children
        )

    def copy(self) -> Branch:
        """The same children, for a draft to alter."""
        mine = Branch(self.prefix, self.end)
        mine.labels, mine.records = self.labels, self.records.copy()
        mine.count, mine.below, mine.height = self.count, self.below, self.height
        mine.base, mine.fit = self.digest, self.fit
        return mine


Node: TypeAlias = Leaf | Branch


def make_item(suffix: bytes, tail: bytes) -> bytes:
    """The bytes of one entry in a leaf."""
    return varint(len(suffix)) + suffix + tail


def make_record(label: int, digest: Digest, told: bytes) -> bytes:
    """The bytes by which a branch names one child."""
    return bytes((label,)) + bytes.fromhex(digest) + told


def tally(node: Node, offset: int) -> bytes:
    """What the parent of `node` says about it: its weight and, if it is a branch, its height."""
    fit = node.fit  # once: other threads may look at the same node at another offset
    if fit is not None and fit[0] == offset:
        return fit[1]
    count, key_bytes = node.weigh(offset)
    height = bytes((node.height,)) if node.height else b""
    return varint(count) + varint(key_bytes) + height


def _height_of(record: bytes) -> int:
    count, at = read_varint(record, TALLY_AT)
    key_bytes, at = read_varint(record, at)
    return 0 if is_leaf(count, key_bytes) else record[at]


def _tail_of(item: bytes, key: bytes) -> bytes:
    return item[len(varint(len(key))) + len(key) :]
