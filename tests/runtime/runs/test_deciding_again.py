"""The same decision twice changes nothing, a different one is refused, and of two at once one stands."""

from __future__ import annotations

import threading

import pytest

import perdure
from perdure import Store
from perdure.errors import Conflict, Decided
from perdure.history.space import Space
from perdure.ledger import calls, decisions
from perdure.model.ticket import Ticket, Verdict
from perdure.store.thread import Thread
from tests.coded import raises
from tests.crash.campaign import sized
from tests.runtime.runs.postman import postman
from tests.runtime.runs.world import World

ROUNDS = sized(5, 100)
DECISIONS: dict[Verdict, object] = {
    "approve": None,
    "deny": None,
    "edit": {"to": "bob"},
    "answer": "by hand",
}
OTHERS = [(first, other) for first in DECISIONS for other in DECISIONS if first != other]


@pytest.fixture
def asked(store: Store, world: World) -> Thread:
    """A thread whose only run waits for the approval of a letter to Ann."""
    thread = store.thread("letters", agent=postman(world, ask=True))
    assert thread.run("Write to Ann").status == "waiting"
    return thread


def decide(thread: Thread, verdict: Verdict, **options: str) -> object:
    """Decide about the only call."""
    return thread.decide(thread.calls()[0].id, verdict, value=DECISIONS[verdict], **options)


def entries(thread: Thread) -> int:
    """How many entries the ledger has."""
    return len(thread._space.engine.entries(thread._space.name, after=0, limit=1_000))


@pytest.mark.parametrize("verdict", DECISIONS)
def test_the_same_again_changes_nothing(asked: Thread, verdict: Verdict) -> None:
    """Nothing is written, whoever says it, by the call's id or the ticket's; the first who said it is kept."""
    first = decide(asked, verdict, by="ann", why="as agreed")
    before = entries(asked)

    again = decide(asked, verdict, by="bob")
    by_ticket = asked.decide(asked.calls()[0].ticket or "", verdict, value=DECISIONS[verdict])

    assert again == by_ticket == first
    assert entries(asked) == before


@pytest.mark.parametrize(("first", "other"), OTHERS)
def test_a_different_one_is_refused(asked: Thread, first: Verdict, other: Verdict) -> None:
    """The first stands, and the error names it."""
    decide(asked, first, by="ann")
    before = entries(asked)

    with raises(Decided, "decided", verdict=first, by="ann"):
        decide(asked, other)

    assert entries(asked) == before


@pytest.mark.parametrize("verdict", ["edit", "answer"])
def test_the_same_verdict_with_another_value_is_another_decision(asked: Thread, verdict: Verdict) -> None:
    """What was decided is the value too."""
    decide(asked, verdict)

    with pytest.raises(Decided):
        asked.decide(asked.calls()[0].id, verdict, value={"to": "eve"})


@pytest.mark.parametrize("verdict", DECISIONS)
def test_after_it_was_applied_it_still_stands(asked: Thread, world: World, verdict: Verdict) -> None:
    """Said again when the run is over it changes nothing, and another is refused; nothing is sent again."""
    decide(asked, verdict)
    asked.resume()
    sent = world.counted()

    decide(asked, verdict)
    with pytest.raises(Decided):
        decide(asked, "deny" if verdict != "deny" else "approve")
    with pytest.raises(Conflict):
        asked.decide(asked.calls()[0].id, "answer", value="something else")

    assert world.counted() == sent
    assert sum(sent.values()) <= 1


def test_of_two_at_once_one_stands(store_url: str, world: World) -> None:
    """Two openings of the store decide otherwise at the same moment: one is told that it was late."""
    for number in range(ROUNDS):
        with perdure.open(store_url) as store, perdure.open(store_url) as other:
            agent = postman(world, ask=True)
            threads = [each.thread(f"letters {number}", agent=agent) for each in (store, other)]
            threads[0].run("Write to Ann")
            verdicts: list[Verdict] = ["approve", "deny"]

            told = at_once(threads, verdicts)

            ticket = threads[0].decide(threads[0].calls()[0].id, verdicts[told.index("stands")])
            assert sorted(told) == ["late", "stands"]
            assert ticket.decision is not None


def at_once(threads: list[Thread], verdicts: list[Verdict]) -> list[str]:
    """What each is told who decides at the same moment."""
    gate = threading.Barrier(len(threads), timeout=60)
    told = [""] * len(threads)

    def say(number: int) -> None:
        call = threads[number].calls()[0].id
        gate.wait()
        try:
            threads[number].decide(call, verdicts[number])
            told[number] = "stands"
        except Decided:
            told[number] = "late"

    workers = [threading.Thread(target=say, args=(number,)) for number in range(len(threads))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return told


def test_without_the_rule_a_refusal_is_acknowledged_and_the_letter_is_sent(
    asked: Thread, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: where every decision about a decided ticket counts as the same, somebody's no is lost in silence."""

    def again(space: Space, ticket: Ticket, wanted: object) -> decisions.DecisionOutcome:
        return decisions.DecisionOutcome(ticket, calls.read(space, ticket.call), False)

    monkeypatch.setattr(decisions, "_again", again)
    decide(asked, "approve")

    decide(asked, "deny")
    asked.resume()

    assert world.counted() == {"ann": 1}
