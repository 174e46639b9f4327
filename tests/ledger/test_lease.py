"""Leases: who may write on a line is decided by epochs, when it may be taken over by clocks and marks."""

from __future__ import annotations

import os
import pickle
import signal
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from perdure.engines.contract import CellWrite, Fence, Instant
from perdure.engines.memory import MemoryStore
from perdure.engines.sqlite import SqliteEngine
from perdure.errors import Busy, Conflict, Corrupt, Moved, Unavailable
from perdure.history.space import Space
from perdure.runtime.session import lease as leases
from perdure.runtime.session.lease import Lease, Lost
from tests.coded import raises
from tests.crash.processes import running
from tests.ledger.holders import SECOND, Clocked, applied, hold_line, space_on, take


@pytest.fixture
def store() -> MemoryStore:
    """What two openings share."""
    return MemoryStore()


@pytest.fixture
def engine(store: MemoryStore) -> Clocked:
    """The opening of whoever takes the line first."""
    return Clocked(store)


@pytest.fixture
def space(engine: Clocked) -> Space:
    """Its space."""
    return space_on(engine)


@pytest.fixture
def other(store: MemoryStore) -> Clocked:
    """The opening of somebody else."""
    return Clocked(store)


@pytest.fixture
def theirs(other: Clocked) -> Space:
    """Somebody else's space, which is the same."""
    return space_on(other)


class Nobody:
    """A roster of a process that gave everything up."""

    def expect(self, space: Space, lease: Lease) -> None:
        """Forget it."""

    def abandoned(self, space: Space, lease: Lease) -> bool:
        """Whoever took it has stopped."""
        return True


# ---- taking and letting go


def test_a_line_that_nobody_took_has_no_lease(space: Space) -> None:
    """Nothing is made by looking."""
    assert leases.current(space, "main") is None
    assert list(space.engine.spaces(limit=9)) == []


def test_whoever_takes_a_line_holds_it(space: Space, engine: Clocked) -> None:
    """What was taken is what everybody reads."""
    lease = take(space, ttl=30)

    assert leases.current(space, "main") == lease
    assert lease == Lease(
        timeline="main",
        run="run-1",
        holder=engine.holder(),
        clock="boot:1",
        until=1_030 * SECOND,
        epoch=1,
    )
    assert leases.state(space, lease) == "live"


def test_lines_are_held_one_by_one(space: Space) -> None:
    """A run on a fork is in nobody's way."""
    one, two = take(space, "run-1"), take(space, "run-2", timeline="what-if/1")

    assert leases.current(space, "main") == one
    assert leases.current(space, "what-if/1") == two


def test_a_line_that_is_held_is_not_taken(space: Space, theirs: Space) -> None:
    """Neither by whoever thinks that it is free, nor by whoever knows."""
    lease = take(space)

    for after in (None, lease):
        with pytest.raises(Busy) as caught:
            leases.taking(theirs, "main", "run-2", 30, after)
        assert (caught.value.holder, caught.value.timeline) == ("run-1", "main")


def test_of_two_who_take_a_line_at_once_one_has_it(space: Space, theirs: Space) -> None:
    """Both found it free; the store lets one of the writes through."""
    mine, yours = (
        leases.taking(each, "main", run, 30, None) for each, run in ((space, "run-1"), (theirs, "run-2"))
    )
    applied(space, mine)

    with pytest.raises(Conflict):
        applied(theirs, yours)

    assert leases.current(theirs, "main") == leases.taken(mine)


def test_a_line_that_was_let_go_is_free(space: Space, theirs: Space) -> None:
    """The epoch goes on counting, so that a write from before is refused all the same."""
    first = take(space)
    applied(space, leases.releasing(first))

    assert leases.current(theirs, "main") is None
    second = take(theirs, "run-2")

    assert second.epoch == 3
    with pytest.raises(Conflict):
        applied(space, fences=(leases.fence(first),))
    with pytest.raises(Conflict):
        applied(space, leases.releasing(first))


def test_the_epoch_is_known_before_the_write(space: Space) -> None:
    """So that a run's first write and its fence can be made together."""
    taking = leases.taking(space, "main", "run-1", 30, None)

    applied(space, taking)

    assert leases.epoch_after(taking) == leases.taken(taking).epoch == 1
    assert leases.fence(leases.taken(taking)) == Fence("lease/main", 1)


def test_after_a_takeover_the_old_holder_writes_nothing(
    space: Space, theirs: Space, engine: Clocked, other: Clocked
) -> None:
    """Its fence does not hold any more, whatever its clock says."""
    old = take(space)
    other.pass_(31)

    new = take(theirs, after=old)

    assert new.epoch == old.epoch + 1
    assert leases.state(space, old) == "live"  # by a clock that stands still
    with raises(Moved, "moved", cell="lease/main", expected=1, actual=2):
        applied(space, fences=(leases.fence(old),))
    with pytest.raises(Lost):
        leases.renew(space, old, 30)
    applied(theirs, fences=(leases.fence(new),))


