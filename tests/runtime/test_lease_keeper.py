"""Leases are renewed while user code does what it likes, and given up before others may take over."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from perdure.engines.contract import CellWrite, Instant, Receipt, Write
from perdure.engines.memory import MemoryStore
from perdure.engines.sqlite import SqliteEngine
from perdure.errors import Unavailable
from perdure.history.space import Space
from perdure.model import canonical
from perdure.model.run import RunRecord
from perdure.runtime.session import lease as leases
from perdure.runtime.session.lease import Lease
from perdure.runtime.session.lease_keeper import HeldLease, LeaseKeeper
from tests.crash.processes import running
from tests.ledger.holders import Clocked, applied, space_on, take
from tests.runtime.owning import fork_while_keeping, keep

WAIT_SECONDS = 60.0  # far beyond what anything here takes


class Failing(Clocked):
    """An engine that can be made to refuse writes, and whose clock is also the owners'."""

    is_failing = False
    tries = 0

    def apply(self, write: Write) -> Receipt:
        """Refuse, if so told."""
        if self.is_failing:
            self.tries += 1
            raise Unavailable("the disk is full; nothing was written.")
        return super().apply(write)

    def seconds(self) -> float:
        """The same clock, for owners."""
        return self.now.at / 1_000_000


class Told:
    """What a run was told."""

    def __init__(self) -> None:
        self.lost = 0
        self.cancelled: list[str] = []

    def lose(self) -> None:
        """Count it."""
        self.lost += 1


@pytest.fixture
def store() -> MemoryStore:
    """What two openings share."""
    return MemoryStore()


@pytest.fixture
def engine(store: MemoryStore) -> Failing:
    """An engine with a clock to be set."""
    return Failing(store)


@pytest.fixture
def space(engine: Failing) -> Space:
    """A thread's space."""
    return space_on(engine)


@pytest.fixture
def owners(engine: Failing) -> Generator[LeaseKeeper]:
    """Owners on the engine's clock, who look often; at the end nothing is kept."""
    owners = LeaseKeeper(ttl=30, poll=0.005, clock=engine.seconds)
    yield owners
    for keeping in list(owners._kept.values()):
        keeping.release()
    until(lambda: owners._thread is None)


@pytest.fixture
def told() -> Told:
    """A run that listens."""
    return Told()


def until(fact: Callable[[], bool]) -> None:
    """Wait for something that is about to be true."""
    end = time.monotonic() + WAIT_SECONDS
    while not fact():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.001)


def ticks(owners: LeaseKeeper, count: int = 4) -> None:
    """Let the thread look a few times."""
    time.sleep(owners._tick * count + 0.02)


def held(owners: LeaseKeeper, space: Space, told: Told, lease: Lease | None = None) -> HeldLease:
    """Take `main` and keep it."""
    lease = lease or take(space, owners=owners)
    return owners.hold(lease, space=space, lost=told.lose, cancelled=told.cancelled.append)


def asked_to_stop(space: Space, why: str | None, expected: int) -> CellWrite:
    """The run's record, with what somebody asked of it."""
    record = RunRecord(
        id="run-1", agent="planner", timeline="main", state="running", at=0, begun_at=0, cancel=why
    )
    return CellWrite(name="run/run-1", expected=expected, value=canonical.encode_struct(record))


def test_a_lease_is_renewed_when_a_third_of_it_is_over(
    owners: LeaseKeeper, space: Space, engine: Failing, told: Told
) -> None:
    """Not before, and then for its whole length."""
    keeping = held(owners, space, told)
    first = keeping.lease
    engine.pass_(9)
    ticks(owners)
    assert keeping.lease == first

    engine.pass_(2)
    until(lambda: keeping.lease != first)

    assert keeping.lease == msgspec.structs.replace(first, until=engine.now.at + 30_000_000)
    assert leases.current(space, "main") == keeping.lease
    assert keeping.until_monotonic() == engine.seconds() + 30


def test_a_run_that_is_renewed_again_and_again_keeps_its_line(
    owners: LeaseKeeper, space: Space, engine: Failing, told: Told
) -> None:
    """However long it takes."""
    keeping = held(owners, space, told)

    for _ in range(20):
        before = keeping.lease
        engine.pass_(15)
        until(lambda before=before: keeping.lease != before)

    assert keeping.still_ours()
    assert told.lost == 0


def test_user_code_that_blocks_the_event_loop_loses_nothing(tmp_path: Path, told: Told) -> None:
    """The loop stands still for longer than a lease, and the lease is renewed all the same."""
    owners = LeaseKeeper(
        ttl=3.0, poll=0.05
    )  # a second passes before it is renewed, and two are left for a busy machine

    async def run(space: Space) -> bool:
        keeping = held(owners, space, told, take(space, ttl=3.0, owners=owners))
        time.sleep(4.0)  # user code that should have awaited
        await asyncio.sleep(0)
        return keeping.still_ours()

    with closing(SqliteEngine(tmp_path / "store.db")) as engine:
        assert asyncio.run(run(space_on(engine)))

    assert told.lost == 0


