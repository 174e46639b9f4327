"""The simulated disk as a test holds it: its VFS name, its faults, its record, and what a power loss leaves.

From the record of operations it makes, for any moment, the disks that a power loss at this moment could
leave; each becomes a `Disk` again, with a record of its own.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import basename

import apsw

from perdure.testing.disk.cache import PageCache
from perdure.testing.disk.faults import EVERY_CALL, DiskCall
from perdure.testing.disk.platter import Operation, Platter, Survival
from perdure.testing.disk.vfs import DiskVfs

__all__ = ["Disk", "DiskImage"]


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
        """A disk that certainly holds `files`; None means that it is empty.

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
        """The name to give to SQLite.  It is another one after each `kill`."""
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
        """What a store calls in place of opening and fsyncing its directory.

        Raises OSError, as that would, where the call was made to fail.
        """
        try:
            self._cache.sync_names("" if str(directory) == "." else str(directory))
        except apsw.Error as error:
            raise OSError(errno.EIO, "injected error of a directory sync", str(directory)) from error

    @property
    def files(self) -> dict[str, bytes]:
        """What programs see now, by name."""
        return self._cache.files()

    def save(self, directory: Path) -> None:
        """Write the files into a real directory, to look at them with other tools."""
        for name, content in self.files.items():
            (directory / basename(name)).write_bytes(content)

    @property
    def operations(self) -> int:
        """How many operations changed or synced something: the moments at which power can be lost."""
        return len(self._cache.record)

    @property
    def record(self) -> Sequence[Operation]:
        """These operations."""
        return tuple(self._cache.record)

    def mark(self, fact: object) -> None:
        """Note that `fact` has been acknowledged: from here on it must survive."""
        self._marks.append((self.operations, fact))

    def marked(self, *, at: int | None = None) -> tuple[object, ...]:
        """The facts acknowledged by the time that `at` operations had been issued; None means now."""
        until = self.operations if at is None else at
        return tuple(fact for marked_at, fact in self._marks if marked_at <= until)

    @property
    def calls(self) -> int:
        """How many calls were made, reads included: the moments at which one can fail."""
        return self._cache.faults.calls

    @property
    def failed(self) -> Sequence[tuple[int, DiskCall]]:
        """The number and kind of each call that was made to fail."""
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
        """The disks that may be left if power goes when `at` operations have been issued; None means now.

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
        """The same for each moment from `start` to before `stop` (None: up to now), in one pass of the record."""
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
        """A disk that holds it, ready for the next program."""
        return Disk(seed=seed, files=self.files)
