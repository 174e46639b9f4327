"""The ledger as it stood at a position: a window of it says the same as the whole."""

from __future__ import annotations

import pytest

from perdure import Store, Thread, testing
from perdure.errors import Corrupt
from perdure.history.space import Space
from perdure.ledger import snapshot
from perdure.model.commit import LedgerRead
from tests.coded import raises
from tests.switching.checkpoint.works import Work, space_of


@pytest.fixture
def thread(store: Store) -> Thread:
    """Two payments that wait, then a dozen look-ups; one payment is approved and made, and more look-ups."""
    work = Work(store)
    work.turn("Pay 1.", testing.use("pay", amount=1), testing.say("Paid."))
    work.turn("Pay 2.", testing.use("pay", amount=2), testing.say("Paid."))
    for city in range(12):
        work.turn(f"Look {city}.", testing.use("look", city=str(city)), testing.say("Rain."))
    thread = work.thread(testing.say("Paid."))
    thread.decide(thread.approvals()[0].call, "approve", by="ann")
    for city in range(12, 20):
        work.turn(f"Look {city}.", testing.use("look", city=str(city)), testing.say("Rain."))
    return thread


def positions(space: Space) -> list[LedgerRead]:
    """Every position of the ledger."""
    entries = space.engine.entries(space.name, limit=1_000)
    return [LedgerRead(entry.position, entry.chain) for entry in entries]


def test_the_window_says_the_same_as_the_whole_at_every_position(thread: Thread) -> None:
    """Calls that began before the window and changed after the position are as they were at it."""
    space = space_of(thread)

    for read in positions(space):
        whole = snapshot.whole(space, read)
        stand = snapshot.stand(space, read, limit=5)

        assert {known.record.id: known.record for known in stand.calls}.items() <= whole.calls.items()
        assert list(stand.waiting) == sorted(
            (ticket for ticket in whole.tickets.values() if ticket.decision is None), key=lambda each: each.id
        )


def test_what_is_open_now_is_not_what_was_open_then(thread: Thread) -> None:
    """The control: the cells alone would say of an earlier moment what is true of this one."""
    space = space_of(thread)
    early = positions(space)[20]

    now = {ticket.id for ticket in thread.approvals()}
    then = {ticket.id for ticket in snapshot.stand(space, early, limit=5).waiting}

    assert len(now) == 1
    assert len(then) == 2


def test_the_newest_position_is_found_from_any_earlier_one(thread: Thread) -> None:
    """However far behind the known position is, the end of the log is found."""
    space = space_of(thread)
    known = positions(space)

    for since in (LedgerRead(), known[0], known[17], known[-1]):
        assert snapshot.now(space, since=since) == known[-1]


def test_another_ledger_is_refused(thread: Thread) -> None:
    """A position whose chain is another one's is not derived from."""
    space = space_of(thread)
    wrong = LedgerRead(positions(space)[-1].position, positions(space)[3].chain)

    with raises(Corrupt, "ledger_differs", position=wrong.position):
        snapshot.stand(space, wrong)
    with raises(Corrupt, "ledger_differs", position=10_000):
        snapshot.whole(space, LedgerRead(10_000, None))
