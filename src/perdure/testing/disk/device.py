"""The simulated disk as a test uses it, and the exploration of every power loss.

From the record of operations a disk makes, for any moment, the disks that a power loss at this moment could leave;
each becomes a `Disk` again, with a record of its own.

`explore` runs a workload once.  The workload marks on the disk each fact that was acknowledged (`disk.mark`).  Then
`explore` gives every disk that a power loss could have left to the check, with the facts acknowledged up to that moment.
The check opens the store as a program would and raises if a fact is missing or anything is damaged.

Opening recovers a store, so the check's own operations are the record of the recovery; for a share of the images
`explore` loses power again in the middle of the recovery, and checks with the same facts.

SQLite reaches the disk by an apsw VFS, its files, and `PageCache`, the cache of the operating system behind them.
The cache holds the files as programs see them, and records every operation.  It records only what changes or syncs a
named file, since only that matters to a power loss; it counts every call, since every call can fail.  A failed write
may have written its beginning; a failed sync leaves what it covered in doubt, whatever is synced later; any other call
that fails has done nothing.

Which operations are made durable follows SQLite's unix VFS: a journal or WAL that was opened for creation syncs its
directory once, after its own first sync, and ignores an error in that; a delete syncs the directory if asked to; the
database file never does.

Exceptions made with `apsw.exception_for` reach SQLite as their result code, and the caller as they are.
"""

# ruff: noqa: N802  # SQLite names the methods

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import basename, dirname
from typing import cast

import apsw

from perdure.testing.disk import platter
from perdure.testing.disk.faults import EVERY_CALL, DiskCall, Faults
from perdure.testing.disk.platter import Operation, Platter, Survival

__all__ = ["Disk", "DiskImage", "Check", "Explored", "Failure", "Workload", "explore"]


