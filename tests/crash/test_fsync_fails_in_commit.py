"""An fsync fails inside COMMIT, the caller looks the write up, the process dies, the store is reopened.

SQLite may find the frames of a failed COMMIT again when it recovers.  So "nothing was
written" and "there is no such write" are said only behind a barrier that overwrites them;
what could not be settled is said to be in doubt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perdure.engines.contract import Engine, Write
from perdure.engines.sqlite.commit.group import WriteGroup
from perdure.errors import InDoubt, PerdureError, Unavailable
from perdure.testing.disk import Disk, DiskCall
from perdure.testing.engines.builders import SPACE, START, made, moved, value, write
from tests.crash.campaign import SEED, sized
from tests.crash.on_disk import engine_on, group_of

SYNC = frozenset({DiskCall.SYNC})
WRITES = sized(6, 12)
IMAGES = sized(2, 40)  # random power losses after each run, besides the extreme ones


@dataclass
class Told:
    """What callers were told about writes, by op_id; the last word counts."""

    present: set[str] = field(default_factory=set[str])
    absent: set[str] = field(default_factory=set[str])
    doubtful: set[str] = field(default_factory=set[str])

    def note(self, op_id: str, answer: set[str]) -> None:
        """Remember what was said."""
        for each in (self.present, self.absent, self.doubtful):
            each.discard(op_id)
        answer.add(op_id)

    def lies(self, engine: Engine) -> list[str]:
        """What the store now says otherwise."""
        there = {op_id for op_id in self.present | self.absent if engine.recorded(SPACE, op_id)}
        lost = [f"'{op_id}' was acknowledged and is gone" for op_id in sorted(self.present - there)]
        return lost + [f"'{op_id}' was absent and came back" for op_id in sorted(self.absent & there)]


def writes() -> Iterator[Write]:
    """Writes of one page and of many, that do not depend on each other."""
    for number in range(WRITES):
        size = (50, 9_000, 60_000)[number % 3]
        yield write(f"op {number}", value(f"{number} " * (size // 2)))


def make(engine: Engine, wanted: Write, told: Told) -> bool:
    """Make one write as a caller would; whether it was acknowledged."""
    try:
        engine.apply(wanted)
    except InDoubt:
        told.note(wanted.op_id, told.doubtful)
    except Unavailable:  # which says that nothing was written
        told.note(wanted.op_id, told.absent)
    else:
        told.note(wanted.op_id, told.present)
        return True
    return False


def look_up(engine: Engine, op_id: str, told: Told) -> None:
    """Ask for the outcome of a write."""
    try:
        found = engine.recorded(SPACE, op_id)
    except InDoubt:
        told.note(op_id, told.doubtful)
    else:
        told.note(op_id, told.present if found else told.absent)


def live(disk: Disk, lock: Path, *, goes_on: bool) -> Told:
    """One life of a program: it writes, looks up what failed, ends or goes on with the rest, and is killed."""
    told = Told()
    try:
        with engine_on(disk, lock) as engine:
            for wanted in writes():
                if not make(engine, wanted, told):
                    look_up(engine, wanted.op_id, told)
                    if not goes_on:
                        break
            disk.kill()
    except PerdureError:
        disk.kill()  # it could not even be opened: no write was acknowledged
    return told


def lives(
    lock: Path, *, times: int | None, goes_on: bool, edit: str | None = None
) -> Iterator[tuple[Disk, Told]]:
    """That life once for each sync it makes, which fails, as do those after it up to `times`; the disk then works.

    `edit` is SQL that another program has run on the file before; None: there is no file yet.
    """
    at = 0
    while True:
        disk = Disk(seed=SEED)
        if edit is not None:
            with engine_on(disk, lock) as engine:
                group_of(engine)._db.execute(edit)
        disk.fail(at=max(at, disk.calls), calls=SYNC, times=times)
        told = live(disk, lock, goes_on=goes_on)
        if not disk.failed:
            return
        at = disk.failed[0][0] + 1
        disk.heal()
        yield disk, told


def lies_after(disk: Disk, lock: Path, told: Told) -> list[str]:
    """What the next program finds otherwise than it was told."""
    with engine_on(disk, lock) as engine:
        return [f"{lie} (failed calls {disk.failed}, seed {SEED})" for lie in told.lies(engine)]


@pytest.mark.parametrize("goes_on", [False, True], ids=["then killed", "goes on, then killed"])
@pytest.mark.parametrize("times", [1, 2, 3, None], ids=["COMMIT", "and the barrier", "and the next", "all"])
def test_what_was_absent_never_comes_back(lock: Path, times: int | None, goes_on: bool) -> None:
    """Whichever fsync fails, the next process finds what the callers were told."""
    runs = 0
    for disk, told in lives(lock, times=times, goes_on=goes_on):
        runs += 1

        assert lies_after(disk, lock, told) == []

    assert runs > WRITES


@pytest.mark.parametrize("goes_on", [False, True], ids=["then killed", "goes on, then killed"])
def test_nor_does_it_in_a_file_without_the_row_of_the_barrier(lock: Path, goes_on: bool) -> None:
    """An edit that removed the row does not make the barrier a transaction that writes nothing."""
    runs = 0
    for disk, told in lives(lock, times=1, goes_on=goes_on, edit="DELETE FROM meta WHERE name='barrier'"):
        runs += 1

        assert lies_after(disk, lock, told) == []

    assert runs >= WRITES


@pytest.mark.parametrize("times", [1, 2, None], ids=["COMMIT", "and the barrier", "all"])
def test_nor_does_it_when_power_is_lost(lock: Path, times: int | None) -> None:
    """The same for every disk that a power loss leaves instead of a kill: the barrier is durable."""
    left = 0
    for disk, told in lives(lock, times=times, goes_on=True):
        for image in disk.after_power_loss(chances=IMAGES):
            left += 1

            assert lies_after(image, lock, told) == []

    assert left > WRITES


def test_one_failed_fsync_is_settled_at_once(lock: Path) -> None:
    """The barrier passes, so no caller is left in doubt, and the same write can be made again."""
    tolds = [told for _, told in lives(lock, times=1, goes_on=True)]

    assert not any([told.doubtful for told in tolds])
    assert sum(len(told.absent) for told in tolds) >= WRITES - 1


def test_what_the_barrier_cannot_settle_is_in_doubt(lock: Path) -> None:
    """While syncs go on failing, neither the writer nor any other caller reads that there is nothing."""
    tolds = [told for _, told in lives(lock, times=None, goes_on=False)]

    assert sum(len(told.doubtful) for told in tolds) >= WRITES - 1
    assert not any([told.absent for told in tolds])


def test_what_was_in_doubt_is_settled_by_repeating_it(lock: Path) -> None:
    """After reopening, the same write with the same op_id is true once."""
    repeated = 0
    for disk, told in lives(lock, times=None, goes_on=False):
        with engine_on(disk, lock) as engine:
            for wanted in writes():
                if wanted.op_id in told.doubtful:
                    repeated += 1
                    assert engine.apply(wanted) == engine.apply(wanted)

    assert repeated >= WRITES - 1


def test_a_head_in_doubt_stands_where_the_repetition_says(lock: Path) -> None:
    """A commit whose fsync failed moves the head once, whether it had arrived or not."""
    first = made("milk")
    wanted = write("milk", first, moved(START, first))
    disk = Disk(seed=SEED)
    with engine_on(disk, lock) as engine:
        disk.fail(at=disk.calls, calls=SYNC, times=None)
        with pytest.raises(InDoubt):
            engine.apply(wanted)
        disk.kill()
    disk.heal()

    with engine_on(disk, lock) as engine:
        receipt = engine.apply(wanted)

        hold = engine.hold(SPACE, "main")
        assert hold is not None
        assert hold.head == receipt.heads[0]
        assert hold.head.version == 1


@pytest.mark.parametrize("goes_on", [False, True])
def test_control_without_the_barrier_a_write_comes_back(
    lock: Path, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that only rolls back says "nothing was written" of writes that the next process finds."""

    def no_barrier(self: WriteGroup, doing: str) -> None:
        self._in_doubt = False

    monkeypatch.setattr(WriteGroup, "_barrier", no_barrier)
    lies: list[str] = []
    for disk, told in lives(lock, times=1, goes_on=goes_on):
        lies += lies_after(disk, lock, told)

    assert any(["was absent and came back" in lie for lie in lies])
