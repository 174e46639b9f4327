"""The versioned map: an immutable view of everything that a root names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.history.tree import walk
from perdure.history.tree.edit import Draft
from perdure.history.tree.entry import Entry, key_of, make_entry, path_of, prefix_of
from perdure.history.tree.node import Node
from perdure.history.tree.read import EMPTY, Cache, Nodes, Reader
from perdure.model.digest import Digest

__all__ = ["Tree"]


class Tree:
    """The map with one root.  It never changes; reading it reads only the nodes on the way."""

    __slots__ = ("reader", "root")

    def __init__(self, nodes: Nodes, root: Digest = EMPTY, *, cache: Cache | None = None) -> None:
        """Read by `nodes`; `cache` is best shared by all maps of a store, and None is one of its own."""
        self.reader = Reader(nodes, Cache() if cache is None else cache)
        self.root = root

    @property
    def top(self) -> Node:
        """The node at the root."""
        return self.reader.root(self.root)

    def count(self, prefix: str = "") -> int:
        """How many paths start with `prefix`, without reading what is below it."""
        return walk.count(self.reader, self.top, prefix_of(prefix))

    def get(self, path: str) -> Entry | None:
        """The entry at `path`; None if there is none."""
        tail = walk.find(self.reader, self.top, key_of(path))
        return None if tail is None else make_entry(path, tail)

    def get_many(self, paths: Iterable[str]) -> dict[str, Entry]:
        """The entries at those of `paths` that have one; each level of the tree is one read."""
        wanted = {key_of(path): path for path in paths}
        found = dict(walk.find_many(self.reader, self.top, wanted))
        return {path: make_entry(path, found[key]) for key, path in wanted.items() if key in found}

    def entries(self, prefix: str = "", *, after: str | None = None) -> Iterator[Entry]:
        """The entries whose paths start with `prefix`, in the order of their bytes, read as they are asked for.

        `after` starts behind that path, whether or not it is there; None starts at the first.
        """
        start = prefix_of(prefix)
        low = start if after is None else max(start, prefix_of(after) + b"\0")
        for key, tail in walk.scan(self.reader, self.top, prefix=start, low=low):
            yield make_entry(path_of(key), tail)

    def edit(self) -> Draft:
        """A draft that begins as this map."""
        return Draft(self.reader, self.root)
