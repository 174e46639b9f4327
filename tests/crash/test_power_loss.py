"""Power is lost at every file operation of a day's work, and again during the recovery from it.

What was written and not synced is kept, dropped, torn or garbled, and names in a directory
that was not synced are lost.  No acknowledged step is ever lost, and nothing is damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import cast

import pytest

from perdure import Store
from perdure.engines.sqlite.commit import group
from perdure.engines.sqlite.format import index
from perdure.testing.disk import Check, Disk, Explored, Workload, explore
from perdure.testing.disk.platter import WriteOp
from tests.crash import day
from tests.crash.campaign import SEED, sized
from tests.crash.day import Fact
from tests.crash.on_disk import FILE, store_on

TURNS = sized(2, 6)
SEEDS = [SEED + number for number in range(sized(1, 4))]
CHANCES = sized(1, 12)  # random survivals at each operation, besides the extreme ones
VERIFIED_EVERY = 25  # how many images one is verified whole of


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make checkpoints and the sorting-in of keys happen often enough to be interrupted."""
    monkeypatch.setattr(group, "_CHECKPOINT_EVERY_PAGES", 25)
    monkeypatch.setattr(index, "_BATCH_MIN", 60)


def worked(lock: Path, *, durable: bool = True, turns: int = TURNS) -> Workload:
    """A workload that does a day's work and marks each fact when it was acknowledged."""

    def workload(disk: Disk) -> None:
        with store_on(disk, lock, clock=day.clock(), ids=day.ids(), durable=durable) as store:
            for _, step in day.day(turns=turns):
                for fact in step(store):
                    disk.mark(fact)

    return workload


def intact(lock: Path, *, durable: bool = True, every: int = 1) -> Check:
    """A check that every acknowledged fact holds and nothing is damaged; now and then everything is verified.

    It looks at each `every`-th image.
    """
    images = count()

    def check(disk: Disk, acknowledged: Sequence[object]) -> None:
        number, rest = divmod(next(images), every)
        if rest:
            return
        with store_on(disk, lock, clock=day.clock(), ids=day.ids("again"), durable=durable) as store:
            assert damage(store) == "ok"
            for fact in cast("Sequence[Fact]", acknowledged):
                fact.check(store)
            if number % VERIFIED_EVERY == 0:
                assert store.verify().faults == ()
                store.thread("after", agent="planner").put("/still.json", "writable")

    return check


def damage(store: Store) -> object:
    """What SQLite itself says about the file."""
    engine = store._resources.engine
    return engine._connections.writer.pragma("integrity_check")  # pyright: ignore[reportAttributeAccessIssue]


def losses(explored: Explored) -> list[str]:
    """What was not survived, with what it takes to make it happen again."""
    return [repr(failure) for failure in explored.failures]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_power_loss_loses_an_acknowledged_step(lock: Path, seed: int) -> None:
    """At whichever operation it comes, and whatever of the unsynced survives it."""
    explored = explore(worked(lock), intact(lock, every=sized(7, 1)), seed=seed, chances=CHANCES)

    assert losses(explored) == []
    assert explored.images > explored.operations > 50 * TURNS


@pytest.mark.parametrize("seed", SEEDS[: sized(1, 2)])
def test_nor_does_a_second_one_during_recovery(lock: Path, seed: int) -> None:
    """Recovery, the finishing of what was begun, and the first writes after it can be interrupted as well."""
    explored = explore(
        worked(lock),
        intact(lock, every=sized(3, 1)),
        seed=seed,
        chances=sized(0, 1),
        recovery_share=sized(0.005, 0.03),
    )

    assert losses(explored) == []
    assert explored.recoveries > sized(10, 100)


def test_a_day_holds_checkpoints_and_sorting_in(lock: Path) -> None:
    """Control: the operations that are interrupted include those that happen rarely."""
    disk = Disk(seed=SEED)
    worked(lock)(disk)

    files = [operation.file for operation in disk.record if isinstance(operation, WriteOp)]
    with store_on(disk, lock, clock=day.clock(), ids=day.ids("again")) as store:
        engine = store._resources.engine
        upto = engine._connections.writer.execute(  # pyright: ignore[reportAttributeAccessIssue]
            "SELECT value FROM meta WHERE name='indexed_upto'"
        ).get

    database = list(disk.files).index(FILE)
    assert files[: len(files) // 2].count(database) > 10
    assert upto > 5


def test_control_without_a_sync_at_each_commit_steps_are_lost(lock: Path) -> None:
    """With durability="process_crash" (synchronous=NORMAL) acknowledged steps go; the file stays whole."""
    explored = explore(
        worked(lock, durable=False, turns=2),
        intact(lock, durable=False, every=sized(7, 1)),
        seed=SEED,
        chances=0,
    )

    assert len(explored.failures) > sized(6, 50)


def test_control_a_disk_that_ignores_syncs_loses_steps(lock: Path) -> None:
    """What is promised is worth what the disk's syncs are worth."""
    disk = Disk(seed=SEED, ignores_syncs=True)

    explored = explore(
        worked(lock, turns=2), intact(lock, every=sized(7, 1)), seed=SEED, chances=0, disk=disk
    )

    assert len(explored.failures) > sized(6, 50)
