"""The files as programs see them, from the cache of the operating system, and the record of all that was done.

Only what changes or syncs a named file is recorded, since only that matters to a power loss; every call is
counted, since every call can fail.  A failed write may have written its beginning; a failed sync leaves what
it covered in doubt, whatever is synced later; any other call that fails has done nothing.
"""

from __future__ import annotations

import random
from posixpath import dirname

import apsw

from perdure.testing.disk import platter
from perdure.testing.disk.faults import DiskCall, Faults

__all__ = ["PageCache"]


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
        """What each name holds now."""
        return {name: bytes(self._contents[file]) for name, file in self._names.items()}

    def copy(self) -> PageCache:
        """The same files and numbers, without faults and apart from this one from now on."""
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
        """Whether `name` stands for a file."""
        self.meet(DiskCall.ACCESS)
        return name in self._names

    def open(self, name: str | None, *, create: bool) -> int:
        """The number of the file of that name, made if need be; None is a temporary file, which has no name."""
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
        """Up to `amount` bytes from `offset`."""
        self.meet(DiskCall.READ)
        return bytes(self._contents[file][offset : offset + amount])

    def size(self, file: int) -> int:
        """The length of the file."""
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
        """How many of `length` bytes at `offset` still fit on the disk."""
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