def test_a_lease_that_was_not_renewed_in_time_is_lost(
    owners: LeaseKeeper, space: Space, engine: Failing, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that slept through it gives up, even if no other has taken the line, and the log says so."""
    keeping = held(owners, space, told)

    engine.pass_(30)

    assert not keeping.still_ours()
    until(lambda: told.lost == 1)
    ticks(owners)
    assert told.lost == 1
    assert "lost its lease" in caplog.text
    assert leases.state(space, keeping.lease, owners=owners) == "expired"


def test_a_store_that_cannot_be_written_is_tried_again_until_the_lease_ends(
    owners: LeaseKeeper, space: Space, engine: Failing, told: Told
) -> None:
    """A short failure costs nothing, a long one the lease."""
    keeping = held(owners, space, told)
    first = keeping.lease
    engine.is_failing = True
    engine.pass_(25)
    until(lambda: engine.tries > 2)
    assert keeping.still_ours()

    engine.is_failing = False
    until(lambda: keeping.lease != first)
    engine.is_failing = True
    engine.pass_(29)
    ticks(owners)
    assert (told.lost, keeping.still_ours()) == (0, True)
    engine.pass_(1)

    until(lambda: told.lost == 1)
    assert not keeping.still_ours()


def test_a_line_that_another_took_is_lost(
    owners: LeaseKeeper, space: Space, store: MemoryStore, told: Told
) -> None:
    """The next renewal finds another epoch."""
    keeping = held(owners, space, told)
    other = Failing(store)
    other.pass_(3_600)
    take(space_on(other), after=keeping.lease)

    assert isinstance(space.engine, Failing)
    space.engine.pass_(11)

    until(lambda: told.lost == 1)
    assert not keeping.still_ours()


def test_a_run_that_let_its_line_go_is_not_told_that_it_lost_it(
    owners: LeaseKeeper, space: Space, engine: Failing, told: Told
) -> None:
    """A renewal may come just after the run's last write."""
    keeping = held(owners, space, told)
    applied(space, leases.releasing(keeping.lease))

    engine.pass_(11)

    until(lambda: keeping.is_over)
    assert told.lost == 0


def test_a_released_lease_is_not_renewed(
    owners: LeaseKeeper, space: Space, engine: Failing, told: Told
) -> None:
    """Nor is anybody told anything; releasing again is no error."""
    keeping = held(owners, space, told)

    keeping.release()
    keeping.release()

    engine.pass_(60)
    ticks(owners)
    assert leases.current(space, "main") == keeping.lease
    assert not keeping.still_ours()
    assert told.lost == 0


def test_the_thread_lives_as_long_as_there_are_runs(owners: LeaseKeeper, space: Space, told: Told) -> None:
    """It begins with the first, ends after the last and begins again."""
    assert owners._thread is None
    for _ in range(2):
        lease = take(space, owners=owners)
        keeping = held(owners, space, told, lease)
        thread = owners._thread
        assert thread is not None
        assert thread.daemon

        applied(space, leases.releasing(lease))
        keeping.release()

        until(lambda: owners._thread is None)
        thread.join()


def test_a_run_is_told_once_that_somebody_wants_it_to_stop(
    owners: LeaseKeeper, space: Space, told: Told
) -> None:
    """By its record, whoever wrote it and from wherever."""
    applied(space, asked_to_stop(space, None, 0))
    held(owners, space, told)
    ticks(owners)
    assert told.cancelled == []

    applied(space, asked_to_stop(space, "ann changed her mind", 1))

    until(lambda: told.cancelled == ["ann changed her mind"])
    ticks(owners)
    assert told.cancelled == ["ann changed her mind"]
    assert told.lost == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_raises_costs_no_other_run_its_lease(
    owners: LeaseKeeper, space: Space, engine: Failing, told: Told
) -> None:
    """It is reported as an error of the thread, and the thread goes on."""

    def broken(why: str) -> None:
        raise ValueError(why)

    applied(space, asked_to_stop(space, "stop", 0))
    first = take(space, owners=owners)
    owners.hold(first, space=space, lost=told.lose, cancelled=broken)
    other = take(space, "run-2", timeline="fork", owners=owners)
    keeping = owners.hold(other, space=space, lost=told.lose, cancelled=told.cancelled.append)

    engine.pass_(15)

    until(lambda: keeping.lease != other)
    assert told.lost == 0


def test_what_was_taken_and_is_kept_is_not_abandoned(owners: LeaseKeeper, space: Space, told: Told) -> None:
    """Nor is what is about to be kept: nobody in this process may take it over in between."""
    lease = take(space, owners=owners)
    assert not owners.abandoned(space, lease)
    keeping = held(owners, space, told, lease)
    assert not owners.abandoned(space, lease)

    keeping.release()

    assert owners.abandoned(space, lease)
    assert leases.state(space, lease, owners=owners) == "expired"


def test_what_another_process_keeps_is_not_abandoned(
    owners: LeaseKeeper, space: Space, store: MemoryStore
) -> None:
    """This one knows nothing about it."""
    lease = take(space_on(Clocked(store)))

    assert not owners.abandoned(space, lease)
    assert leases.state(space, lease, owners=owners) == "live"


def test_a_lease_of_another_clock_is_not_ours(owners: LeaseKeeper, space: Space, told: Told) -> None:
    """What cannot be compared is over."""
    lease = msgspec.structs.replace(take(space, owners=owners), clock="boot:0")

    keeping = held(owners, space, told, lease)

    assert not keeping.still_ours()
    until(lambda: told.lost == 1)


def test_many_runs_are_kept_by_one_thread(
    owners: LeaseKeeper, space: Space, engine: Failing, told: Told
) -> None:
    """Each is renewed."""
    before = threading.active_count()
    kept = [
        held(owners, space, told, take(space, f"run-{n}", timeline=f"line-{n}", owners=owners))
        for n in range(100)
    ]
    firsts = [keeping.lease for keeping in kept]
    assert threading.active_count() == before + 1

    engine.pass_(15)

    until(lambda: all(keeping.lease != first for keeping, first in zip(kept, firsts, strict=True)))
    assert told.lost == 0


# ---- other processes


def test_a_process_that_was_stopped_past_its_lease_has_lost_it_when_it_wakes(tmp_path: Path) -> None:
    """It knows before it does anything else; until then it was not gone."""
    with running(keep, str(tmp_path / "store.db"), 1.0) as other:
        lease = other.answer()
        pid = other.process.pid
        assert pid is not None
        with closing(SqliteEngine(tmp_path / "store.db")) as engine:
            space = space_on(engine)
            os.kill(pid, signal.SIGSTOP)
            until(lambda: leases.state(space, leases.current(space, "main") or lease) != "live")
            assert leases.state(space, lease) == "expired"
            other.tell(True)
            os.kill(pid, signal.SIGCONT)

            assert other.answer() == (False, True)
            other.tell(False)


def test_a_process_that_lives_keeps_its_lease_past_its_length(tmp_path: Path) -> None:
    """Control for the one that is stopped."""
    with running(keep, str(tmp_path / "store.db"), 1.0) as other:
        lease = other.answer()
        with closing(SqliteEngine(tmp_path / "store.db")) as engine:
            space = space_on(engine)
            until(lambda: engine.instant().at > lease.until + 500_000)

            found = leases.current(space, "main")
            assert found is not None
            assert found.epoch == lease.epoch
            assert leases.state(space, found) == "live"


def test_a_forked_child_keeps_its_own_lines_and_not_its_parents(tmp_path: Path) -> None:
    """Both go on for longer than a lease, each with a thread of its own."""
    with running(fork_while_keeping, str(tmp_path / "store.db"), 1.5) as other:
        ended_well, still_ours, lost = other.answer()

    assert (ended_well, still_ours, lost) == (True, True, [])


# ---- clocks of servers


def test_the_error_of_the_engines_clock_is_counted_as_passed(
    owners: LeaseKeeper, space: Space, engine: Failing, told: Told
) -> None:
    """The holder gives up before anybody else may see the end, when it takes the lease and when it renews it."""
    engine.now = Instant(engine.now.clock, engine.now.at, error=2_000_000)

    keeping = held(owners, space, told)

    assert keeping.until_monotonic() == engine.seconds() + 28
    first = keeping.lease
    engine.now = Instant(engine.now.clock, engine.now.at + 11_000_000, error=3_000_000)
    until(lambda: keeping.lease != first)
    assert keeping.until_monotonic() == engine.seconds() + 27


def test_a_lease_that_is_renewed_on_another_clock_lives_on_it(space: Space, engine: Failing) -> None:
    """After a failover it is over for all until its holder renews it, and then dated on the new clock."""
    lease = take(space)
    engine.now = Instant("boot:2", 5_000_000)
    assert leases.state(space, lease) == "expired"

    for _ in range(2):
        lease = leases.renew(space, lease, 30)

        assert leases.current(space, "main") == lease
        assert (lease.clock, lease.until) == ("boot:2", engine.now.at + 30_000_000)
        assert leases.state(space, lease) == "live"
        engine.pass_(10)

    engine.pass_(21)
    assert leases.state(space, lease) == "expired"
