"""How SQLite reaches a simulated disk: an apsw VFS, its files, and the cache of the operating system behind them.

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

import itertools
import random
from posixpath import dirname
from typing import cast

import apsw

from perdure.testing.disk import platter
from perdure.testing.disk.faults import DiskCall, Faults

__all__ = ["DiskVfs", "PageCache"]


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
