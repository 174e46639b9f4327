"""Decisions: durable, once, bound to what was shown, and each on the line where it was made."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Barrier, Thread

import msgspec
import pytest

from perdure.engines.memory import Filed, MemoryEngine
from perdure.errors import Conflict, Decided, Invalid, Moved, NotFound, Unsupported
from perdure.history.verify import verify
from perdure.ledger import calls, decisions, repeat_guard, tickets
from perdure.ledger.call_identity import fingerprint_of
from perdure.ledger.decisions import DecisionOutcome
from perdure.ledger.verify import faults
from perdure.model.call import CallRecord
from perdure.model.canonical import Json
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import ApprovalDecided
from perdure.model.head import MAIN
from perdure.model.ticket import OnTimeout, Resume, Verdict
from tests.coded import raises
from tests.ledger.books import ENGINES, Keeper, engine_of


class Desk(Keeper):
    """A keeper whose calls wait for somebody."""

    def suspend(
        self,
        id: str = "c",
        *,
        timeline: str = MAIN,
        expires_at: int | None = None,
        on_timeout: OnTimeout = "expire",
        resume: Resume = "run",
        response_schema: str | None = None,
    ) -> CallRecord:
        """A call that waits, with the words that asked for it."""
        record = self.record(id, timeline=timeline)
        self.ask_for(record)
        ticket = tickets.question(
            record,
            id=f"ticket-{id}",
            at=self.space.clock(),
            expires_at=expires_at,
            on_timeout=on_timeout,
            resume=resume,
            response_schema=response_schema,
        )
        body = Object.of(Kind.BODY, b'{"amount":1}')
        return self.post(tickets.ask(record, ticket).also(objects=(body,))).record

    def decide(
        self,
        id: str,
        verdict: Verdict,
        value: Json = None,
        *,
        line: str = MAIN,
        by: str = "ann",
        rework: decisions.Rework | None = None,
    ) -> DecisionOutcome:
        """Decide on a line where it stands now."""
        text = None if verdict in ("approve", "deny") else json.dumps(value)
        head = self.head(line).commit
        return decisions.decide(
            self.space, id, verdict, line=line, head=head, value=text, by=by, rework=rework
        )


def reworked(record: CallRecord, arguments: dict[str, Json]) -> calls.Changes:
    """What a runtime makes of new arguments."""
    return {"fingerprint": fingerprint_of(record.tool, record.version, arguments)}


@pytest.fixture(params=ENGINES)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    """A desk on each engine."""
    return Desk(engine_of(request.param, tmp_path))


def test_a_suspended_call_is_found_with_its_question(desk: Desk) -> None:
    """Over all threads while it is open; the log knows both."""
    record = desk.suspend()

    (space, ticket), *more = tickets.waiting(desk.engine)

    assert (space, ticket.call, more) == (desk.space.name, "c", [])
    assert (record.state, record.ticket) == ("awaiting_approval", "ticket-c")
    assert desk.book().tickets == {"ticket-c": ticket}
    assert faults(desk.space) == []


def test_an_approval_is_durable_and_bound_to_what_was_shown(desk: Desk) -> None:
    """Ticket, call and entry in one write; who decided is on record."""
    desk.suspend()

    outcome = desk.decide("c", "approve")

    record = calls.read(desk.space, "c").record
    assert outcome.held.record == record
    assert (record.state, record.approved) == ("approved", record.args)
    assert tickets.still_bound(record, record.fingerprint)
    decision = tickets.read(desk.space, "ticket-c").ticket.decision
    assert decision is not None
    assert (decision.verdict, decision.by) == ("approve", "ann")
    assert list(tickets.waiting(desk.engine)) == []
    assert desk.book().calls == {"c": record}
    assert faults(desk.space) == []
    assert verify(desk.engine).ok


def test_a_crash_after_the_decision_loses_nothing(desk: Desk) -> None:
    """Whoever opens the thread next finds it approved, and applies it once."""
    desk.suspend()
    desk.decide("c", "approve")

    found = calls.read(desk.space, "c")
    desk.move(found, "requested", "started")

    with pytest.raises(Moved):
        desk.move(found, "requested", "started")


@pytest.mark.parametrize("change", ["args", "fingerprint"])
def test_other_arguments_are_not_covered(desk: Desk, change: str) -> None:
    """What is about to run must be what somebody approved; else it is asked anew."""
    desk.suspend()
    held = desk.decide("c", "approve").held
    other = Digest("0" * 64)

    if change == "args":
        changed = msgspec.structs.replace(held.record, args=other)
        assert not tickets.still_bound(changed, changed.fingerprint)
    else:
        assert not tickets.still_bound(held.record, "another")
    again = tickets.question(held.record, id="second", at=9)
    asked = desk.post(tickets.ask(held, again))
    assert (asked.record.state, asked.record.approved) == ("awaiting_approval", None)
    assert not tickets.still_bound(asked.record, asked.record.fingerprint)


@pytest.mark.parametrize("id", ["c", "ticket-c"])
def test_the_same_decision_again_changes_nothing(desk: Desk, id: str) -> None:
    """Whoever repeats it gets the first one back."""
    desk.suspend()
    first = desk.decide(id, "approve", by="ann")
    written = len(desk.bodies())

    again = desk.decide(id, "approve", by="bob")

    assert (first.first, again.first) == (True, False)
    assert again.ticket == first.ticket
    assert len(desk.bodies()) == written


def test_another_decision_is_refused(desk: Desk) -> None:
    """The first one stands, and the refusal says whose it was."""
    desk.suspend()
    desk.decide("c", "deny")

    for verdict, value in (("approve", None), ("edit", {"amount": 2}), ("answer", 1)):
        with raises(Decided, "decided", call="c", verdict="deny", by="ann"):
            desk.decide("c", verdict, value)  # pyright: ignore[reportArgumentType]
    assert calls.read(desk.space, "c").record.state == "denied"


def test_an_edit_twice_is_one_and_another_edit_is_refused(desk: Desk) -> None:
    """Two edits are the same if their text is."""
    desk.suspend()
    desk.decide("c", "edit", {"amount": 2})

    assert not desk.decide("c", "edit", {"amount": 2}).first
    with pytest.raises(Decided):
        desk.decide("c", "edit", {"amount": 3})


def test_of_many_deciders_one_wins(desk: Desk) -> None:
    """All at the same moment, half of them for and half against."""
    desk.suspend()
    gathered, won, lost = Barrier(8), list[str](), list[str]()

    def decide(number: int) -> None:
        gathered.wait()
        verdict: Verdict = "approve" if number % 2 else "deny"
        try:
            outcome = desk.decide("c", verdict, by=f"p{number}")
        except Decided:
            lost.append(verdict)
        else:
            won.append(verdict) if outcome.first else None

    threads = [Thread(target=decide, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    state = calls.read(desk.space, "c").record.state
    assert len(won) == 1
    assert lost == ["deny" if state == "approved" else "approve"] * 4
    assert len(desk.bodies()) == 2


def test_an_edit_gives_the_call_new_arguments(desk: Desk) -> None:
    """The old ones stay readable beside them, and the approval covers the new ones alone."""
    before = desk.suspend()

    after = desk.decide("c", "edit", {"amount": 2}, rework=reworked).held.record

    assert after.args != before.args
    assert desk.space.nodes((before.args, after.args)) == [b'{"amount":1}', b'{"amount": 2}']
    assert after.fingerprint == fingerprint_of("pay", None, {"amount": 2})
    assert tickets.still_bound(after, after.fingerprint)
    assert not tickets.still_bound(after, before.fingerprint)


def test_an_edit_without_a_fingerprint_is_bound_by_its_body(desk: Desk) -> None:
    """Who edits from afar has no tool at hand; the runtime takes the fingerprint before it starts."""
    desk.suspend()

    after = desk.decide("c", "edit", {"amount": 2}).held.record

    assert after.fingerprint == ""
    assert tickets.still_bound(after, fingerprint_of("pay", None, {"amount": 2}))


def test_an_edit_that_the_tool_refuses_decides_nothing(desk: Desk) -> None:
    """The ticket is open afterwards."""
    desk.suspend()

    def refusing(record: CallRecord, arguments: dict[str, Json]) -> calls.Changes:
        raise Invalid(f"{record.tool} has no {', '.join(arguments)}", code="no_such_argument")

    with raises(Invalid, "no_such_argument"):
        desk.decide("c", "edit", {"colour": 1}, rework=refusing)
    assert tickets.read(desk.space, "ticket-c").ticket.decision is None


def test_an_answer_is_the_result_and_nothing_may_run_on_it(desk: Desk) -> None:
    """It is kept as it was written, big integers too."""
    desk.suspend(resume="result")

    outcome = desk.decide("c", "answer", {"id": 2**70})

    decision = outcome.ticket.decision
    assert decision is not None
    assert decision.value is not None
    assert json.loads(desk.space.body(decision.value)) == {"id": 2**70}
    assert outcome.held.record.state == "approved"
    assert not tickets.still_bound(outcome.held.record, outcome.held.record.fingerprint)
    assert desk.move(outcome.held, "succeeded").record.state == "succeeded"


def test_an_answer_can_become_the_arguments(desk: Desk) -> None:
    """Where the ticket says so."""
    desk.suspend(resume="arguments")

    record = desk.decide("c", "answer", {"amount": 5}, rework=reworked).held.record

    assert desk.space.body(record.args) == b'{"amount": 5}'
    assert tickets.still_bound(record, fingerprint_of("pay", None, {"amount": 5}))


@pytest.mark.parametrize(
    ("verdict", "value", "code"),
    [
        ("edit", "[1]", "arguments_not_object"),
        ("edit", "{", "not_json"),
        ("edit", '{"a":1,"a":2}', "not_json"),
        ("edit", None, "value_missing"),
        ("approve", "{}", "value_not_taken"),
        ("answer", "NaN", "not_json"),
        ("answer", '{"seat":3}', "schema_mismatch"),
        ("expire", None, "verdict_unknown"),
        ("perhaps", None, "verdict_unknown"),
    ],
)
def test_a_decision_that_does_not_fit_decides_nothing(
    desk: Desk, verdict: Verdict, value: str | None, code: str
) -> None:
    """What is no decision, no JSON, no object or not what was asked for."""
    desk.suspend(response_schema='{"type":"object","properties":{"seat":{"type":"string"}}}')
    head = desk.head().commit

    with raises(Invalid, code):
        decisions.decide(desk.space, "c", verdict, line=MAIN, head=head, value=value)
    assert tickets.read(desk.space, "ticket-c").ticket.decision is None


def test_a_question_that_no_answer_could_be_checked_against_is_not_asked(desk: Desk) -> None:
    """The refusal comes before anybody waits."""
    with raises(Unsupported, "schema_keyword", keyword="pattern"):
        desk.suspend(response_schema='{"type":"string","pattern":"x"}')


def test_what_waits_for_nothing_cannot_be_decided(desk: Desk) -> None:
    """Nor what is not there."""
    desk.post(calls.propose(desk.record("free"), "requested"))

    with raises(Conflict, "call_not_waiting", call="free", state="requested"):
        desk.decide("free", "approve")
    with raises(NotFound, "call_not_found", call="nothing"):
        desk.decide("nothing", "approve")


@pytest.mark.parametrize(
    ("on_timeout", "state"), [("expire", "expired"), ("deny", "denied"), ("approve", "approved")]
)
def test_a_ticket_that_is_due_is_closed_as_it_says(desk: Desk, on_timeout: OnTimeout, state: str) -> None:
    """By whoever looks first, and by nobody a second time."""
    desk.suspend(expires_at=desk.now + 60_000_000, on_timeout=on_timeout)
    assert decisions.expire_due(desk.space) == []
    desk.now += 120_000_000

    closed = decisions.expire_due(desk.space)

    assert [outcome.held.record.state for outcome in closed] == [state]
    assert decisions.expire_due(desk.space) == []
    record = closed[0].held.record
    assert tickets.still_bound(record, record.fingerprint) == (state == "approved")
    assert faults(desk.space) == []


def test_who_decides_too_late_is_told(desk: Desk) -> None:
    """The outcome of the timeout stands, and applying it needed nobody else."""
    desk.suspend(expires_at=desk.now + 60_000_000)
    desk.now += 120_000_000

    with raises(Decided, "decided", verdict="expire", by=None):
        desk.decide("c", "approve")
    assert calls.read(desk.space, "c").record.state == "expired"


def test_a_cancelled_call_leaves_no_open_ticket(desk: Desk) -> None:
    """Both are closed in one write; cancelling again changes nothing."""
    desk.suspend()

    outcome = decisions.withdraw(desk.space, "c", why="the run was cancelled")

    assert outcome.held.record.state == "cancelled"
    assert list(tickets.waiting(desk.engine)) == []
    assert not decisions.withdraw(desk.space, "c").first
    with pytest.raises(Decided):
        desk.decide("c", "approve")
    assert faults(desk.space) == []


def test_a_decision_on_a_fork_makes_a_call_of_its_own(desk: Desk) -> None:
    """It has its own id and key and is approved there; the origin still waits."""
    origin = desk.suspend()
    desk.fork("what-if", desk.head().commit)

    copy = desk.decide("c", "approve", line="what-if").held.record

    assert (copy.copied_from, copy.timeline, copy.state) == ("c", "what-if", "approved")
    assert copy.id != origin.id
    assert copy.key != origin.key
    assert tickets.still_bound(copy, origin.fingerprint)
    assert calls.read(desk.space, "c").record == origin
    assert tickets.read(desk.space, "ticket-c").ticket.decision is None
    assert set(desk.book().calls) == {"c", copy.id}
    assert faults(desk.space) == []


@pytest.mark.parametrize("sent_on", [MAIN, "what-if"])
def test_a_ticket_approved_on_two_lines_is_sent_once(desk: Desk, sent_on: str) -> None:
    """Whichever call starts first, the guard stops the other one, and a new call of its line as well."""
    desk.suspend()
    desk.fork("what-if", desk.head().commit)
    copy = desk.decide("c", "approve", line="what-if").held
    origin = desk.decide("c", "approve").held
    first, second = (origin, copy) if sent_on == MAIN else (copy, origin)
    started = calls.advance(first, "requested", "started", at=9)
    cells = repeat_guard.starting(first.record, desk.check(first.record))
    desk.succeed(desk.post(started.also(cells=cells)))

    for record in (second.record, desk.record("new", timeline=second.record.timeline)):
        found = desk.check(record)
        assert isinstance(found, repeat_guard.Repeats)
        assert (found.earlier.id, found.case) == (first.record.id, "elsewhere")
    assert isinstance(desk.check(desk.record("new", timeline=sent_on)), repeat_guard.MayStart)


def test_on_one_fork_too_the_first_decision_stands(desk: Desk) -> None:
    """Again is a no-op, otherwise it is refused, and another fork decides for itself."""
    desk.suspend()
    desk.fork("one", desk.head().commit)
    desk.fork("two", desk.head().commit)
    first = desk.decide("c", "approve", line="one")

    again = desk.decide("c", "approve", line="one")

    assert not again.first
    assert again.held == first.held
    with pytest.raises(Decided):
        desk.decide("c", "deny", line="one")
    assert desk.decide("c", "deny", line="two").held.record.state == "denied"
    assert calls.read(desk.space, "c").record.state == "awaiting_approval"


def test_a_fork_edits_what_the_ticket_shows(desk: Desk) -> None:
    """Also if the origin was edited meanwhile."""
    origin = desk.suspend()
    desk.fork("what-if", desk.head().commit)
    desk.decide("c", "edit", {"amount": 7}, rework=reworked)

    copy = desk.decide("c", "approve", line="what-if").held.record

    assert (copy.args, copy.args_size, copy.fingerprint) == (
        origin.args,
        origin.args_size,
        origin.fingerprint,
    )


def test_a_fork_that_took_the_decision_in_has_nothing_to_decide(desk: Desk) -> None:
    """It began after the decision was committed, so for it too the first one stands."""
    desk.suspend()
    desk.decide("c", "approve")
    event = ApprovalDecided(id="e", call="c", ticket="ticket-c", decision="approve")
    desk.write(events=[event])
    desk.fork("late", desk.head().commit)

    assert desk.decide("c", "approve", line="late").held.record.id == "c"
    with pytest.raises(Decided):
        desk.decide("c", "deny", line="late")


def test_after_an_undo_past_the_call_there_is_nothing_to_decide(desk: Desk) -> None:
    """On the line itself, and on one that never had it."""
    root = desk.say("user", "pay")
    desk.fork("before", root)
    desk.suspend()
    with raises(Conflict, "call_elsewhere", timeline="main"):
        desk.decide("c", "approve", line="before")

    desk.undo()

    with raises(Conflict, "copied_call_undone", timeline="main"):
        desk.decide("c", "approve")
    assert tickets.read(desk.space, "ticket-c").ticket.decision is None


def test_a_fork_cannot_decide_what_has_expired(desk: Desk) -> None:
    """The time holds for every line."""
    desk.suspend(expires_at=desk.now + 60_000_000, on_timeout="approve")
    desk.fork("what-if", desk.head().commit)
    desk.now += 120_000_000

    with raises(Conflict, "ticket_overdue", call="c"):
        desk.decide("c", "approve", line="what-if")


def test_an_altered_cell_is_found() -> None:
    """The log is chained; a call or ticket that says something else does not fit it."""
    engine = MemoryEngine()
    desk = Desk(engine)
    desk.suspend()
    desk.post(calls.propose(desk.record("other")))
    cells = engine._store.spaces[desk.space.name].cells
    for name in ("call/c", "ticket/ticket-c"):
        filed = cells[name]
        changed = (filed.cell.value or b"").replace(b"pay", b"bay")
        cells[name] = Filed.of(msgspec.structs.replace(filed.cell, value=changed), listed=filed.listed)
    del cells["call/other"]

    assert faults(desk.space) == [
        ("call/c", "it is not what the ledger says"),
        ("ticket/ticket-c", "it is not what the ledger says"),
        ("call/other", "the ledger mentions it, but it is missing"),
    ]
