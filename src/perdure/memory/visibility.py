"""Judging: whether a version of an item counts, for somebody who looks at a memory in a certain way.

A version counts if its commit can be reached (or it stands by itself), its time is not over, and no
later version of the same item counts.  With a sight of an earlier answer nothing is looked up
again: what was withdrawn then is what is withdrawn.

References to memory: from `mem://<scope>/<owner>/<id>@<commit>` to the one version that it names.

Long-term memory as a fold: which version of an item counts.

Pure: the versions of one item in the order in which they came, and whether what wrote each can still
be reached, give the one that stands.  Whoever came last wins, unless it was withdrawn; a forgetting
that was withdrawn lets what was there before stand again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from perdure.errors import NotFound
from perdure.history import ancestry
from perdure.history.tree import Entry
from perdure.memory.owner_memory import Line, MemorySnapshot, OwnerMemory
from perdure.model.digest import Digest
from perdure.model.memory import (
    MemoryItem,
    Reference,
    Remembered,
    Version,
    item_prefix,
    parse_memory_reference,
    parse_version_path,
)

__all__ = ["Visibility", "Judged", "resolve", "is_expired", "standing"]


_T = TypeVar("_T")


def standing(
    versions: Sequence[_T], read: Callable[[_T], Version], counts: Callable[[_T, Version], bool]
) -> tuple[_T, Version] | None:
    """Return the last version that counts, wherever it is kept; None if none does, or it says that the item was forgotten."""
    for each in reversed(versions):
        version = read(each)
        if counts(each, version):
            return None if version.item is None else (each, version)
    return None


def is_expired(item: MemoryItem, now: int) -> bool:
    """True if its time is over."""
    return item.expires_at is not None and item.expires_at <= now


class Judged(msgspec.Struct, frozen=True):
    """A version that was looked at."""

    id: str
    entry: Entry
    version: Version
    counts: bool


class Visibility:
    """Looks at one memory in one way."""

    def __init__(
        self,
        memory: OwnerMemory,
        sight: MemorySnapshot | None,
        line: Line | None,
        *,
        commit: Digest | None = None,
    ) -> None:
        """See what `sight` saw; None: what is there now, or at a `commit`, from where `line` stands."""
        self.memory, self._line = memory, line
        self.sight = memory.sight(commit) if sight is None else sight
        self._known = None if sight is None else frozenset(sight.withdrawn)
        self._withdrawn: set[str] = set()
        self._tree = memory.tree(self.sight)
        self._standing: dict[str, tuple[list[Entry], str | None]] = {}

    def of(self, id: str, path: str, digest: Digest) -> Judged | None:
        """Return what became of the version that an index names; None if the map has no such thing there."""
        entries, stands = self._item(id)
        entry = next((each for each in entries if each.path == path and each.value == digest), None)
        if entry is None:
            return None
        version = self.memory.version(entry)
        counts = stands == path and not is_expired(_item(version), self.sight.at)
        return Judged(id, entry, version, counts)

    def prepare(self, paths: Sequence[str]) -> None:
        """Read what judging these versions needs, in a few reads for all of them."""
        found = self._tree.get_many(paths)
        self.memory.load([found[path] for path in paths if path in found])

    def item(self, id: str) -> Judged | None:
        """Return the version of an item that counts; None if there is none."""
        entries, stands = self._item(id)
        found = next((each for each in entries if each.path == stands), None)
        return None if found is None else self.of(id, found.path, found.value)

    def items(self) -> Iterator[Judged]:
        """Yield all that count, by id, read as they are asked for."""
        last = None
        for entry in self._tree.entries("/items/"):
            id, _ = parse_version_path(entry.path)
            if id != last:
                last = id
                found = self.item(id)
                if found is not None and found.counts:
                    yield found

    def remembered(self, judged: Judged) -> Remembered:
        """Return the item, with a reference that names this version of it."""
        item, memory = _item(judged.version), self.memory
        reference = Reference(item.scope, memory.owner, judged.id, self._written(judged.entry.path))
        return Remembered(
            id=judged.id,
            owner=memory.owner,
            text=item.text,
            kind=item.kind,
            scope=item.scope,
            trust=item.trust,
            at=item.at,
            expires_at=item.expires_at,
            source=judged.version.source or judged.version.origin,
            reference=str(reference),
            digest=judged.entry.value,
        )

    def seen(self) -> MemorySnapshot:
        """Return the sight, with what was met and could not be reached."""
        if self._known is not None:
            return self.sight
        return msgspec.structs.replace(self.sight, withdrawn=tuple(sorted(self._withdrawn)))

    def _item(self, id: str) -> tuple[list[Entry], str | None]:
        """Return the versions of an item, and the path of the one that stands."""
        known = self._standing.get(id)
        if known is None:
            entries = list(self._tree.entries(item_prefix(id)))
            found = standing(entries, self.memory.version, self._counts)
            known = self._standing[id] = entries, found[0].path if found else None
        return known

    def _counts(self, entry: Entry, version: Version) -> bool:
        if version.source is None:
            return True
        if self._known is not None:
            return entry.path not in self._known
        if self.memory.reach.holds(version.source, self._line):
            return True
        self._withdrawn.add(entry.path)
        return False

    def _written(self, path: str) -> Digest | None:
        """Return the commit of the memory that wrote the version at `path`."""
        space, commit = self.memory.space, self.sight.commit
        if commit is None:
            return None
        found = ancestry.ancestor(space, ancestry.point(space, commit), parse_version_path(path)[1])
        return found.digest if found else None


def _item(version: Version) -> MemoryItem:
    assert version.item is not None, "what stands was not forgotten"
    return version.item


def resolve(memory: OwnerMemory, text: str) -> Remembered:
    """Return what a reference names: as of its commit, or now, if it has none.

    With a commit it names one version for ever, whatever was undone since.  Raises `NotFound` if there is
    no such thing, and for everything that is another owner's: that is not looked up.
    """
    reference = parse_memory_reference(text)
    if reference.owner != memory.owner:
        raise _nothing(reference)
    judge = Visibility(memory, None, None, commit=reference.commit)
    found = judge.item(reference.id) if reference.commit is None else _last(judge, reference.id)
    if found is None or (reference.commit is None and not found.counts):
        raise _nothing(reference)
    remembered = judge.remembered(found)
    if remembered.scope != reference.scope:
        raise _nothing(reference)
    return remembered


def _last(judge: Visibility, id: str) -> Judged | None:
    """Return the last version of an item in the map; None if there is none, or it was forgotten there."""
    entries: list[Entry] = list(judge.memory.tree(judge.sight).entries(item_prefix(id)))
    if not entries:
        return None
    version = judge.memory.version(entries[-1])
    return None if version.item is None else Judged(id, entries[-1], version, counts=True)


def _nothing(reference: Reference) -> NotFound:
    return NotFound(f"there is nothing at {reference} in this memory; nothing was read.")
