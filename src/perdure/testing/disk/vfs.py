"""How SQLite reaches a simulated disk: an apsw VFS and its files.

Which operations are made durable follows SQLite's unix VFS: a journal or WAL that was opened for creation
syncs its directory once, after its own first sync, and ignores an error in that; a delete syncs the
directory if asked to; the database file never does.

Exceptions made with `apsw.exception_for` reach SQLite as their result code, and the caller as they are.
"""

# ruff: noqa: N802  # SQLite names the methods

from __future__ import annotations

import itertools
from posixpath import dirname
from typing import cast

import apsw

from perdure.testing.disk.cache import PageCache

__all__ = ["DiskVfs"]

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
        """Cut the programs of this life off: they go on with a copy that nobody else sees."""
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
    """The lowest lock of another that keeps `level` from being taken."""
    if level == apsw.SQLITE_LOCK_SHARED:
        return apsw.SQLITE_LOCK_PENDING
    if level == apsw.SQLITE_LOCK_RESERVED:
        return apsw.SQLITE_LOCK_RESERVED
    return apsw.SQLITE_LOCK_SHARED
