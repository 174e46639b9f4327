"""Claims: calls with equal keys are one, within a thread or over the whole store."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier, Thread

import msgspec
import pytest

from perdure.engines.contract import Instant
from perdure.errors import Conflict, Moved
from perdure.history import artifacts
from perdure.history.space import STORE
from perdure.ledger import call_identity, calls
from perdure.ledger.call_identity import Free, Mine, Reuse, Waits
from perdure.ledger.calls import VersionedCall
from perdure.model.call import CallRecord, CallState
from tests.coded import raises
from tests.ledger.books import ENGINES, Keeper, engine_of
from tests.ledger.holders import SECOND, Clocked


class Shop(Keeper):
    """A keeper whose calls have templated keys."""

    def order(self, id: str, key: str = "order-1") -> CallRecord:
        """A call with that key."""
        return msgspec.structs.replace(self.record(id), key=key)

    def standing(self, record: CallRecord, home: Keeper | None = None) -> call_identity.Standing:
        """Whose the key is."""
        return call_identity.owner_of_key((home or self).space, self.space, record)

    def begin(self, record: CallRecord, *states: CallState) -> VersionedCall:
        """Start a call with a key of the thread, and take it on."""
        standing = self.standing(record)
        assert not isinstance(standing, Reuse)
        cells = call_identity.claiming(self.space, record, standing, at=1)
        held = self.post(calls.propose(record, "requested", "started").also(cells=cells))
        for hop in states:
            held = self.move(held, hop)
        return held


@pytest.fixture(params=ENGINES)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """A shop on each engine."""
    return Shop(engine_of(request.param, tmp_path))


def test_default_keys_are_never_claimed(shop: Shop) -> None:
    """No other call can have one, so it costs nothing."""
    record = shop.record("a")
    standing = shop.standing(record)

    assert standing == Free(needed=False)
    assert call_identity.claiming(shop.space, record, Free(needed=False), at=1) == ()


def test_a_call_with_the_key_of_a_finished_one_gets_its_result(shop: Shop) -> None:
    """Without running."""
    first = shop.succeed(shop.begin(shop.order("a")), b'"paid"')

    standing = shop.standing(shop.order("b"))

    assert isinstance(standing, Reuse)
    assert standing.record == first.record
    staged, _ = call_identity.borrowed(shop.space, standing)
    assert staged is not None
    assert calls.reference(staged.digest) == first.record.result


@pytest.mark.parametrize("states", [(), ("unknown",), ("unknown", "needs_human")])
def test_a_key_in_use_makes_others_wait(shop: Shop, states: tuple[CallState, ...]) -> None:
    """Nobody knows yet whether there is a result to share."""
    shop.begin(shop.order("a"), *states)

    standing = shop.standing(shop.order("b"))

    assert isinstance(standing, Waits)
    assert standing.owner.call == "a"
    assert shop.standing(shop.order("a")) == Mine()
    assert shop.standing(shop.order("c", "order-2")) == Free(0)


def test_a_call_that_failed_gives_its_key_up(shop: Shop) -> None:
    """The next one claims it, and of two at once one does."""
    shop.begin(shop.order("a"), "failed")
    record, other = shop.order("b"), shop.order("c")
    standing = shop.standing(other)
    assert isinstance(standing, Free)

    shop.begin(record)

    late = call_identity.claiming(shop.space, other, standing, at=1)
    with raises(Moved, "moved", cell=late[0].name):
        shop.post(calls.propose(other, "requested", "started").also(cells=late))
    assert isinstance(shop.standing(other), Waits)


def test_a_key_ends_with_its_lifetime() -> None:
    """Afterwards it stands for nothing that was done; what is still open goes on holding it."""
    engine = Clocked()
    shop = Shop(engine)
    until = engine.now.at + 60 * SECOND
    timed = msgspec.structs.replace(shop.order("a"), key_until=until, key_clock=engine.now.clock)
    held = shop.begin(timed)
    engine.pass_(60)
    assert isinstance(shop.standing(shop.order("b")), Waits)

    shop.succeed(held)

    assert isinstance(shop.standing(shop.order("b")), Free)
    engine.pass_(-1)
    assert isinstance(shop.standing(shop.order("b")), Reuse)
    engine.now = Instant("boot:2", 0)
    assert isinstance(shop.standing(shop.order("b")), Waits)


@pytest.fixture
def threads(shop: Shop) -> tuple[Shop, Shop, Keeper]:
    """Two threads of one store, and the store's own space."""
    return shop, Shop(shop.engine, "thread:2"), Keeper(shop.engine, STORE)


def test_a_key_of_the_store_is_one_over_all_threads(threads: tuple[Shop, Shop, Keeper]) -> None:
    """The result crosses over, as content of its own."""
    one, two, store = threads
    record, other = one.order("a"), two.order("b")
    held = one.post(calls.propose(record, "requested"))
    call_identity.claim(store.space, one.space, record, Free(0), at=1)
    assert one.standing(record, store) == Mine()
    assert isinstance(two.standing(other, store), Waits)
    one.succeed(one.move(held, "started"), b'"paid"')

    standing = two.standing(other, store)

    assert isinstance(standing, Reuse)
    assert standing.owner.space == one.space.name
    staged, _ = call_identity.borrowed(two.space, standing)
    assert staged is not None
    mine = two.post(calls.propose(other, "requested"))
    two.post(calls.settle(mine, "succeeded", at=5, staged=staged, status="success"))
    assert b"".join(artifacts.get(two.space, staged.digest)) == b'"paid"'


def test_a_crash_between_claim_and_start_is_recognised(threads: tuple[Shop, Shop, Keeper]) -> None:
    """The same call finds its claim; one that was cancelled instead has given it up."""
    one, two, store = threads
    record = one.order("a")
    held = one.post(calls.propose(record, "requested"))
    call_identity.claim(store.space, one.space, record, Free(0), at=1)

    assert one.standing(record, store) == Mine()
    call_identity.claim(store.space, one.space, record, Mine(), at=2)
    one.move(held, "cancelled")
    assert isinstance(two.standing(two.order("b"), store), Free)


def test_a_claim_for_a_call_that_is_not_there_is_refused(threads: tuple[Shop, Shop, Keeper]) -> None:
    """It could never be told from one that matters."""
    one, _, store = threads

    with raises(Conflict, "call_not_in_ledger", call="a"):
        call_identity.claim(store.space, one.space, one.order("a"), Free(0), at=1)


def test_a_removed_thread_does_not_free_its_keys(threads: tuple[Shop, Shop, Keeper]) -> None:
    """Its call may have happened: a person has to say so."""
    one, two, store = threads
    record = one.order("a")
    one.post(calls.propose(record, "requested"))
    call_identity.claim(store.space, one.space, record, Free(0), at=1)

    one.engine.drop(one.space.name, why="the user asked")

    standing = two.standing(two.order("b"), store)
    assert isinstance(standing, Waits)
    assert standing.record is None


def test_of_many_claims_at_once_one_holds(threads: tuple[Shop, Shop, Keeper]) -> None:
    """Over threads of the store and of the process."""
    one, two, store = threads
    gathered, won = Barrier(6), list[str]()
    records = [(shop, shop.order(f"c{number}")) for number in range(3) for shop in (one, two)]
    for shop, record in records:
        shop.post(calls.propose(record, "requested"))

    def claim(shop: Shop, record: CallRecord) -> None:
        gathered.wait()
        try:
            call_identity.claim(store.space, shop.space, record, Free(0), at=1)
        except Conflict:
            return
        won.append(record.id)

    running = [Thread(target=claim, args=each) for each in records]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()

    assert len(won) == 1
