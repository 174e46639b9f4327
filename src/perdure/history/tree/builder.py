"""Building: from sorted entries to nodes, and from nodes to stored objects.

`grow` follows the rule downwards over entries in memory.  `seal` turns nodes under edit into
objects, children before parents, each encoded and hashed once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from perdure.errors import Invalid
from perdure.history.tree.encoding import (
    BRANCHES_MAX,
    BranchNode,
    Entry,
    Leaf,
    Node,
    encode,
    is_leaf,
    key_of,
    make_item,
    make_record,
    make_tail,
    tally,
)
from perdure.history.tree.read import EMPTY
from perdure.model.digest import Digest, Kind, Object

__all__ = ["build", "grow", "seal", "shared", "too_deep"]


def build(entries: Iterable[Entry]) -> tuple[Digest, tuple[Object, ...]]:
    """The root of the map of `entries`, which come in any order, and its nodes, children before parents.

    Raises `Invalid` if a path comes twice, or if the map would be too deep.
    """
    tails: dict[bytes, bytes] = {}
    for entry in entries:
        key = key_of(entry.path)
        if key in tails:
            raise Invalid(f"path {entry.path[:60]!r} comes twice; nothing was written.")
        tails[key] = make_tail(entry)
    keys = sorted(tails)
    made = seal(grow(keys, [tails[key] for key in keys]), 0)
    objects = {thing.digest: thing for thing, _ in made}
    root = made[-1][0].digest
    return root, () if root == EMPTY else tuple(objects.values())


def grow(keys: Sequence[bytes], tails: Sequence[bytes], *, offset: int = 0, room: int = BRANCHES_MAX) -> Node:
    """The node for sorted entries whose keys have `offset` bytes above them.

    Raises `Invalid` if a path would lead through more than `room` branches.
    """
    try:
        return _Growth(keys, tails, offset).node(0, len(keys), 0, room)
    except _TooDeep:
        raise too_deep() from None


def seal(node: Node, offset: int) -> list[tuple[Object, Node]]:
    """All nodes under edit from `node` down as objects, children before parents; `node` itself is the last."""
    made: list[tuple[Object, Node]] = []
    _seal(node, offset, made)
    return made


def shared(one: bytes, other: bytes) -> int:
    """How many bytes the two have in common at the start."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(at for at in range(length) if one[at] != other[at])


def too_deep() -> Invalid:
    """The refusal of a map whose paths branch too often."""
    return Invalid(
        f"these paths share their beginnings in more than {BRANCHES_MAX} nested ways, "
        "which no map can hold; nothing was written. Use fewer paths that are built upon each other."
    )


def _seal(node: Node, offset: int, made: list[tuple[Object, Node]]) -> tuple[Digest, bytes]:
    if isinstance(node, BranchNode):
        below = offset + len(node.prefix) + 1
        for label, child in node.opened.items():
            digest, told = _seal(child, below, made)
            node.records[node.labels.find(label)] = make_record(label, digest, told)
        node.opened = {}
    thing = Object.of(Kind.NODE, encode(node), base=node.base)
    told = tally(node, offset)
    node.digest, node.fit = thing.digest, (offset, told)
    made.append((thing, node))
    return thing.digest, told


class _TooDeep(Exception):
    """There is no room for another branch; `grow` says so without the way down to here."""


class _Growth:
    """Sorted entries that are becoming nodes."""

    def __init__(self, keys: Sequence[bytes], tails: Sequence[bytes], offset: int) -> None:
        self._keys = keys
        self._tails = tails
        self._sums = list(accumulate((len(key) + offset for key in keys), initial=0))

    def node(self, low: int, high: int, at: int, room: int) -> Node:
        """The node for the entries from `low` to `high`, whose keys are consumed up to `at`."""
        if is_leaf(high - low, self._sums[high] - self._sums[low]):
            return self._leaf(low, high, at)
        if not room:
            raise _TooDeep
        return self._branch(low, high, at, room - 1)

    def _leaf(self, low: int, high: int, at: int) -> Leaf:
        keys = [key[at:] for key in self._keys[low:high]]
        return Leaf(keys, list(map(make_item, keys, self._tails[low:high])))

    def _branch(self, low: int, high: int, at: int, room: int) -> BranchNode:
        first, last = self._keys[low], self._keys[high - 1]
        fork = at + shared(first[at:], last[at:])
        branch = BranchNode(first[at:fork])
        branch.count, branch.below = high - low, self._sums[high] - self._sums[low]
        if len(first) == fork:
            branch.end = self._tails[low]
            branch.below -= self._sums[low + 1] - self._sums[low]
            low += 1
        while low < high:
            label, until = self._keys[low][fork], self._until(low, high, fork)
            child = self.node(low, until, fork + 1, room)
            branch.labels += bytes((label,))
            branch.records.append(b"")
            branch.opened[label] = child
            branch.height = max(branch.height, child.height + 1)
            low = until
        return branch

    def _until(self, low: int, high: int, at: int) -> int:
        """Where the keys that have the same byte at `at` as the one at `low` end."""
        key = self._keys[low]
        if key[at] == 0xFF:
            return high
        return bisect_left(self._keys, key[:at] + bytes((key[at] + 1,)), low, high)