def test_of_two_who_take_over_one_does(space: Space, theirs: Space, store: MemoryStore) -> None:
    """Both saw that it had ended; the second finds another epoch."""
    old = take(space)
    space.engine.close()
    third = space_on(Clocked(store))
    mine, yours = (leases.taking(each, "main", "run-1", 30, old) for each in (theirs, third))
    applied(theirs, mine)

    with pytest.raises(Conflict):
        applied(third, yours)


# ---- renewing


def test_a_renewed_lease_lasts_longer_under_the_same_epoch(space: Space, engine: Clocked) -> None:
    """So that no write under way is disturbed by it."""
    lease = take(space, ttl=30)
    engine.pass_(20)

    renewed = leases.renew(space, lease, 30)

    assert renewed == msgspec.structs.replace(lease, until=1_050 * SECOND)
    assert leases.current(space, "main") == renewed
    engine.pass_(29)
    assert leases.state(space, renewed) == "live"
    applied(space, fences=(leases.fence(lease),))


def test_a_renewal_does_not_outlive_its_epoch(space: Space, theirs: Space, engine: Clocked) -> None:
    """The next holder's time is its own."""
    first = leases.renew(space, take(space), 10_000)
    applied(space, leases.releasing(first))

    second = take(theirs, "run-2", 30)

    assert leases.current(space, "main") == second
    assert second.until == 1_030 * SECOND


def test_a_line_that_was_let_go_is_not_renewed(space: Space) -> None:
    """A renewal that comes too late revives nothing."""
    lease = take(space)
    applied(space, leases.releasing(lease))

    with pytest.raises(Lost) as caught:
        leases.renew(space, lease, 30)

    assert caught.value.lease == lease
    assert leases.current(space, "main") is None


def test_nothing_of_a_removed_thread_is_renewed(space: Space) -> None:
    """Its cells are emptied, and with them the epoch is over."""
    lease = take(space)
    space.engine.drop(space.name, why="the user asked")

    with pytest.raises(Lost):
        leases.renew(space, lease, 30)


def test_renewing_takes_none_of_the_ids_of_the_space(space: Space) -> None:
    """A run writes the same whether it was renewed or not."""
    lease = take(space)
    before = int(space.ids()[-6:])

    leases.renew(space, leases.renew(space, lease, 30), 30)

    assert int(space.ids()[-6:]) == before + 1


def test_a_store_that_cannot_be_written_is_not_a_lost_lease(space: Space) -> None:
    """The renewal may be tried again."""
    lease = take(space)
    space.engine.close()

    with pytest.raises(Unavailable):
        leases.renew(space, lease, 30)


# ---- clocks


def test_a_lease_expires_by_time(space: Space, theirs: Space, other: Clocked) -> None:
    """At its last moment and not before; whoever held it may still wake up."""
    lease = take(space, ttl=30)
    other.pass_(29.999_999)
    assert leases.state(theirs, lease) == "live"

    other.pass_(0.000_001)

    assert leases.state(theirs, lease) == "expired"


def test_a_clock_turned_back_keeps_a_lease_of_the_living_and_none_of_the_dead(
    space: Space, theirs: Space, other: Clocked
) -> None:
    """An hour more of waiting at the worst; a process that has ended is not waited for."""
    lease = take(space)
    other.pass_(-3_600)
    assert leases.state(theirs, lease) == "live"

    space.engine.close()

    assert leases.state(theirs, lease) == "gone"


def test_a_frozen_clock_does_not_keep_the_dead(space: Space, theirs: Space) -> None:
    """Their mark is gone, whatever the time."""
    lease = take(space)
    assert leases.state(theirs, lease) == "live"

    space.engine.close()

    assert leases.state(theirs, lease) == "gone"


def test_what_another_clock_dated_is_over(space: Space, theirs: Space, other: Clocked) -> None:
    """After another boot it may be taken over at once, however the numbers compare."""
    lease = take(space)
    other.now = Instant("boot:2", 0)

    assert leases.state(theirs, lease) == "expired"
    assert take(theirs, after=lease).epoch == 2


def test_another_clock_does_not_prove_an_end(space: Space, theirs: Space, other: Clocked) -> None:
    """Where a boot has no name, two processes that live have two clocks."""
    lease = take(space)
    other.now = Instant("process:2", 2_000 * SECOND)

    assert leases.state(theirs, lease) != "gone"


