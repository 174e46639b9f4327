"""Recollections: one owner's memory as the rules see it, and all of a store's.

What a memory is read by: its map, who can reach what, and the index that it is searched with.
Everything that comes from outside (spaces, files for indexes, the embedding function) is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perdure.engines.searching import SearchIndex
from perdure.history.space import Space
from perdure.history.tree import Entry, Tree
from perdure.memory.embedding import Embedder
from perdure.memory.indexing import Indexing
from perdure.memory.reach import Reach
from perdure.memory.sight import Sight
from perdure.model import names
from perdure.model.digest import Digest
from perdure.model.forks import ThreadLock
from perdure.model.head import MAIN
from perdure.model.memory import MEMORY, Version, decode_version

__all__ = ["Memories", "Recollection"]

_OPEN_MAX = 64
_KNOWN_MAX = 20_000
_SMALL_BYTES = 4_096


class Recollection:
    """One owner's memory."""

    def __init__(self, owner: str, space: Space, reach: Reach, indexing: Indexing) -> None:
        """Read the map in `space`; nothing is read yet."""
        self.owner, self.space, self.reach, self.indexing = owner, space, reach, indexing
        self._known: dict[Digest, Version] = {}  # versions never change

    @property
    def commit(self) -> Digest | None:
        """Where its map stands; None: nothing was ever written."""
        hold = self.space.engine.hold(self.space.name, MAIN)
        return hold.head.commit if hold else None

    def sight(self, commit: Digest | None = None) -> Sight:
        """The memory as it is now, or as it was at one of its commits."""
        commit = commit or self.commit
        return Sight(commit=commit, root=self.space.root_at(commit), at=self.space.clock())

    def tree(self, sight: Sight) -> Tree:
        """Its map, as it was seen."""
        return self.space.tree(sight.root)

    def version(self, entry: Entry) -> Version:
        """What the map holds there; raises `Corrupt` or `Forgotten`."""
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
        reach: Reach,
        indexes: Callable[[str | None], SearchIndex],
        embedder: Embedder | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        """Take spaces by name; `indexes` gives the index of an owner, or one in memory for None."""
        self._spaces, self._reach, self._indexes, self._embedder = spaces, reach, indexes, embedder
        self._read_only = read_only
        self._open: dict[str, Recollection] = {}
        self._lock = ThreadLock()

    def of(self, owner: str) -> Recollection:
        """The memory of one owner; raises `Invalid` for what cannot be one."""
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

    def _made(self, owner: str) -> Recollection:
        indexing = Indexing(
            self._indexes(owner), lambda: self._indexes(None), self._embedder, read_only=self._read_only
        )
        return Recollection(owner, self._spaces(MEMORY + owner), self._reach, indexing)
