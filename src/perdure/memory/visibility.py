"""Decides which version of an item of memory is visible, and resolves references.

A version counts if its commit is reachable (or it was written directly), it has not expired, and no
later version of the same item counts.  With the snapshot of an earlier answer reachability is not checked
again: the versions that were withdrawn then are withdrawn now.

`standing` is the pure rule: of the versions of one item, in order, the last one whose commit is reachable
counts.  If a version that forgot the item is withdrawn, the version before it counts again.  Of the last ones that say
the same, because several sources did, that of the strongest source counts: what a user said stays a user's, also if a
model notes it again, and where the user's turn is undone it is the model's.  A version that differs in its pin begins
anew, so the last pin counts, from whichever source it is.

`resolve` returns the version that `mem://<scope>/<owner>/<id>@<commit>` names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

from perdure.errors import Forgotten, NotFound
from perdure.history import ancestry
from perdure.history.tree import Entry
from perdure.memory.owner_memory import Line, MemorySnapshot, OwnerMemory
from perdure.model.digest import Digest
from perdure.model.memory import (
    TRUSTS,
    ItemKind,
    MemoryChange,
    MemoryItem,
    Reference,
    Remembered,
    Version,
    decode_version,
    item_prefix,
    parse_memory_reference,
    parse_version_path,
)

__all__ = ["Visibility", "Judged", "as_of", "check_not_expired", "item_at", "resolve"]


_T = TypeVar("_T")


def agreeing(
    versions: Sequence[_T], read: Callable[[_T], Version], counts: Callable[[_T, Version], bool]
) -> Iterator[tuple[_T, Version, MemoryItem]]:
    """Yield the last version that counts, with its location and its item, and those before it that say the same.

    None if none counts, or if the last one forgot the item.
    """
    last: MemoryItem | None = None
    for each in reversed(versions):
        version = read(each)
        if counts(each, version):
            if version.item is None:
                return
            if last is not None and (version.item.pinned, True) != (
                last.pinned,
                version.item.says_same(last),
            ):
                return
            last = version.item
            yield each, version, last


def standing(
    versions: Sequence[_T], read: Callable[[_T], Version], counts: Callable[[_T, Version], bool]
) -> tuple[_T, Version] | None:
    """Return the most trusted of the versions that agree, of equal ones the last, with its location; None: there is none."""
    found = min(agreeing(versions, read, counts), key=lambda each: TRUSTS.index(each[2].trust), default=None)
    return None if found is None else (found[0], found[1])


def is_expired(item: MemoryItem, now: int) -> bool:
    """True if the item has expired at the time `now`."""
    return item.expires_at is not None and item.expires_at <= now


class Judged(msgspec.Struct, frozen=True):
    """A version, and whether it counts."""

    id: str
    entry: Entry
    version: Version
    counts: bool


class Visibility:
    """Decides the visibility of the items of one memory for one caller."""

    def __init__(
        self,
        memory: OwnerMemory,
        sight: MemorySnapshot | None,
        line: Line | None,
        *,
        commit: Digest | None = None,
    ) -> None:
        """Use the snapshot `sight`; None: the memory as it is now, or at a `commit`, for a caller at `line`."""
        self.memory, self._line = memory, line
        self.sight = memory.sight(commit) if sight is None else sight
        self._known = None if sight is None else frozenset(sight.withdrawn)
        self._withdrawn: set[str] = set()
        self._tree = memory.tree(self.sight)
        self._standing: dict[str, tuple[list[Entry], str | None]] = {}

    def of(self, id: str, path: str, digest: Digest) -> Judged | None:
        """Return the version that an index names, and whether it counts; None if the map has no such version."""
        entries, counting = self._item(id)
        entry = next((each for each in entries if each.path == path and each.value == digest), None)
        if entry is None:
            return None
        version = self.memory.version(entry)
        counts = counting == path and not is_expired(_item(version), self.sight.at)
        return Judged(id, entry, version, counts)

    def prepare(self, paths: Sequence[str]) -> None:
        """Read the versions at these paths into the cache, in a few reads."""
        found = self._tree.get_many(paths)
        self.memory.load([found[path] for path in paths if path in found])

    def item(self, id: str) -> Judged | None:
        """Return the version of an item that counts, or one that does not because it expired; None if there is none."""
        entries, counting = self._item(id)
        found = next((each for each in entries if each.path == counting), None)
        return None if found is None else self.of(id, found.path, found.value)

    def equal_to(self, wanted: MemoryItem) -> Judged | None:
        """Return an item that counts and says the same, of several the most trusted; None: there is none."""
        if wanted.expires_at is not None:
            return None
        found = map(self.item, self.memory.ids_with(wanted.text, self.sight.root))
        equal = [each for each in found if each and each.counts and _item(each.version).says_same(wanted)]
        return min(equal, key=lambda each: TRUSTS.index(_item(each.version).trust), default=None)

    def id_for(self, wanted: MemoryItem, written: Mapping[str, MemoryChange]) -> tuple[str, bool]:
        """Return the id of an item that says the same, and whether nothing has to be written; a new id if there is none.

        One that is `written` comes first.  To one that an undo of a thread may take away the caller adds a version.
        """
        for own in written.values():
            if own.item is not None and own.item.says_same(wanted):
                return own.id, own.item.is_as_trusted(wanted)
        equal = self.equal_to(wanted)
        if equal is None or equal.id in written:
            return self.memory.space.ids(), False
        return equal.id, self.is_kept(equal.id, wanted)

    def is_kept(self, id: str, wanted: MemoryItem) -> bool:
        """True if an item says so already, from as strong a source, by a version that no undo of a thread takes away."""
        entries, _ = self._item(id)
        return any(
            version.source is None and item.is_as_trusted(wanted) and item.says_same(wanted)
            for _, version, item in agreeing(entries, self.memory.version, self._counts)
        )

    def items(self, *, expired: bool = False) -> Iterator[Judged]:
        """Yield all versions that count, or those that would if they had not expired, by id, reading lazily."""
        last = None
        for entry in self._tree.entries("/items/"):
            id, _ = parse_version_path(entry.path)
            if id != last:
                last = id
                found = self.item(id)
                if found is not None and found.counts is not expired:
                    yield found

    def listed(
        self, *, kind: ItemKind | None = None, scope: str | None = None, expired: bool = False
    ) -> Iterator[Remembered]:
        """Yield the items of `items` that are of this kind and scope; None: of any."""
        for found in self.items(expired=expired):
            item = _item(found.version)
            if kind in (None, item.kind) and scope in (None, item.scope):
                yield self.remembered(found)

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
            pinned=item.pinned,
        )

    def seen(self) -> MemorySnapshot:
        """Return the snapshot, with the versions that were found and not reachable."""
        if self._known is not None:
            return self.sight
        return msgspec.structs.replace(self.sight, withdrawn=tuple(sorted(self._withdrawn)))

    def _item(self, id: str) -> tuple[list[Entry], str | None]:
        """Return the versions of an item, and the path of the one that counts."""
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
    assert version.item is not None, "a version that counts has an item"
    return version.item


def check_not_expired(memory: OwnerMemory, found: Judged | None) -> None:
    """Raise `NotFound` if an item is not there because it expired."""
    until = None if found is None or found.counts else _item(found.version).expires_at
    if found is None or until is None:
        return
    ended = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=until)
    raise NotFound(
        f"item '{found.id}' of '{memory.owner}' expired at {ended:%Y-%m-%d %H:%M:%S} UTC; nothing was done.",
        code="memory_item_expired",
        advice="restore(id, expires=…) brings it back with another end.",
        item=found.id,
        owner=memory.owner,
        expired_at=until,
    )


def resolve(memory: OwnerMemory, text: str) -> Remembered:
    """Return the item that a reference names: as of its commit, or now if it has none.

    With a commit it names one version for ever, whatever was undone since.  Raises `NotFound` if there is
    no such item, and for a reference to another owner, which is not looked up.
    """
    reference = parse_memory_reference(text)
    if reference.owner != memory.owner:
        raise _nothing(reference)
    remembered = (
        _now(memory, reference.id)
        if reference.commit is None
        else as_of(memory, reference.id, reference.commit)
    )
    if remembered is None or remembered.scope != reference.scope:
        raise _nothing(reference)
    return remembered


def as_of(memory: OwnerMemory, id: str, commit: Digest) -> Remembered | None:
    """Return an item as a commit left it, whatever was undone since; None if there was none, or it was forgotten there.

    Where a policy has let the state of that commit go, the version that it wrote may still stand.
    """
    found = _judged_at(memory, id, commit)
    return None if found is None else found[0].remembered(found[1])


def item_at(memory: OwnerMemory, id: str, commit: Digest) -> MemoryItem | None:
    """Return what `as_of` does, without the reference to it."""
    found = _judged_at(memory, id, commit)
    return None if found is None else found[1].version.item


def _judged_at(memory: OwnerMemory, id: str, commit: Digest) -> tuple[Visibility, Judged] | None:
    judge = Visibility(memory, None, None, commit=commit)
    try:
        entries: list[Entry] = list(memory.tree(judge.sight).entries(item_prefix(id)))
    except Forgotten:
        judge = Visibility(memory, None, None)
        depth = memory.space.step(commit).commit.depth
        found = memory.tree(judge.sight).entries(item_prefix(id))
        entries = [each for each in found if parse_version_path(each.path)[1] == depth]
        if not entries:
            raise
    # Not from the cache: an erased item is no item that was forgotten there, but raises `Forgotten`.
    last = decode_version(memory.space.body(entries[-1].value)) if entries else None
    if last is None or last.item is None:
        return None
    stood = standing(entries, memory.version, lambda _, __: True) if len(entries) > 1 else None
    entry, version = (entries[-1], last) if stood is None else stood
    return judge, Judged(id, entry, version, counts=True)


def _now(memory: OwnerMemory, id: str) -> Remembered | None:
    judge = Visibility(memory, None, None)
    found = judge.item(id)
    return None if found is None or not found.counts else judge.remembered(found)


def _nothing(reference: Reference) -> NotFound:
    return NotFound(
        f"there is nothing at {reference} in this memory; nothing was read.",
        code="memory_item_not_found",
        owner=reference.owner,
        reference=str(reference),
    )