class Disk:
    """A disk in memory that SQLite reaches under the name `vfs`."""

    def __init__(
        self,
        *,
        seed: int = 0,
        files: dict[str, bytes] | None = None,
        ignores_syncs: bool = False,
        capacity_bytes: int | None = None,
    ) -> None:
        """Make a disk that certainly holds `files`; None means that it is empty.

        `ignores_syncs` makes it one that lies: it reports success and guarantees nothing.  `capacity_bytes`
        None means that it never fills up.
        """
        self.seed = seed
        self._began_with = dict(files or {})
        self._cache = PageCache(self._began_with, seed=seed)
        self._cache.ignores_syncs = ignores_syncs
        self._cache.capacity_bytes = capacity_bytes
        self._marks: list[tuple[int, object]] = []
        self._vfs: DiskVfs | None = None

    @property
    def vfs(self) -> str:
        """Return the name to give to SQLite.  It is another one after each `kill`."""
        if self._vfs is None:
            self._vfs = DiskVfs(self._cache)
        return self._vfs.name

    def kill(self) -> None:
        """End every program that uses the disk: nothing that they still do reaches it, their locks are gone.

        What they had written and not synced is still in the cache of the operating system, as uncertain as before.
        A connection abandoned after a fault closes when it is collected; kill first, or that may fail aloud.
        """
        if self._vfs is not None:
            self._vfs.end()
            self._vfs = None

    def sync_directory(self, directory: str | Path = "") -> None:
        """Sync a directory; a store calls this in place of opening and fsyncing its directory.

        Raises OSError, as that would, where the call was made to fail.
        """
        try:
            self._cache.sync_names("" if str(directory) == "." else str(directory))
        except apsw.Error as error:
            raise OSError(errno.EIO, "injected error of a directory sync", str(directory)) from error

    @property
    def files(self) -> dict[str, bytes]:
        """Return what programs see now, by name."""
        return self._cache.files()

    def save(self, directory: Path) -> None:
        """Write the files into a real directory, to look at them with other tools."""
        for name, content in self.files.items():
            (directory / basename(name)).write_bytes(content)

    @property
    def operations(self) -> int:
        """Return how many operations changed or synced something: the moments at which power can be lost."""
        return len(self._cache.record)

    @property
    def record(self) -> Sequence[Operation]:
        """Return these operations."""
        return tuple(self._cache.record)

    def mark(self, fact: object) -> None:
        """Note that `fact` has been acknowledged: from here on it must survive."""
        self._marks.append((self.operations, fact))

    def marked(self, *, at: int | None = None) -> tuple[object, ...]:
        """Return the facts acknowledged by the time that `at` operations had been issued; None means now."""
        until = self.operations if at is None else at
        return tuple(fact for marked_at, fact in self._marks if marked_at <= until)

    @property
    def calls(self) -> int:
        """Return how many calls were made, reads included: the moments at which one can fail."""
        return self._cache.faults.calls

    @property
    def failed(self) -> Sequence[tuple[int, DiskCall]]:
        """Return the number and kind of each call that was made to fail."""
        return tuple(self._cache.faults.failed)

    def fail(
        self,
        *,
        at: int = 0,
        calls: frozenset[DiskCall] = EVERY_CALL,
        error: int | None = None,
        times: int | None = 1,
    ) -> None:
        """Make the first of `calls` from number `at` on fail, and as many after it as make up `times`.

        `error` is an SQLite result code; None means the one that belongs to the call.  `times` None means
        until `heal`.
        """
        self._cache.faults.add(at, error=error, times=times, calls=calls)

    def heal(self) -> None:
        """End all faults: nothing fails, the disk can be written and never fills up."""
        self._cache.faults.heal()
        self._cache.read_only = False
        self._cache.capacity_bytes = None

    def fill(self, *, free_bytes: int = 0) -> None:
        """Leave room for `free_bytes` more; a write that needs more fails with SQLITE_FULL, until `heal`."""
        self._cache.capacity_bytes = sum(map(len, self.files.values())) + free_bytes

    def write_protect(self) -> None:
        """Make every file that is opened from now on, and the directory, read-only, until `heal`."""
        self._cache.read_only = True

    def after_power_loss(
        self, *, at: int | None = None, survivals: Sequence[Survival] | None = None, chances: int = 4
    ) -> Iterator[Disk]:
        """Return the disks that may be left if power goes when `at` operations have been issued; None means now.

        `survivals` None means the extreme ones and `chances` random ones, which follow from the disk's seed.
        """
        moment = self.operations if at is None else at
        for image in self.images(start=moment, stop=moment + 1, survivals=survivals, chances=chances):
            yield image.disk(seed=self.seed)

    def images(
        self,
        *,
        start: int = 0,
        stop: int | None = None,
        survivals: Sequence[Survival] | None = None,
        chances: int = 4,
    ) -> Iterator[DiskImage]:
        """Return the same for each moment from `start` to before `stop` (None: up to now), in one pass of the record."""
        left = Platter(self._began_with)
        for at in range(self.operations + 1 if stop is None else stop):
            if at > 0:
                left.record(self._cache.record[at - 1])
            if at >= start:
                ways = survivals or left.survivals(seed=self.seed * 1_000_003 + at * 1_009, chances=chances)
                facts = self.marked(at=at)
                yield from (DiskImage(at, way, left.surviving(way), facts) for way in ways)


@dataclass(frozen=True, slots=True)
class DiskImage:
    """What a power loss left, and what had been acknowledged before."""

    at: int  # how many operations had been issued
    survival: Survival
    files: dict[str, bytes]
    acknowledged: tuple[object, ...]

    def disk(self, *, seed: int = 0) -> Disk:
        """Return a disk that holds it, ready for the next program."""
        return Disk(seed=seed, files=self.files)


Workload = Callable[[Disk], object]
Check = Callable[[Disk, Sequence[object]], object]


