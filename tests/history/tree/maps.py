"""Maps for the tests of the tree: a store of nodes that counts, entries, and kinds of keys."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import islice

from perdure.errors import NotFound
from perdure.history.tree import EMPTY, Entry, MapDraft, NodeCache, Tree, build
from perdure.model.digest import Digest, Kind, Object, digest_of


class Shelf:
    """Node bodies by digest, and how many were read and written."""

    def __init__(self) -> None:
        """Begin empty."""
        self.bodies: dict[Digest, bytes] = {}
        self.reads = 0
        self.calls = 0

    def __call__(self, digests: Sequence[Digest]) -> Sequence[bytes]:
        """Read nodes, as an engine would; an absent one is an error."""
        self.reads += len(digests)
        self.calls += 1
        absent = [digest for digest in digests if digest not in self.bodies]
        if absent:
            raise NotFound(f"node {absent[0]}")
        return [self.bodies[digest] for digest in digests]

    def tree(self, root: Digest = EMPTY) -> Tree:
        """The map with this root, read from storage: nothing is cached between nodes."""
        return Tree(self, root, cache=NodeCache(0))

    def keep(self, made: tuple[Digest, tuple[Object, ...]]) -> Tree:
        """Store what a draft or a build made."""
        root, objects = made
        self.bodies.update((thing.digest, thing.body) for thing in objects)
        return self.tree(root)

    def of(self, paths: Iterable[str]) -> Tree:
        """The map of these paths, built in one go and stored."""
        return self.keep(build(entry(path) for path in paths))

    def put(self, tree: Tree, *paths: str) -> Tree:
        """The map with these paths added."""
        return self.keep(with_paths(tree.edit(), paths).finish())


def with_paths(draft: MapDraft, paths: Iterable[str]) -> MapDraft:
    """`draft` with these paths put."""
    for path in paths:
        draft.put(entry(path))
    return draft


def entry(path: str, value: int = 0) -> Entry:
    """A JSON entry at `path`; equal numbers make equal values."""
    return Entry(path, "json", "application/json", 900 + value, digest_of(Kind.VALUE, b"%d" % value))


def blob(path: str, media_type: str = "image/png", size: int = 70_000) -> Entry:
    """An entry of bytes at `path`."""
    return Entry(path, "bytes", media_type, size, digest_of(Kind.VALUE, media_type.encode()))


def paths_of(tree: Tree | MapDraft) -> list[str]:
    """All paths of a map, in its order."""
    return [found.path for found in tree.entries()]


def ordinary(count: int) -> list[str]:
    """Paths such as agents write."""
    chance = random.Random(7)
    kinds = (
        lambda: f"/notes/2026/{chance.randrange(1, 13):02}/note-{chance.randrange(count * 4)}.json",
        lambda: f"/customers/c{chance.randrange(count * 4):06}/profile.json",
        lambda: f"/todos/{chance.randrange(count * 4)}.json",
        lambda: f"/memory/{chance.getrandbits(64):016x}",
    )
    found: dict[str, None] = {}
    while len(found) < count:
        found[chance.choice(kinds)()] = None
    return list(found)


def long_prefix(count: int) -> list[str]:
    """Paths near the longest allowed that share all but their last digits."""
    return [f"/{'x' * 500}{number:06}" for number in range(count)]


def last_byte(count: int) -> list[str]:
    """Paths in groups that share all but their last byte."""
    chance = random.Random(1)
    letters = [chr(code) for code in range(0x30, 0x7F)]
    stems = ("/" + "".join(chance.choices("abcdef", k=100)) for _ in range(count))
    return list(islice((stem + letter for stem in stems for letter in letters), count))


def nested(count: int) -> list[str]:
    """Paths built upon each other: /a, /a/b, /a/b/a and so on, 32 segments deep."""
    chance = random.Random(2)
    found: dict[str, None] = {}
    while len(found) < count:
        segments = chance.choices("ab", k=32)
        found.update(("/" + "/".join(segments[:depth]), None) for depth in range(1, 33))
    return list(found)[:count]


def prefixes(count: int) -> list[str]:
    """Paths that are prefixes of other paths."""
    chance = random.Random(3)
    found: dict[str, None] = {}
    while len(found) < count:
        path = "/" + "".join(chance.choices("ab", k=60))
        found.update((path[:length], None) for length in range(2, 62, 3))
    return list(found)[:count]


def comb(depth: int, width: int = 75) -> list[str]:
    """Paths that fork at every byte, each time as wide as they can: the worst there is for this tree."""
    teeth = [chr(code) for code in range(0x30, 0x30 + width) if chr(code) != "a"]
    return [f"/{'a' * length}{tooth}{'z' * 300}" for length in range(depth) for tooth in teeth]
