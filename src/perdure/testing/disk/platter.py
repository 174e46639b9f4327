"""What a disk may hold after power is lost: the operations, and which of them survive.

The rules are those of POSIX at its least helpful:

- a write or truncate is certain once a later sync of its file has succeeded; until then it may be kept,
  dropped, torn (some of its first or last sectors arrive) or garbled, whatever happens to the others;
- what a *failed* sync should have covered stays uncertain for ever: the kernel marks such pages clean, so
  a later sync that succeeds says nothing about them.  Only writing it again and syncing settles it;
- a name is any of the files (or none) that it was since its directory was last synced.

Bytes that were not written are never damaged (`SQLITE_IOCAP_POWERSAFE_OVERWRITE`, as SQLite's own unix
VFS promises).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum, StrEnum
from itertools import pairwise
from posixpath import dirname

__all__ = [
    "SECTOR_BYTES",
    "Create",
    "DeleteOp",
    "Entries",
    "Operation",
    "Platter",
    "Survival",
    "Sync",
    "SyncDirectory",
    "Truncate",
    "WriteOp",
    "Writes",
    "resize",
    "write_into",
]

SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class Create:
    """`name` is now the new, empty file number `file`."""

    name: str
    file: int


@dataclass(frozen=True, slots=True)
class DeleteOp:
    """`name` is now no file."""

    name: str


@dataclass(frozen=True, slots=True)
class WriteOp:
    """`data` was written at `offset`."""

    file: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """The file was cut, or grown with zeros, to `size`."""

    file: int
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """The file was synced, or the sync of it `failed`."""

    file: int
    failed: bool


@dataclass(frozen=True, slots=True)
class SyncDirectory:
    """The names in `directory` were synced; a failed sync of a directory leaves them as they were."""

    directory: str


Change = WriteOp | Truncate
Operation = Create | DeleteOp | Change | Sync | SyncDirectory


class Writes(StrEnum):
    """Which of the uncertain writes and truncates survive."""

    NONE = "none"
    ALL = "all"
    LAST = "last"  # the disk wrote the newest first
    ALL_BUT_FIRST = "all but first"
    RANDOM = "random"  # each one kept, dropped, torn or garbled


class Entries(StrEnum):
    """Which of the uncertain directory entries survive."""

    OLD = "old"
    NEW = "new"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Survival:
    """One way in which a disk can come back; with the same seed, the same way again."""

    writes: Writes
    entries: Entries
    seed: int = 0


class _Fate(Enum):
    KEPT = 0
    DROPPED = 1
    TORN_PREFIX = 2
    TORN_SUFFIX = 3
    GARBLED = 4


_DAMAGE = (_Fate.DROPPED, _Fate.TORN_PREFIX, _Fate.TORN_SUFFIX, _Fate.GARBLED)


class _Certainty(Enum):
    PENDING = 0  # no sync since
    DOUBTFUL = 1  # a sync failed: no later sync helps
    CERTAIN = 2


@dataclass(slots=True)
class _Recorded:
    number: int
    change: Change
    certainty: _Certainty


class _DiskFile:
    """What one file certainly holds, and the changes since."""

    def __init__(self, content: bytes = b"") -> None:
        self.certain = bytearray(content)
        self.since: list[_Recorded] = []

    def sync(self, *, failed: bool) -> None:
        reached = _Certainty.DOUBTFUL if failed else _Certainty.CERTAIN
        for recorded in self.since:
            if recorded.certainty is _Certainty.PENDING:
                recorded.certainty = reached
        self._settle()

    def _settle(self) -> None:
        settled = 0
        for recorded in self.since:
            if recorded.certainty is not _Certainty.CERTAIN:
                break
            _apply(recorded.change, self.certain)
            settled += 1
        del self.since[:settled]

    def uncertain(self) -> list[int]:
        return [each.number for each in self.since if each.certainty is not _Certainty.CERTAIN]

    def content(self, fates: dict[int, _Fate], chance: random.Random) -> bytes:
        content = bytearray(self.certain)
        for recorded in self.since:
            _arrive(recorded.change, fates.get(recorded.number, _Fate.KEPT), content, chance)
        return bytes(content)


class Platter:
    """The disk as power loss would find it, after the operations recorded so far."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = {number: _DiskFile(content) for number, content in enumerate(files.values())}
        # For each name all files that it was since its directory was synced; the last is now.
        self._names: dict[str, list[int | None]] = {name: [number] for number, name in enumerate(files)}
        self._recorded = 0

    def record(self, operation: Operation) -> None:
        """Let `operation` happen."""
        match operation:
            case WriteOp(file) | Truncate(file):
                recorded = _Recorded(self._recorded, operation, _Certainty.PENDING)
                self._files[file].since.append(recorded)
            case Sync(file, failed):
                self._files[file].sync(failed=failed)
            case Create(name, file):
                self._files[file] = _DiskFile()
                self._names.setdefault(name, [None]).append(file)
            case DeleteOp(name):
                self._names[name].append(None)
            case SyncDirectory(directory):
                self._sync_names(directory)
        self._recorded += 1

    def _sync_names(self, directory: str) -> None:
        for name, stood in self._names.items():
            if dirname(name) == directory:
                del stood[:-1]

    def survivals(self, *, seed: int, chances: int) -> list[Survival]:
        """Return the extreme ways to come back from here, and `chances` random ones; one if nothing is uncertain."""
        names = any(len(stood) > 1 for stood in self._names.values())
        writes = any(file.uncertain() for file in self._files.values())
        if not names and not writes:
            return [Survival(Writes.ALL, Entries.NEW)]
        entries = (Entries.OLD, Entries.NEW) if names else (Entries.NEW,)
        extremes = (Writes.NONE, Writes.ALL, Writes.LAST, Writes.ALL_BUT_FIRST) if writes else (Writes.ALL,)
        certain = [Survival(kind, entry) for kind in extremes for entry in entries]
        random_ones = [Survival(Writes.RANDOM, Entries.RANDOM, seed + each) for each in range(chances)]
        return certain + random_ones

    def surviving(self, survival: Survival) -> dict[str, bytes]:
        """Return the files of a disk that comes back in this way."""
        chance = random.Random(survival.seed)
        uncertain = sorted(number for file in self._files.values() for number in file.uncertain())
        fates = _fates(uncertain, survival.writes, chance)
        files: dict[str, bytes] = {}
        for name, stood in self._names.items():
            file = _entry(stood, survival.entries, chance)
            if file is not None:
                files[name] = self._files[file].content(fates, chance)
        return files