@dataclass(frozen=True, slots=True)
class Failure:
    """A power loss that the store did not survive, with all that is needed to make it again."""

    seed: int
    images: tuple[DiskImage, ...]  # the first from the workload, a second from the recovery
    error: Exception

    def __repr__(self) -> str:
        losses = " then ".join(f"at={image.at} {image.survival}" for image in self.images)
        return f"seed={self.seed} {losses}: {type(self.error).__name__}: {self.error}"


@dataclass(slots=True)
class Explored:
    """How much was tried, and what failed."""

    seed: int
    operations: int = 0
    images: int = 0  # disks checked, without those that equal one checked before
    recoveries: int = 0  # of these, the ones left by a power loss during recovery
    failures: list[Failure] = field(default_factory=list["Failure"])


def explore(
    workload: Workload,
    check: Check,
    *,
    seed: int = 0,
    chances: int = 4,
    recovery_share: float = 0.0,
    disk: Disk | None = None,
) -> Explored:
    """Run `workload` once and `check` on what each power loss could leave of it.

    `chances` is the number of random survivals tried at each operation besides the extreme ones;
    `recovery_share` the share of images whose recovery is interrupted too, at each of its operations.
    `disk` None means an honest and empty one.  What `check` raises is collected, not raised.
    """
    used = Disk(seed=seed) if disk is None else disk
    workload(used)
    used.kill()
    run = _Run(check, seed, chances, recovery_share)
    run.explored.operations = used.operations
    run.all(used.images(chances=chances), before=())
    return run.explored


class _Run:
    def __init__(self, check: Check, seed: int, chances: int, recovery_share: float) -> None:
        self.explored = Explored(seed)
        self._check, self._chances, self._recovery_share = check, chances, recovery_share
        self._seen: set[int] = set()
        self._chance = random.Random(seed)

    def all(self, images: Iterable[DiskImage], *, before: tuple[DiskImage, ...]) -> None:
        for image in images:
            facts = before[0].acknowledged if before else image.acknowledged
            known = hash((frozenset(image.files.items()), len(facts)))
            if known not in self._seen:
                self._seen.add(known)
                self._one(image, facts, before)

    def _one(self, image: DiskImage, facts: tuple[object, ...], before: tuple[DiskImage, ...]) -> None:
        disk = image.disk(seed=self.explored.seed + image.at)
        self.explored.images += 1
        self.explored.recoveries += bool(before)
        try:
            self._check(disk, facts)
        except Exception as error:  # noqa: BLE001  # any error of the store is a finding
            self.explored.failures.append(Failure(self.explored.seed, (*before, image), error))
        disk.kill()
        if not before and self._chance.random() < self._recovery_share:
            self.all(disk.images(chances=self._chances), before=(image,))


