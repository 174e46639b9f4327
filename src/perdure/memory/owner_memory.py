"""Holds the memories of a store: `OwnerMemory` is one owner's map, index and reachability.

Spaces, index files and the embedding function are passed in.

`MemorySnapshot` is everything that decides what is found in a memory, as a value.  The same snapshot and
the same query give the same answer, whatever was written, undone or has expired since.  A caller that
builds a prompt from memory records the snapshot with it.

`ReachableMemory` decides whether the commit that wrote an item is still in the history of a live head of
its thread.  Undo moves a head away from a commit, and redo back to it: neither writes to a memory, since
reachability is checked when an item is read.  Whether one commit is an ancestor of another never changes,
so that is cached for ever; the heads of a thread are cached as long as nothing was written there.

Three kinds of timelines have no live head: the old main that a promotion replaced, one that was dropped, and the
timeline of a run that has not ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Hold
from perdure.engines.search_contract import SearchIndex
from perdure.errors import Corrupt, NotFound
from perdure.history import ancestry, reader
from perdure.history.space import ALIVE, Space
from perdure.history.tree import EMPTY, Entry, Tree, diff
from perdure.memory.embedding import Embedder
from perdure.memory.index import Indexing, read_versions
from perdure.model import names
from perdure.model.commit import Act
from perdure.model.digest import Digest
from perdure.model.fork_safety import ThreadLock
from perdure.model.head import MAIN
from perdure.model.memory import MEMORY, Source, Version, folded, parse_version_path

__all__ = ["Memories", "OwnerMemory", "MemorySnapshot", "Line", "ReachableMemory"]


class MemorySnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A memory as one search saw it."""

    commit: Digest | None  # of the memory; None: nothing was ever written
    root: Digest  # of its map there
    at: int  # µs since 1970, UTC: what had expired by then is not found
    withdrawn: tuple[str, ...] = ()  # paths of versions that were found and not reachable, sorted


Threads: TypeAlias = Callable[[str, str], Space]
"""Returns the space of that name with that label."""

Line: TypeAlias = "tuple[str, Digest | None]"
"""A space, and the commit in it that the caller is at."""

_K = TypeVar("_K")
_V = TypeVar("_V")

_REACH_KNOWN_MAX = 20_000
_SPACES_MAX = 256  # each has a cache of commits
_OLD_MAIN = re.compile(r"main\.v[0-9]+\Z")
_RUNS_OWN = re.compile(r"run/[a-z0-9][a-z0-9._-]*/[0-9]+\Z")


class ReachableMemory:
    """Decides what is reachable, in all threads of one store.  Thread-safe: each change is one operation on a dictionary."""

    def __init__(self, threads: Threads) -> None:
        """Read the spaces that `threads` returns."""
        self.threads = threads
        self._spaces: dict[str, Space] = {}
        self._tips: dict[str, tuple[int, tuple[Digest, ...]]] = {}
        self._behind: dict[tuple[Digest, Digest], bool] = {}

    def holds(self, source: Source, standing: Line | None = None) -> bool:
        """True if a live head has the commit of `source`, or if the line of the caller has it."""
        try:
            space = self._space(source)
            tips = self._live(space)
            if standing is not None and standing[0] == space.name and standing[1] is not None:
                tips = (standing[1], *tips)
            return any(self._is_behind(space, tip, source.commit) for tip in tips)
        except NotFound:
            return False  # the thread was removed, and retention dropped its space

    def commits_of(self, space: str, thread: str, run: str | None) -> Iterator[Digest]:
        """Yield the commits of a run of a thread that a live head has."""
        found = self.threads(space, thread)
        seen = set[Digest]()
        for tip in self._live(found):
            for step in reader.steps(found, tip):
                if step.digest in seen:
                    break
                seen.add(step.digest)
                if step.commit.run == run:
                    yield step.digest

    def _space(self, source: Source) -> Space:
        found = self._spaces.get(source.space)
        if found is None:
            _make_room(self._spaces, _SPACES_MAX)
            found = self._spaces[source.space] = self.threads(source.space, source.thread)
        return found

    def _live(self, space: Space) -> tuple[Digest, ...]:
        """Return the commits of the live heads of a thread."""
        standing = space.engine.standing(space.name)  # first, so that a move after it is noticed next time
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
    holds = loops.holds(space.engine, space.name)
    return tuple({hold.head.commit: None for hold in holds if hold.head.commit and _is_live(space, hold)})


def _is_live(space: Space, hold: Hold) -> bool:
    timeline = hold.head.timeline
    if _RUNS_OWN.match(timeline) or (hold.sealed and reader.is_dropped(space, timeline)):
        return False
    if not _OLD_MAIN.match(timeline):
        return True
    moves = space.engine.moves(space.name, timeline, limit=1)
    return not (moves and moves[0].act is Act.KEEP)


