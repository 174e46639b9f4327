"""The n-th call to the disk fails, once or for ever, with EIO or ENOSPC, for every n.

The program meets typed errors only and never hangs.  Whatever was acknowledged is kept, and
doing each failed step again with its op_ids, after reopening where the fault is for ever,
ends in the very state that a day without faults ends in: nothing lost, nothing doubled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest

from perdure import Head, Store
from perdure.engines.contract import Move, Receipt, Write
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.commit import group
from perdure.engines.sqlite.format import index
from perdure.errors import InDoubt, PerdureError, Unavailable
from perdure.testing.disk import Disk, DiskCall
from tests.crash import day
from tests.crash.campaign import SEED, sized
from tests.crash.day import Fact
from tests.crash.on_disk import store_on

TURNS = sized(2, 5)
TRIES_MAX = 3
LIFE_SECONDS_MAX = 25.0  # waiting for a lock would take 30; a life takes some hundredths of a second

EVERY = frozenset(DiskCall)
SPACE_TAKING = frozenset({DiskCall.WRITE, DiskCall.TRUNCATE, DiskCall.SYNC, DiskCall.CREATE})

# Which calls fail, how, how often, and how many of them one is tried of.
FAULTS = {
    "EIO once": (EVERY, None, 1, sized(43, 1)),
    "EIO for ever": (EVERY, None, None, sized(61, 1)),
    "ENOSPC once": (SPACE_TAKING, apsw.SQLITE_FULL, 1, sized(61, 1)),
    "ENOSPC for ever": (SPACE_TAKING, apsw.SQLITE_FULL, None, sized(61, 1)),
}


@dataclass
class Life:
    """What one program did until it could do no more."""

    acknowledged: list[Fact] = field(default_factory=list[Fact])
    met: list[PerdureError] = field(default_factory=list[PerdureError])
    seconds: float = 0.0


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make checkpoints and the sorting-in of keys happen often enough to fail."""
    monkeypatch.setattr(group, "_CHECKPOINT_EVERY_PAGES", 25)
    monkeypatch.setattr(index, "_BATCH_MIN", 60)


def live(disk: Disk, lock: Path, ids: str, *, tries: int = TRIES_MAX) -> Life:
    """Do a day's work, each step again if it fails, until `tries` were in vain; what was done before is done again."""
    life, began = Life(), time.monotonic()
    for _ in range(tries):
        try:
            with store_on(disk, lock, clock=day.clock(), ids=day.ids(ids)) as store:
                _work(store, life, tries)
                break
        except PerdureError as error:
            life.met.append(error)
    disk.kill()
    life.seconds = time.monotonic() - began
    return life


def _work(store: Store, life: Life, tries: int) -> None:
    for _, step in day.day(turns=TURNS):
        for left in reversed(range(tries)):
            try:
                life.acknowledged += step(store)
                break
            except PerdureError as error:
                life.met.append(error)
                if left == 0:
                    return


def faultless(lock: Path) -> dict[str, object]:
    """Return the outcome of a day without faults."""
    disk = Disk(seed=SEED)
    live(disk, lock, "faultless")
    with store_on(disk, lock, clock=day.clock(), ids=day.ids("look")) as store:
        return day.portrait(store)


def failing(name: str, *, every: int | None = None) -> Iterator[Disk]:
    """A disk for each call that is to fail, or for one of `every`, until a day passes without meeting it."""
    calls, error, times, usual = FAULTS[name]
    every = every or usual
    at = SEED % every
    while True:
        disk = Disk(seed=SEED + at)
        disk.fail(at=at, calls=calls, error=error, times=times)
        yield disk
        if not disk.failed:
            return
        at = disk.failed[0][0] + every


@pytest.mark.parametrize("fault", FAULTS)
def test_whichever_call_fails_the_day_comes_to_the_same(lock: Path, fault: str) -> None:
    """Facts hold after reopening, and the repeated steps complete the day without doubling anything."""
    wanted, lives = faultless(lock), 0
    for disk in failing(fault):
        life = live(disk, lock, "first")
        failed = f"{fault}: {disk.failed[:1]}, seed {disk.seed}"
        disk.heal()

        with store_on(disk, lock, clock=day.clock(), ids=day.ids("look")) as store:
            for fact in life.acknowledged:
                fact.check(store)
        assert live(disk, lock, "second").met == [], failed
        with store_on(disk, lock, clock=day.clock(), ids=day.ids("look")) as store:
            assert day.portrait(store) == wanted, failed
            assert store.verify().faults == (), failed
        assert life.seconds < LIFE_SECONDS_MAX, failed
        lives += 1

    assert lives > sized(5, 20)


@pytest.mark.parametrize("fault", ["EIO once", "ENOSPC once"])
def test_a_fault_that_passes_is_got_over_without_reopening(lock: Path, fault: str) -> None:
    """The steps that failed are done again by the same program, which goes on to the end of the day."""
    wanted = faultless(lock)
    for disk in failing(fault):
        life = live(disk, lock, "first")
        disk.heal()

        with store_on(disk, lock, clock=day.clock(), ids=day.ids("look")) as store:
            assert day.portrait(store) == wanted, f"{disk.failed}, {life.met}"


def test_a_full_disk_is_called_full(lock: Path) -> None:
    """A caller that meets ENOSPC reads it in the error, or the error says that the write is in doubt."""
    for disk in failing("ENOSPC for ever"):
        life = live(disk, lock, "first")

        for error in life.met:
            assert "full" in str(error) or isinstance(error, InDoubt), f"{error!r} {disk.failed[:1]}"


def test_control_a_write_acknowledged_before_its_commit_is_lost(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that answers whatever the outcome of the COMMIT loses facts to a failing call, and this is found."""
    apply = SqliteEngine.apply

    def hasty(self: SqliteEngine, write: Write) -> Receipt:
        try:
            return apply(self, write)
        except Unavailable:
            heads = tuple(Head(move.timeline, _next(move), move.to) for move in write.moves)
            return Receipt(op_id=write.op_id, heads=heads, revisions=(1,) * len(write.cells))

    monkeypatch.setattr(SqliteEngine, "apply", hasty)
    lost = 0
    for disk in failing("EIO for ever", every=sized(13, 1)):
        life = live(disk, lock, "first")
        disk.heal()
        lost += is_lost(disk, lock, life)

    assert lost > 0


def _next(move: Move) -> int:
    return 0 if move.expected is None else move.expected.version + 1


def is_lost(disk: Disk, lock: Path, life: Life) -> bool:
    """Whether a fact that the program was told does not hold."""
    with store_on(disk, lock, clock=day.clock(), ids=day.ids("look")) as store:
        for fact in life.acknowledged:
            try:
                fact.check(store)
            except (AssertionError, PerdureError):
                return True
    return False
