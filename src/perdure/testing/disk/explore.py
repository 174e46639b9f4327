"""Power loss at every operation of a workload, and again at every operation of the recovery from it.

The workload runs once.  It marks on the disk each fact that was acknowledged (`disk.mark`).  Then every
disk that a power loss could have left is given to the check, with the facts acknowledged up to that moment.
The check opens the store as a program would and raises if a fact is missing or anything is damaged.

Opening is what recovers a store, so the check's own operations are the record of the recovery; a share of
them is replayed with power lost in the middle, and checked again with the same facts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from perdure.testing.disk.device import Disk, DiskImage

__all__ = ["Check", "Explored", "Failure", "Workload", "explore"]

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
        except Exception as error:  # noqa: BLE001  # whatever the store raises is what we came to find
            self.explored.failures.append(Failure(self.explored.seed, (*before, image), error))
        disk.kill()
        if not before and self._chance.random() < self._recovery_share:
            self.all(disk.images(chances=self._chances), before=(image,))