def _make_room(known: dict[_K, _V], most: int = _REACH_KNOWN_MAX) -> None:
    if len(known) >= most:
        known.clear()


_OPEN_MAX = 64
_KNOWN_MAX = 20_000
_SMALL_BYTES = 4_096
_READ = 256  # versions at once


class OwnerMemory:
    """One owner's memory."""

    def __init__(self, owner: str, space: Space, reach: ReachableMemory, indexing: Indexing) -> None:
        """Read the map in `space`; nothing is read yet."""
        self.owner, self.space, self.reach, self.indexing = owner, space, reach, indexing
        self._known: dict[Digest, Version] = {}  # versions never change
        self._lock = ThreadLock()  # on the next line
        self._texts: tuple[Digest, dict[int, set[str]]] = (
            EMPTY,
            {},
        )  # ids by hash of the folded text, up to a root

    @property
    def commit(self) -> Digest | None:
        """The commit of its map; None: nothing was ever written."""
        hold = self.space.engine.hold(self.space.name, MAIN)
        return hold.head.commit if hold else None

    def sight(self, commit: Digest | None = None) -> MemorySnapshot:
        """Return a snapshot of the memory as it is now, or as it was at one of its commits."""
        commit = commit or self.commit
        return MemorySnapshot(commit=commit, root=self.space.root_at(commit), at=self.space.clock())

    def tree(self, sight: MemorySnapshot) -> Tree:
        """Return the map of a snapshot."""
        return self.space.tree(sight.root)

    def version(self, entry: Entry) -> Version:
        """Return the version of an entry, one without an item if that was erased; raises `Corrupt`."""
        found = self._known.get(entry.value)
        if found is None:
            (found,) = read_versions(self.space, (entry.value,))
            self._remember(entry, found)
        return found

    def load(self, entries: Sequence[Entry]) -> None:
        """Read the versions of all these entries at once into the cache."""
        missing = [entry for entry in entries if entry.value not in self._known]
        for entry, version in zip(
            missing, read_versions(self.space, [each.value for each in missing]), strict=True
        ):
            self._remember(entry, version)

    def ids_with(self, text: str, root: Digest) -> Sequence[str]:
        """Return the ids of items that may have this text, but for its case and white space, at `root`; look each up.

        The first call reads the whole map, later ones what has changed since.
        """
        with self._lock:
            ids = self._texts_at(root)
            return sorted(ids.get(hash(folded(text)), ()))

    def _texts_at(self, root: Digest) -> dict[int, set[str]]:
        before, ids = self._texts
        try:
            changes = list(diff(self.space.tree(before), self.space.tree(root)))
        except (NotFound, Corrupt):  # the state of the earlier root is gone
            ids, changes = {}, list(diff(self.space.tree(EMPTY), self.space.tree(root)))
        written = [change.after for change in changes if change.after is not None]
        for start in range(0, len(written), _READ):
            part = written[start : start + _READ]
            found = read_versions(self.space, [each.value for each in part])
            for entry, version in zip(part, found, strict=True):
                if version.item is not None:
                    ids.setdefault(hash(folded(version.item.text)), set()).add(
                        parse_version_path(entry.path)[0]
                    )
        self._texts = root, ids
        return ids

    def forget_copies(self) -> None:
        """Drop what is known of the map beside the map itself: the words of items may be there that it has forgotten."""
        self._known.clear()
        with self._lock:
            self._texts = EMPTY, {}
        self.indexing.throw_away()

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
        """Get spaces by name; `indexes` returns the index of an owner, or one in memory for None."""
        self._spaces, self._reach, self._indexes, self._embedder = spaces, reach, indexes, embedder
        self._read_only = read_only
        self._open: dict[str, OwnerMemory] = {}
        self._lock = ThreadLock()

    def of(self, owner: str) -> OwnerMemory:
        """Return the memory of one owner; raises `Invalid` for a name that no owner can have."""
        names.check_id("owner", owner)
        with self._lock:
            found = self._open.pop(owner, None) or self._new(owner)
            self._open[owner] = found  # the last used is the last to be closed
            while len(self._open) > _OPEN_MAX:
                self._open.pop(next(iter(self._open))).indexing.close()
        return found

    def close(self) -> None:
        """Release the indexes."""
        with self._lock:
            for each in self._open.values():
                each.indexing.close()
            self._open.clear()

    def _new(self, owner: str) -> OwnerMemory:
        indexing = Indexing(
            self._indexes(owner), lambda: self._indexes(None), self._embedder, read_only=self._read_only
        )
        return OwnerMemory(owner, self._spaces(MEMORY + owner), self._reach, indexing)