@pytest.mark.parametrize("seconds", [-3_600, 0, 3_600])
def test_whatever_the_clocks_say_one_of_two_holders_writes(
    space: Space, theirs: Space, other: Clocked, seconds: float
) -> None:
    """Control for every clock above: a takeover that a wrong clock allowed still shuts the other out."""
    old = take(space, ttl=0)
    other.pass_(seconds)
    other.now = Instant("boot:2", other.now.at)

    new = take(theirs, after=old)

    applied(theirs, fences=(leases.fence(new),))
    with pytest.raises(Conflict):
        applied(space, fences=(leases.fence(old),))


def test_a_lease_that_its_own_process_gave_up_can_be_taken_at_once(space: Space) -> None:
    """But nobody concludes that what it was doing will not happen."""
    lease = take(space)

    assert leases.state(space, lease, owners=Nobody()) == "expired"
    assert take(space, after=lease, owners=Nobody()).epoch == 2


# ---- changes by hand


def test_on_a_free_line_a_change_by_hand_is_fenced(space: Space, theirs: Space) -> None:
    """If a run begins in between, the change is refused."""
    fences = [leases.check_free(theirs, "main")]
    lease = take(space)
    applied(space, leases.releasing(lease))
    fences.append(leases.check_free(theirs, "main"))
    take(space)

    assert fences == [Fence("lease/main", 0), Fence("lease/main", 2)]
    for fence in fences:
        with pytest.raises(Conflict):
            applied(theirs, fences=(fence,))


def test_a_live_run_is_in_the_way_of_a_change(space: Space, theirs: Space) -> None:
    """The error says who, until when and what to do."""
    take(space)

    with pytest.raises(Busy) as caught:
        leases.check_free(theirs, "main", "undo")

    assert str(caught.value) == (
        "undo is not possible now: run 'run-1' holds timeline 'main' until 1970-01-01 00:00:31 UTC, or longer "
        "if it goes on; nothing was done. Wait for it, or end it with cancel()."
    )
    assert not caught.value.interrupted


def test_an_interrupted_run_is_in_the_way_too(space: Space, theirs: Space) -> None:
    """The error says how to get it out of the way, and crosses a process boundary."""
    take(space)
    space.engine.close()

    with pytest.raises(Busy) as caught:
        leases.check_free(theirs, "main")

    assert str(caught.value) == (
        "run 'run-1' on timeline 'main' was interrupted; nothing was done. "
        "resume() finishes it, cancel() ends it."
    )
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (str(again), vars(again)) == (str(caught.value), vars(caught.value))


@pytest.mark.parametrize("until", [-(2**62), 0, 2**62])
def test_any_stored_time_can_be_put_into_words(space: Space, until: int) -> None:
    """What was read from a store is not believed to be sensible."""
    lease = msgspec.structs.replace(take(space), until=until)

    assert "UTC" in leases.busy(space, lease).until


@pytest.mark.parametrize("text", [b"", b"{}", b'{"run": 1}', b"null"])
def test_a_lease_that_cannot_be_read_is_corrupt(space: Space, text: bytes) -> None:
    """It is not taken for a free line."""
    applied(space, CellWrite(name="lease/main", expected=0, value=text))

    with pytest.raises(Corrupt) as damaged:
        leases.current(space, "main")
    assert damaged.value.cell == "lease/main"
    with raises(Corrupt, "cell_unreadable", cell="lease/main"):
        leases.taking(space, "main", "run-1", 30, None)


# ---- two processes


def test_a_killed_holders_line_can_be_taken_at_once(tmp_path: Path) -> None:
    """The proof does not wait for the lease to end."""
    with running(hold_line, str(tmp_path / "store.db"), 600) as holder:
        lease = holder.answer()
        with closing(SqliteEngine(tmp_path / "store.db")) as engine:
            space = space_on(engine)
            assert leases.state(space, lease) == "live"

            holder.kill()

            assert leases.state(space, lease) == "gone"
            assert take(space, "theirs", after=lease).epoch == 2


def test_a_stopped_holders_line_is_taken_when_its_time_is_over(tmp_path: Path) -> None:
    """It is not gone; when it wakes up, its writes are refused."""
    with running(hold_line, str(tmp_path / "store.db"), 1.0) as holder:
        lease = holder.answer()
        pid = holder.process.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        with closing(SqliteEngine(tmp_path / "store.db")) as engine:
            space = space_on(engine)
            while leases.state(space, lease) == "live":
                time.sleep(0.01)

            assert engine.instant().at >= lease.until
            assert leases.state(space, lease) == "expired"
            take(space, "theirs", after=lease)
            os.kill(pid, signal.SIGCONT)
            holder.tell(True)
            assert isinstance(holder.answer(), Conflict)
            holder.tell(False)