def _fates(uncertain: list[int], writes: Writes, chance: random.Random) -> dict[int, _Fate]:
    match writes:
        case Writes.ALL:
            return {}
        case Writes.NONE:
            return dict.fromkeys(uncertain, _Fate.DROPPED)
        case Writes.LAST:
            return dict.fromkeys(uncertain[:-1], _Fate.DROPPED)
        case Writes.ALL_BUT_FIRST:
            return dict.fromkeys(uncertain[:1], _Fate.DROPPED)
        case Writes.RANDOM:
            # Rare damage, rare survival and an even mix find different faults.
            kept = chance.choice((0.1, 0.5, 0.9))
            return {each: chance.choice(_DAMAGE) for each in uncertain if chance.random() >= kept}


def _entry(stood: list[int | None], entries: Entries, chance: random.Random) -> int | None:
    match entries:
        case Entries.OLD:
            return stood[0]
        case Entries.NEW:
            return stood[-1]
        case Entries.RANDOM:
            return chance.choice(stood)


def _arrive(change: Change, fate: _Fate, content: bytearray, chance: random.Random) -> None:
    match change, fate:
        case _, _Fate.KEPT:
            _apply(change, content)
        case Truncate(), _:
            pass
        case WriteOp(_, offset, data), _Fate.TORN_PREFIX:
            write_into(content, offset, data[: _tear(offset, data, chance)])
        case WriteOp(_, offset, data), _Fate.TORN_SUFFIX:
            torn = _tear(offset, data, chance)
            write_into(content, offset + torn, data[torn:])
        case WriteOp(_, offset, data), _Fate.GARBLED:
            write_into(content, offset, _garbled(offset, data, chance))
        case _:
            pass


def _apply(change: Change, content: bytearray) -> None:
    if isinstance(change, WriteOp):
        write_into(content, change.offset, change.data)
    else:
        resize(content, change.size)


def write_into(content: bytearray, offset: int, data: bytes) -> None:
    """Put `data` at `offset`, with zeros before it where the file did not reach so far."""
    if not data:
        return
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def resize(content: bytearray, size: int) -> None:
    """Cut `content` to `size`, or grow it with zeros."""
    del content[size:]
    content.extend(bytes(size - len(content)))


def _boundaries(offset: int, data: bytes) -> list[int]:
    """Return where in `data` a sector of the disk begins or the data ends, from 0 on."""
    first = SECTOR_BYTES - offset % SECTOR_BYTES
    return [0, *range(first, len(data), SECTOR_BYTES), len(data)]


def _tear(offset: int, data: bytes, chance: random.Random) -> int:
    return chance.choice(_boundaries(offset, data))


def _garbled(offset: int, data: bytes, chance: random.Random) -> bytes:
    """`data` with at least one of its sectors replaced by random bytes, or by zeros."""
    edges = _boundaries(offset, data)
    sectors = list(pairwise(edges))
    garbled = bytearray(data)
    for start, end in chance.sample(sectors, chance.randint(1, len(sectors))):
        garbled[start:end] = chance.randbytes(end - start) if chance.random() < 0.8 else bytes(end - start)
    return bytes(garbled)
