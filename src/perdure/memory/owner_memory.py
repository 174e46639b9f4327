"""Recollections: one owner's memory as the rules see it, and all of a store's.

What a memory is read by: its map, who can reach what, and the index that it is searched with.
Everything that comes from outside (spaces, files for indexes, the embedding function) is handed in.

Sight: everything that decides what is found in a memory, as a value.

The same sight and the same question give the same answer, whatever was written, undone or has
expired since.  So whoever builds something out of memory records the sight with it.

Reach: whether the commit that wrote something is still held by a live head of its thread.

Undo moves a head away from a commit, and redo back to it: nothing is written to a memory for
either, since what counts is looked up when it is retrieved.  Whether one commit is behind another never
changes, so that is remembered for good; where the heads of a thread stand, as long as nothing was
written there.

Every timeline has a live head but two kinds: the old main that a promotion put aside, and the
line of a run that has not come to its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from perdure.engines.contract import Hold
from perdure.engines.search_contract import SearchIndex
from perdure.errors import NotFound
from perdure.history import ancestry, reader
from perdure.history.space import ALIVE, Space
from perdure.history.tree import Entry, Tree
from perdure.memory.embedding import Embedder
from perdure.memory.index import Indexing
from perdure.model import names
from perdure.model.commit import Act
from perdure.model.digest import Digest
from perdure.model.fork_safety import ThreadLock
from perdure.model.head import MAIN
from perdure.model.memory import MEMORY, Source, Version, decode_version

__all__ = ["Memories", "OwnerMemory", "MemorySnapshot", "Line", "ReachableMemory", "Threads"]


class MemorySnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A memory as somebody saw it."""

    commit: Digest | None  # of the memory; None: nothing was ever written
    root: Digest  # of its map there
    at: int  # µs since 1970, UTC: what had expired by then is not found
    withdrawn: tuple[str, ...] = ()  # paths of versions that were met and could not be reached, sorted


Threads: TypeAlias = Callable[[str, str], Space]
"""The space of that name, whose commits call it by that label."""

Line: TypeAlias = "tuple[str, Digest | None]"
"""A space, and the commit in it that somebody stands on."""

_K = TypeVar("_K")
_V = TypeVar("_V")

_PAGE = 100
_REACH_KNOWN_MAX = 20_000
_SPACES_MAX = 256  # each remembers commits of its own
_KEPT = re.compile(r"main\.v[0-9]+\Z")
_RUNS_OWN = re.compile(r"run/[a-z0-9][a-z0-9._-]*/[0-9]+\Z")


class ReachableMemory:
    """What can be reached, in all threads of one store.  Thread-safe: each change is one operation on a dictionary."""

    def __init__(self, threads: Threads) -> None:
        """Look into the spaces that `threads` gives."""
        self._threads = threads
        self._spaces: dict[str, Space] = {}
        self._tips: dict[str, tuple[int, tuple[Digest, ...]]] = {}
        self._behind: dict[tuple[Digest, Digest], bool] = {}

    def holds(self, source: Source, standing: Line | None = None) -> bool:
        """True if what came from `source` counts, for somebody who stands on that line too."""
        try:
            space = self._space(source)
            tips = self._live(space)
            if standing is not None and standing[0] == space.name and standing[1] is not None:
                tips = (standing[1], *tips)
            return any(self._is_behind(space, tip, source.commit) for tip in tips)
        except NotFound:
            return False  # the thread was removed, and what was left of it is gone

    def _space(self, source: Source) -> Space:
        found = self._spaces.get(source.space)
        if found is None:
            _make_room(self._spaces, _SPACES_MAX)
            found = self._spaces[source.space] = self._threads(source.space, source.thread)
        return found

    def _live(self, space: Space) -> tuple[Digest, ...]:
        """Return the commits of the live heads of a thread."""
        standing = space.engine.standing(space.name)  # first: what moves meanwhile makes this one out of date
        known = self._tips.get(space.name)
        if known is not None and known[0] == standing:
            return known[1]
        tips = () if space.engine.cell(space.name, ALIVE) is not None else _tips(space)
        _make_room(self._tips)
        self._tips[space.name] = standing, tips
        return tips

    def _is_behind(self, space: Space, tip: Digest, commit: Digest) -> bool:
        known = self._behind.get((tip, commit))
        if known is None:
            known = reader.is_ancestor(space, commit, tip) or ancestry.contains(
                space, ancestry.point(space, tip), ancestry.point(space, commit)
            )
            _make_room(self._behind)
            self._behind[tip, commit] = known
        return known