class PageCache:
    """What SQLite's calls act on.  The errors it raises are those of apsw."""

    def __init__(self, files: dict[str, bytes], *, seed: int) -> None:
        self.ignores_syncs = False
        self.read_only = False
        self.capacity_bytes: int | None = None
        self.faults = Faults()
        self.record: list[platter.Operation] = []
        self._contents = {file: bytearray(content) for file, content in enumerate(files.values())}
        self._names = {name: file for file, name in enumerate(files)}
        self._chance = random.Random(seed)

    def files(self) -> dict[str, bytes]:
        """Return what each name holds now."""
        return {name: bytes(self._contents[file]) for name, file in self._names.items()}

    def copy(self) -> PageCache:
        """Return the same files and numbers, without faults and apart from this one from now on."""
        copy = PageCache({}, seed=0)
        copy._contents = {file: bytearray(content) for file, content in self._contents.items()}
        copy._names = dict(self._names)
        return copy

    def meet(self, call: DiskCall) -> None:
        """Count a call; raises the error that was injected for it."""
        error = self.faults.meet(call)
        if error is not None:
            raise error

    def exists(self, name: str) -> bool:
        """True if there is a file of this name."""
        self.meet(DiskCall.ACCESS)
        return name in self._names

    def open(self, name: str | None, *, create: bool) -> int:
        """Return the number of the file of that name, made if need be; None is a temporary file, which has no name."""
        known = None if name is None else self._names.get(name)
        self.meet(DiskCall.OPEN if known is not None else DiskCall.CREATE)
        if known is not None:
            return known
        if not create:
            raise apsw.exception_for(apsw.SQLITE_CANTOPEN)
        if self.read_only and name is not None:
            raise apsw.exception_for(apsw.SQLITE_READONLY_DIRECTORY)
        return self._create(name)

    def _create(self, name: str | None) -> int:
        file = len(self._contents)
        self._contents[file] = bytearray()
        if name is not None:
            self._names[name] = file
            self.record.append(platter.Create(name, file))
        return file

    def read(self, file: int, amount: int, offset: int) -> bytes:
        """Return up to `amount` bytes from `offset`."""
        self.meet(DiskCall.READ)
        return bytes(self._contents[file][offset : offset + amount])

    def size(self, file: int) -> int:
        """Return the length of the file."""
        self.meet(DiskCall.SIZE)
        return len(self._contents[file])

    def write(self, file: int, offset: int, data: bytes, *, named: bool) -> None:
        """Write.  If it raises, the beginning of `data` may have been written."""
        error = self.faults.meet(DiskCall.WRITE)
        room = self._room(file, offset, len(data))
        if error is None and room < len(data):
            error = apsw.exception_for(apsw.SQLITE_FULL)
        written = data if error is None else data[: self._chance.randint(0, room)]
        if written:
            platter.write_into(self._contents[file], offset, written)
        if written and named:
            self.record.append(platter.WriteOp(file, offset, written))
        if error is not None:
            raise error

    def _room(self, file: int, offset: int, length: int) -> int:
        """Return how many of `length` bytes at `offset` still fit on the disk."""
        if self.capacity_bytes is None:
            return length
        used = sum(len(self._contents[each]) for each in self._names.values())
        end = len(self._contents[file]) + max(0, self.capacity_bytes - used)
        return max(0, min(length, end - offset))

    def truncate(self, file: int, size: int, *, named: bool) -> None:
        """Cut the file, or grow it with zeros."""
        self.meet(DiskCall.TRUNCATE)
        platter.resize(self._contents[file], size)
        if named:
            self.record.append(platter.Truncate(file, size))

    def sync(self, file: int, *, named: bool) -> None:
        """Make what was written to the file certain.  If it raises, this stays in doubt for good."""
        error = self.faults.meet(DiskCall.SYNC)
        if named and not self.ignores_syncs:
            self.record.append(platter.Sync(file, failed=error is not None))
        if error is not None:
            raise error

    def delete(self, name: str, *, sync: bool) -> None:
        """Take the name away; `sync` makes that certain.  If the sync raises, it is gone but not certainly."""
        self.meet(DiskCall.DELETE)
        if name not in self._names:
            raise apsw.exception_for(apsw.SQLITE_IOERR_DELETE_NOENT)
        del self._names[name]
        self.record.append(platter.DeleteOp(name))
        if sync:
            self.sync_names(dirname(name))

    def sync_names(self, directory: str) -> None:
        """Make the names in `directory` certain.  If it raises, they are as uncertain as before."""
        self.meet(DiskCall.SYNC_DIRECTORY)
        if not self.ignores_syncs:
            self.record.append(platter.SyncDirectory(directory))


_JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
_WRITABLE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
_CHARACTERISTICS = apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE | apsw.SQLITE_IOCAP_SUBPAGE_READ
_SECTOR_BYTES_REPORTED = 4096

_numbers = itertools.count()


