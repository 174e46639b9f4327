"""Compares maps: `diff` yields what differs between two, `merge3` what each of two sides did to a common base.

The cost is that of what differs.  Each side is a row of things still to compare: entries, and
subtrees not yet read, by the bytes that all their keys start with.  Two subtrees at the same
place with the same digest are the same and are dropped unread.  Otherwise the one that spans
more is opened until entries meet entries, so it does not matter that the sides forked at
different bytes.

`merge3` reports facts only.  The caller decides about a path that both sides changed
differently, because it depends on what the values mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from perdure.history.tree import read
from perdure.history.tree.encoding import Entry, Leaf, Node, make_entry, path_of, prefix_of
from perdure.history.tree.map import Tree
from perdure.history.tree.read import Reader

__all__ = ["PathChange", "diff", "EntrySource", "Meeting", "merge3"]


class PathChange(msgspec.Struct, frozen=True):
    """A path at which two maps differ."""

    path: str
    before: Entry | None  # None: added
    after: Entry | None  # None: removed


def diff(a: Tree, b: Tree, prefix: str = "") -> Iterator[PathChange]:
    """Yield what leads from `a` to `b` among the paths that start with `prefix`, in the order of their bytes."""
    if a.root == b.root:
        return
    within = prefix_of(prefix)
    for key, before, after in _compare(_Side(a, within), _Side(b, within)):
        path = path_of(key)
        yield PathChange(path, _entry(path, before), _entry(path, after))


class _Own(NamedTuple):
    """An entry."""

    key: bytes
    tail: bytes

    def ends_before(self, other: _Item) -> bool:
        return self.key < other.key


class _Sub(NamedTuple):
    """A subtree that has not been read; all its keys start with `key`."""

    key: bytes
    record: bytes

    def ends_before(self, other: _Item) -> bool:
        return self.key < other.key and not other.key.startswith(self.key)


_Item: TypeAlias = _Own | _Sub
_Difference: TypeAlias = tuple[bytes, bytes | None, bytes | None]


class _Side:
    """What is still to compare of one map, the next in order last."""

    def __init__(self, tree: Tree, within: bytes) -> None:
        self._reader: Reader = tree.reader
        self._within = within
        self._row: list[_Item] = []
        self._push(b"", tree.top)

    @property
    def next(self) -> _Item | None:
        return self._row[-1] if self._row else None

    def drop(self) -> None:
        self._row.pop()

    def open(self, item: _Sub) -> None:
        """Replace the next item by what it contains."""
        self._row.pop()
        self._push(item.key, self._read(item))

    def take(self, item: _Item) -> Iterator[tuple[bytes, bytes]]:
        """Remove the next item and return all its entries; the other side has none there."""
        self._row.pop()
        if isinstance(item, _Own):
            return iter((item,))
        return read.scan(self._reader, self._read(item), at=item.key, prefix=self._within)

    def _read(self, item: _Sub) -> Node:
        return self._reader.named([(item.record, len(item.key))])[0]

    def _push(self, at: bytes, node: Node) -> None:
        items: list[_Item]
        if isinstance(node, Leaf):
            items = [_Own(at + key, tail) for key, tail in zip(node.keys, node.tails(), strict=True)]
        else:
            stem = at + node.prefix
            items = [] if node.end is None else [_Own(stem, node.end)]
            items += [_Sub(stem + record[:1], record) for record in node.records]
        self._row += [item for item in reversed(items) if self._meets(item)]

    def _meets(self, item: _Item) -> bool:
        return item.key.startswith(self._within) or (
            isinstance(item, _Sub) and self._within.startswith(item.key)
        )


def _compare(a: _Side, b: _Side) -> Iterator[_Difference]:
    while True:
        one, other = a.next, b.next
        if one is not None and (other is None or one.ends_before(other)):
            yield from ((key, tail, None) for key, tail in a.take(one))
        elif other is not None and (one is None or other.ends_before(one)):
            yield from ((key, None, tail) for key, tail in b.take(other))
        elif one is None or other is None:
            return
        else:
            yield from _meet(a, one, b, other)


def _meet(a: _Side, one: _Item, b: _Side, other: _Item) -> Iterator[_Difference]:
    """Compare two items that overlap, or open the one that spans more; both if they span the same."""
    if isinstance(one, _Own) and isinstance(other, _Own):
        a.drop()
        b.drop()
        if one.tail != other.tail:
            yield one.key, one.tail, other.tail
    elif isinstance(one, _Sub) and isinstance(other, _Sub) and one == other:
        a.drop()
        b.drop()
    else:
        if isinstance(one, _Sub) and (isinstance(other, _Own) or len(one.key) <= len(other.key)):
            a.open(one)
        if isinstance(other, _Sub) and (isinstance(one, _Own) or len(other.key) <= len(one.key)):
            b.open(other)


def _entry(path: str, tail: bytes | None) -> Entry | None:
    return None if tail is None else make_entry(path, tail)


_BATCH = 256


class Meeting(msgspec.Struct, frozen=True):
    """A path that their side changed, with its entry on all three sides; None: the path has no value there."""

    path: str
    base: Entry | None
    ours: Entry | None
    theirs: Entry | None

    @property
    def verdict(self) -> Literal["taken", "same", "conflict"]:
        """`taken`: only they changed it.  `same`: both did, to the same.  `conflict`: both did, differently."""
        if self.ours == self.base:
            return "taken"
        return "same" if self.ours == self.theirs else "conflict"


class EntrySource(Protocol):
    """A map as a merge reads it, stored or only decided."""

    def get_many(self, paths: Iterable[str], /) -> Mapping[str, Entry]:
        """Return the entries at those of `paths` that have one."""
        ...


def merge3(base: Tree, ours: EntrySource, theirs: Tree) -> Iterator[Meeting]:
    """Yield every path that differs between `base` and `theirs`, in order, beside the entry of `ours`.

    Paths that only we changed are not named: they stay as they are.
    """
    changes = diff(base, theirs)
    while batch := list(islice(changes, _BATCH)):
        our_entries = ours.get_many(change.path for change in batch)
        for change in batch:
            yield Meeting(change.path, change.before, our_entries.get(change.path), change.after)