def _tips(space: Space) -> tuple[Digest, ...]:
    tips: dict[Digest, None] = {}
    after = ""
    while page := space.engine.holds(space.name, after=after, limit=_PAGE):
        after = page[-1].head.timeline
        tips |= {hold.head.commit: None for hold in page if hold.head.commit and _is_live(space, hold)}
    return tuple(tips)


def _is_live(space: Space, hold: Hold) -> bool:
    timeline = hold.head.timeline
    if _RUNS_OWN.match(timeline):
        return False
    if not _KEPT.match(timeline):
        return True
    moves = space.engine.moves(space.name, timeline, limit=1)
    return not (moves and moves[0].act is Act.KEEP)


def _make_room(known: dict[_K, _V], most: int = _REACH_KNOWN_MAX) -> None:
    if len(known) >= most:
        known.clear()


_OPEN_MAX = 64
_KNOWN_MAX = 20_000
_SMALL_BYTES = 4_096


class OwnerMemory:
    """One owner's memory."""

    def __init__(self, owner: str, space: Space, reach: ReachableMemory, indexing: Indexing) -> None:
        """Read the map in `space`; nothing is read yet."""
        self.owner, self.space, self.reach, self.indexing = owner, space, reach, indexing
        self._known: dict[Digest, Version] = {}  # versions never change

    @property
    def commit(self) -> Digest | None:
        """Where its map stands; None: nothing was ever written."""
        hold = self.space.engine.hold(self.space.name, MAIN)
        return hold.head.commit if hold else None

    def sight(self, commit: Digest | None = None) -> MemorySnapshot:
        """Return the memory as it is now, or as it was at one of its commits."""
        commit = commit or self.commit
        return MemorySnapshot(commit=commit, root=self.space.root_at(commit), at=self.space.clock())

    def tree(self, sight: MemorySnapshot) -> Tree:
        """Its map, as it was seen."""
        return self.space.tree(sight.root)

    def version(self, entry: Entry) -> Version:
        """Return what the map holds there; raises `Corrupt` or `Forgotten`."""
        found = self._known.get(entry.value)
        if found is None:
            found = decode_version(self.space.body(entry.value))
            self._remember(entry, found)
        return found

    def load(self, entries: Sequence[Entry]) -> None:
        """Read what the map holds at all of these at once, for whoever asks for them next."""
        wanted = [entry for entry in entries if entry.value not in self._known]
        if wanted:
            for entry, body in zip(wanted, self.space.nodes([each.value for each in wanted]), strict=True):
                self._remember(entry, decode_version(body))

    def _remember(self, entry: Entry, version: Version) -> None:
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        if entry.size <= _SMALL_BYTES:
            self._known[entry.value] = version


class Memories:
    """The memories of all owners of one store."""

    def __init__(
        self,
        spaces: Callable[[str], Space],
        reach: ReachableMemory,
        indexes: Callable[[str | None], SearchIndex],
        embedder: Embedder | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        """Take spaces by name; `indexes` gives the index of an owner, or one in memory for None."""
        self._spaces, self._reach, self._indexes, self._embedder = spaces, reach, indexes, embedder
        self._read_only = read_only
        self._open: dict[str, OwnerMemory] = {}
        self._lock = ThreadLock()

    def of(self, owner: str) -> OwnerMemory:
        """Return the memory of one owner; raises `Invalid` for what cannot be one."""
        names.check_id("owner", owner)
        with self._lock:
            found = self._open.pop(owner, None) or self._made(owner)
            self._open[owner] = found  # the last used is the last to go
            while len(self._open) > _OPEN_MAX:
                self._open.pop(next(iter(self._open))).indexing.close()
        return found

    def close(self) -> None:
        """Release the indexes."""
        with self._lock:
            for each in self._open.values():
                each.indexing.close()
            self._open.clear()

    def _made(self, owner: str) -> OwnerMemory:
        indexing = Indexing(
            self._indexes(owner), lambda: self._indexes(None), self._embedder, read_only=self._read_only
        )
        return OwnerMemory(owner, self._spaces(MEMORY + owner), self._reach, indexing)
