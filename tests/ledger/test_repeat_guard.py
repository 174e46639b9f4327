"""The repeat guard: an external write is not sent twice by accident, on any line."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Barrier, Thread

import msgspec
import pytest

from perdure.engines.memory import MemoryEngine
from perdure.errors import Conflict, Corrupt, Moved
from perdure.ledger import calls, decisions, repeat_guard, tickets
from perdure.ledger.calls import VersionedCall
from perdure.ledger.repeat_guard import MayStart, Repeats
from perdure.ledger.settlement import late, resolve
from perdure.model.call import CallRecord, CallState
from perdure.model.head import MAIN
from tests.coded import raises
from tests.ledger.books import ANTHROPIC, OPENAI, Keeper


def repeated(keeper: Keeper, record: CallRecord) -> tuple[str, str]:
    """The earlier call that the guard names, and the case."""
    found = keeper.check(record)
    assert isinstance(found, Repeats)
    return found.earlier.id, found.case


def ended(keeper: Keeper, id: str, *states: CallState) -> VersionedCall:
    """A call that was started and then went on this way."""
    held = keeper.start(keeper.record(id))
    for hop in states:
        held = keeper.move(held, hop)
    return held


def test_the_first_call_passes(keeper: Keeper) -> None:
    """There is nothing to repeat."""
    assert isinstance(keeper.check(keeper.record("a")), MayStart)


@pytest.mark.parametrize("states", [(), ("unknown",), ("unknown", "needs_human")])
def test_a_call_that_may_have_happened_stops_its_like(keeper: Keeper, states: tuple[CallState, ...]) -> None:
    """Case (a): a tool times out, and the model calls it again under a new id."""
    ended(keeper, "first", *states)

    assert repeated(keeper, keeper.record("again")) == ("first", "unclear")


def test_a_guard_by_id_alone_lets_the_repeat_through(keeper: Keeper) -> None:
    """Control: the ledger knows no call of the new id, so only the fingerprint can tell."""
    ended(keeper, "first", "unknown")

    assert calls.find(keeper.space, "again") is None
    assert isinstance(keeper.check(keeper.record("again")), Repeats)


def test_case_a_holds_on_every_line(keeper: Keeper) -> None:
    """A fork from before the call is stopped as well."""
    root = keeper.say("user", "pay")
    keeper.fork("what-if", root)
    ended(keeper, "first", "unknown")

    assert repeated(keeper, keeper.record("again", timeline="what-if")) == ("first", "unclear")


@pytest.mark.parametrize(
    "states",
    [
        ("failed",),
        ("awaiting_approval", "denied"),
        ("awaiting_approval", "expired"),
        ("awaiting_approval", "cancelled"),
    ],
)
def test_what_did_not_happen_stops_nobody(keeper: Keeper, states: tuple[CallState, ...]) -> None:
    """Proof that nothing was done, or that it was not allowed, leaves the way clear."""
    ended(keeper, "first", *states)

    assert isinstance(keeper.check(keeper.record("again")), MayStart)


def test_a_person_s_word_counts(keeper: Keeper) -> None:
    """Resolved as not done it is no obstacle; resolved as done it is a success that no history tells of."""
    ended(keeper, "first", "unknown")
    resolve(keeper.space, "first", "not_done", by="ann")
    assert isinstance(keeper.check(keeper.record("second")), MayStart)

    ended(keeper, "second", "unknown")
    resolve(keeper.space, "second", "done", by="ann")

    assert repeated(keeper, keeper.record("third")) == ("second", "elsewhere")


def test_an_undone_call_is_not_sent_again(keeper: Keeper) -> None:
    """Case (b): undo takes it out of the history, not out of the world."""
    keeper.say("user", "pay")
    keeper.succeed(keeper.start(keeper.record("first")))
    assert isinstance(keeper.check(keeper.record("again")), MayStart)

    keeper.undo()

    assert repeated(keeper, keeper.record("again")) == ("first", "elsewhere")


def test_a_fork_from_before_is_stopped_and_one_from_after_is_not(keeper: Keeper) -> None:
    """Case (b) asks for the history of the line that asks."""
    before = keeper.say("user", "pay")
    keeper.succeed(keeper.start(keeper.record("first")))
    keeper.fork("before", before)
    keeper.fork("after", keeper.head().commit)

    assert repeated(keeper, keeper.record("x", timeline="before")) == ("first", "elsewhere")
    assert isinstance(keeper.check(keeper.record("x", timeline="after")), MayStart)


def test_a_fork_between_request_and_result_is_stopped(keeper: Keeper) -> None:
    """Its history holds the question and not the answer, whatever the line is called by now."""
    record = keeper.record("first")
    keeper.ask_for(record)
    keeper.fork("between", keeper.head().commit)
    held = keeper.post(keeper.starting(record))
    done = calls.settle(held, "succeeded", at=9, status="success", result_label="told")
    keeper.post(done)
    assert isinstance(keeper.check(keeper.record("equal")), MayStart)

    keeper.ask_for(keeper.record("x", label="told"))

    assert isinstance(keeper.check(keeper.record("equal")), MayStart)
    assert repeated(keeper, keeper.record("x", timeline="between")) == ("first", "elsewhere")


def test_what_was_merged_in_is_asked_about(keeper: Keeper) -> None:
    """A merge brings no messages, so the model of the line does not know of the call."""
    root = keeper.write({"/a": 1})
    keeper.fork("side", root)
    keeper.succeed(keeper.start(keeper.record("first", timeline="side")))
    keeper.write({"/b": 1}, timeline="side")
    keeper.write({"/c": 1})
    assert repeated(keeper, keeper.record("again")) == ("first", "elsewhere")

    keeper.merge("side")

    assert repeated(keeper, keeper.record("again")) == ("first", "elsewhere")


def test_another_backend_is_stopped_on_the_same_line(keeper: Keeper) -> None:
    """Case (c): after a switch the new model must not do again what the old one did."""
    keeper.succeed(keeper.start(keeper.record("first", backend=OPENAI)))

    assert repeated(keeper, keeper.record("again", backend=ANTHROPIC)) == ("first", "backend")
    assert isinstance(keeper.check(keeper.record("again", backend=OPENAI)), MayStart)


def test_other_repeats_are_the_model_s_business(keeper: Keeper) -> None:
    """A repeat on the same line and backend, other arguments, an idempotent or a reading call all pass."""
    keeper.succeed(keeper.start(keeper.record("first")))
    keeper.start(keeper.record("open", arguments={"amount": 2}))

    assert isinstance(keeper.check(keeper.record("again")), MayStart)
    assert isinstance(keeper.check(keeper.record("other", arguments={"amount": 3})), MayStart)
    for record in (
        keeper.record("x", arguments={"amount": 2}, idempotent=True),
        keeper.record("x", arguments={"amount": 2}, effect="local_write"),
        keeper.record("x", arguments={"amount": 2}, effect="read_only"),
    ):
        assert keeper.check(record) == MayStart(None)
        assert repeat_guard.starting(record, MayStart(None)) == ()


def test_a_policy_can_allow_it(keeper: Keeper) -> None:
    """The guard then only counts, so that others still see what was started."""
    ended(keeper, "first", "unknown")
    record = keeper.record("again")
    verdict = keeper.check(record, policy="allow")

    keeper.post(keeper.starting(record, verdict))

    assert isinstance(verdict, MayStart)
    assert repeated(keeper, keeper.record("third")) == ("first", "unclear")


def test_of_two_lines_that_start_at_once_one_sends(keeper: Keeper) -> None:
    """Both were told that the way is clear; the gate lets one pass and the other asks again."""
    keeper.fork("side", keeper.say("user", "pay"))
    here, there = keeper.record("here"), keeper.record("there", timeline="side")
    transitions = [keeper.starting(record) for record in (here, there)]

    keeper.post(transitions[0])

    with pytest.raises(Moved) as moved:
        keeper.post(transitions[1])
    assert moved.value.cell == f"twin/{here.fingerprint}"
    assert repeated(keeper, there) == ("here", "unclear")
    assert calls.find(keeper.space, "there") is None


def test_of_eight_threads_that_start_at_once_one_sends(keeper: Keeper) -> None:
    """The same with everything at the same moment."""
    records = [keeper.record(f"c{number}") for number in range(8)]
    gathered, sent = Barrier(8), list[str]()

    def start(record: CallRecord) -> None:
        transition = keeper.starting(record)
        gathered.wait()
        try:
            keeper.post(transition)
        except Conflict:
            return
        sent.append(record.id)

    threads = [Thread(target=start, args=(record,)) for record in records]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(sent) == 1


def test_a_second_attempt_of_the_same_call_is_no_repeat(keeper: Keeper) -> None:
    """The guard does not stop a call because of itself, and goes on stopping others because of it."""
    held = ended(keeper, "first", "unknown", "requested")
    verdict = keeper.check(held.record)

    started = calls.advance(held, "started", at=9).also(cells=repeat_guard.starting(held.record, verdict))
    held = keeper.post(started)

    assert held.record.attempt == 2
    assert repeated(keeper, keeper.record("again")) == ("first", "unclear")


def test_who_allowed_a_repeat_allowed_what_was_known(keeper: Keeper) -> None:
    """The approval covers the call that the question named; one that started meanwhile asks again."""
    ended(keeper, "first", "unknown")
    again = keeper.record("again")
    keeper.ask_for(again)
    found = keeper.check(again)
    assert isinstance(found, Repeats)
    keeper.post(tickets.ask(again, tickets.repetition(again, found, id="t", at=9)))
    outcome = decisions.decide(
        keeper.space, "again", "approve", line=MAIN, head=keeper.head().commit, by="ann"
    )
    record, known = outcome.held.record, repeat_guard.seen(outcome.held.record, outcome.ticket)

    assert known == 1
    assert isinstance(keeper.check(record, seen=known), MayStart)

    other = keeper.record("other")
    keeper.post(keeper.starting(other, keeper.check(other, policy="allow")))

    found = keeper.check(record, seen=known)
    assert isinstance(found, Repeats)
    assert found.earlier.id == "other"


def test_an_approval_of_something_else_allows_no_repeat(keeper: Keeper) -> None:
    """Only a question about the repeat, approved for these arguments, counts."""
    record = keeper.record("c")
    plain = tickets.question(record, id="t", at=1)

    assert repeat_guard.seen(record, None) == 0
    assert repeat_guard.seen(msgspec.structs.replace(record, ticket="t"), plain) == 0


def test_evidence_that_it_was_done_counts_as_done(keeper: Keeper) -> None:
    """Somebody resolved it as not done, the gate has that for well, and then the old holder wakes up."""
    keeper.say("user", "pay")
    ended(keeper, "first", "unknown")
    resolve(keeper.space, "first", "not_done")
    ended(keeper, "second", "failed")
    assert isinstance(keeper.check(keeper.record("third")), MayStart)

    late(keeper.space, "first", attempt=1, epoch=0, staged=keeper.staged())

    assert repeated(keeper, keeper.record("third")) == ("first", "elsewhere")


def test_a_late_result_is_in_no_history_until_somebody_tells_it(keeper: Keeper) -> None:
    """The conversation was told that nobody knows; that it was done after all is news to whoever asks."""
    keeper.say("user", "pay")
    held = keeper.start(keeper.record("first"))
    keeper.post(calls.settle(held, "unknown", at=9, result_label="told"))
    keeper.ask_for(keeper.record("x", label="told"))

    found = late(keeper.space, "first", attempt=1, epoch=0, staged=keeper.staged()).held
    assert repeated(keeper, keeper.record("again")) == ("first", "elsewhere")

    keeper.post(calls.learn(found, at=10, result_label="told"))
    assert isinstance(keeper.check(keeper.record("again")), MayStart)


def test_a_hundred_equal_calls_are_looked_at_once(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate remembers what was well, so the guard reads the last one, and the one before it, and not all of them."""
    for number in range(100):
        keeper.succeed(keeper.start(keeper.record(f"c{number}")))
    asked: list[str] = []
    real = calls.find_many

    def find_many(space: object, ids: Sequence[str]) -> list[VersionedCall | None]:
        asked.extend(ids)
        return real(keeper.space, ids)

    monkeypatch.setattr(calls, "find_many", find_many)

    assert isinstance(keeper.check(keeper.record("last")), MayStart)
    assert asked == ["c98", "c99"]
    assert repeated(keeper, keeper.record("last", backend=ANTHROPIC)) == ("c0", "backend")


