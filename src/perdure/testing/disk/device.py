"""The simulated disk as a test uses it, and the exploration of every power loss.

From the record of operations a disk makes, for any moment, the disks that a power loss at this moment could leave;
each becomes a `Disk` again, with a record of its own.

`explore` runs a workload once.  The workload marks on the disk each fact that was acknowledged (`disk.mark`).  Then
`explore` gives every disk that a power loss could have left to the check, with the facts acknowledged up to that moment.
The check opens the store as a program would and raises if a fact is missing or anything is damaged.

Opening recovers a store, so the check's own operations are the record of the recovery; for a share of the images
`explore` loses power again in the middle of the recovery, and checks with the same facts.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import basename

import apsw

from perdure.testing.disk.faults import EVERY_CALL, DiskCall
from perdure.testing.disk.platter import Operation, Platter, Survival
from perdure.testing.disk.vfs import DiskVfs, PageCache

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