class DiskVfs(apsw.VFS):
    """One life of the programs that use a disk; after `end`, nothing that they do reaches it."""

    def __init__(self, cache: PageCache) -> None:
        self.name = f"perdure-disk-{next(_numbers)}"
        self.locks: dict[int, dict[DiskFile, int]] = {}
        self.cache = cache
        # Time, sleep and random numbers come from the default VFS.
        super().__init__(self.name, base="")

    def end(self) -> None:
        """Separate the programs of this life from the disk: they go on with a private copy."""
        self.cache = self.cache.copy()
        self.unregister()

    def xFullPathname(self, name: str) -> str:
        return name

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        create = bool(flags[0] & apsw.SQLITE_OPEN_CREATE)
        number = self.cache.open(path, create=create)
        flags[1] = flags[0]
        if self.cache.read_only and path is not None:
            flags[1] = flags[0] & ~_WRITABLE | apsw.SQLITE_OPEN_READONLY
        file = DiskFile(self, number, path)
        file.syncs_directory = create and bool(flags[0] & _JOURNALS)
        # Any object with the methods will do; only the type stub asks for this class.
        return cast("apsw.VFSFile", cast("object", file))

    def xAccess(self, pathname: str, flags: int) -> bool:
        denied = flags == apsw.SQLITE_ACCESS_READWRITE and self.cache.read_only
        return self.cache.exists(pathname) and not denied

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.cache.delete(filename, sync=syncdir)


class DiskFile:
    """An open file, as SQLite calls it."""

    def __init__(self, vfs: DiskVfs, number: int, path: str | None) -> None:
        self.syncs_directory = False  # with its next sync
        self._vfs, self._number, self._path = vfs, number, path
        self._named = path is not None

    def xRead(self, amount: int, offset: int) -> bytes:
        return self._vfs.cache.read(self._number, amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._vfs.cache.write(self._number, offset, bytes(data), named=self._named)

    def xTruncate(self, newsize: int) -> None:
        self._vfs.cache.truncate(self._number, newsize, named=self._named)

    def xSync(self, flags: int) -> None:
        self._vfs.cache.sync(self._number, named=self._named)
        if self.syncs_directory and self._path is not None:
            self.syncs_directory = False
            self._sync_directory(dirname(self._path))

    def _sync_directory(self, directory: str) -> None:
        try:
            self._vfs.cache.sync_names(directory)
        except apsw.Error:
            return  # as the unix VFS does: some systems cannot sync a directory

    def xFileSize(self) -> int:
        return self._vfs.cache.size(self._number)

    def xClose(self) -> None:
        self._vfs.locks.get(self._number, {}).pop(self, None)

    def xLock(self, level: int) -> None:
        held = self._vfs.locks.setdefault(self._number, {})
        others = max(
            (other for file, other in held.items() if file is not self), default=apsw.SQLITE_LOCK_NONE
        )
        if others >= _blocking(level):
            if level == apsw.SQLITE_LOCK_EXCLUSIVE and others == apsw.SQLITE_LOCK_SHARED:
                held[self] = apsw.SQLITE_LOCK_PENDING
            raise apsw.exception_for(apsw.SQLITE_BUSY)
        held[self] = max(level, held.get(self, apsw.SQLITE_LOCK_NONE))

    def xUnlock(self, level: int) -> None:
        self._vfs.locks.setdefault(self._number, {})[self] = level

    def xCheckReservedLock(self) -> bool:
        held = self._vfs.locks.get(self._number, {})
        return any(level >= apsw.SQLITE_LOCK_RESERVED for level in held.values())

    def xFileControl(self, op: int, ptr: int) -> bool:
        return False

    def xDeviceCharacteristics(self) -> int:
        return _CHARACTERISTICS

    def xSectorSize(self) -> int:
        return _SECTOR_BYTES_REPORTED


def _blocking(level: int) -> int:
    """Return the lowest lock of another that keeps `level` from being taken."""
    if level == apsw.SQLITE_LOCK_SHARED:
        return apsw.SQLITE_LOCK_PENDING
    if level == apsw.SQLITE_LOCK_RESERVED:
        return apsw.SQLITE_LOCK_RESERVED
    return apsw.SQLITE_LOCK_SHARED