def test_what_somebody_allowed_is_not_forgotten(keeper: Keeper) -> None:
    """The repeat that was allowed went well; the call that it repeated is as unclear as before."""
    ended(keeper, "first", "unknown")
    again = keeper.record("again")
    keeper.ask_for(again)

    keeper.succeed(keeper.post(keeper.starting(again, keeper.check(again, seen=1))))

    assert repeated(keeper, keeper.record("third")) == ("first", "unclear")


def test_what_is_well_for_now_is_looked_at_again(keeper: Keeper) -> None:
    """A result that was not committed yet when an equal call of its round started may be missing on a fork."""
    held = keeper.start(keeper.record("first"))
    keeper.post(calls.settle(held, "succeeded", at=9, status="success", result_label="told"))
    keeper.move(keeper.post(keeper.starting(keeper.record("equal"))), "failed")
    keeper.fork("between", keeper.head().commit)

    keeper.ask_for(keeper.record("x", label="told"))

    assert repeated(keeper, keeper.record("x", timeline="between")) == ("first", "elsewhere")


def test_a_call_is_not_stopped_by_itself(keeper: Keeper) -> None:
    """Whoever looks at an unclear call asks for what stands in its way, and it is not its own obstacle."""
    held = ended(keeper, "first", "unknown")

    assert isinstance(keeper.check(held.record), MayStart)


@pytest.mark.parametrize(
    ("starts", "lost"), [(["first"], "call"), (["first", "last"], "call"), (["first", "last"], "twin")]
)
def test_a_guard_that_cannot_tell_lets_nothing_through(starts: list[str], lost: str) -> None:
    """A start that is gone from the store is damage, not a clear way."""
    engine = MemoryEngine()
    keeper = Keeper(engine)
    records = [ended(keeper, id, "failed").record for id in starts]
    cells = engine._store.spaces[keeper.space.name].cells

    del cells[f"twin/{records[-1].fingerprint}/{2:012d}" if lost == "twin" else f"call/{starts[-1]}"]

    with raises(Corrupt, "start_missing", fingerprint=records[-1].fingerprint):
        keeper.check(keeper.record("again"))
