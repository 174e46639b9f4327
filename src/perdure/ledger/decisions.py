"""Decides tickets.  A decision is durable before it is acknowledged.

One write has the decided ticket, the transition of its call and the ledger entry.  The first decision is final: the
same decision again changes nothing, another one raises `Decided`, and of two at the same time exactly one is written.
A call may be asked about more than once.  Its id names its first question only: a decision about a later one names the
ticket, so that a decision that is sent again never answers a question that its sender has not seen.
A decision starts no run: the caller's `also` makes the run of the call due in the same write, for a worker.

A ticket is visible on every timeline whose conversation has its call.  A decision on another timeline than the
ticket's own leaves the ticket and its call as they are and makes a copy of the call on that timeline.  The
conversation names the first call on every timeline; the state of the call on a timeline is the state of the copy that
was decided there.  After an undo past the call there is nothing to decide.  The first reader that finds an overdue
ticket closes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from perdure.engines.contract import CellWrite
from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Decided, Forgotten, Invalid
from perdure.history import reader
from perdure.history.ancestry import commits_of, of_run, stands_on, told_in
from perdure.history.space import (
    Space,
    read_record,
)
from perdure.ledger import call_identity, calls, json_schema, repeat_guard, tickets
from perdure.ledger.calls import CallTransition, Changes, VersionedCall
from perdure.ledger.held import check_released
from perdure.ledger.tickets import TICKET, StoredTicket
from perdure.model import canonical, names
from perdure.model.call import CallRecord, CallState
from perdure.model.canonical import Json
from perdure.model.digest import Digest, Kind, Object
from perdure.model.effect import check_decider
from perdure.model.event import ApprovalDecided
from perdure.model.run import RunRecord
from perdure.model.ticket import CHILD_RUN, DECISIONS, Decision, Ticket, Verdict
from perdure.projections.calls import Transition

__all__ = [
    "COPY",
    "DecisionOutcome",
    "Rework",
    "decide",
    "due",
    "expire_due",
    "is_of",
    "took_in",
    "withdraw",
    "decided_on",
    "standing",
    "asked_of_people",
    "place_of",
    "release",
    "run_of",
    "waiting_on",
]


Rework: TypeAlias = Callable[[CallRecord, dict[str, Json]], Changes]
"""Returns the other fields that new arguments change: the fingerprint, a templated key.  Raises `Invalid` to refuse."""

Also: TypeAlias = Callable[[Ticket], Iterable[CellWrite]]
"""Returns the cells that a decision about a ticket writes beside its own."""

COPY = "copy/"  # cells: the call that was decided on a timeline, by timeline and the call that it was copied from


class DecisionOutcome(msgspec.Struct, frozen=True):
    """The result of a decision."""

    ticket: Ticket
    held: VersionedCall  # the decided call; a new one on another timeline than the ticket's own
    first: bool  # False: the same decision was made before, and nothing was written


class _DecisionRequest(msgspec.Struct, frozen=True):
    """A decision as the caller gave it."""

    verdict: Verdict
    value: Object | None
    arguments: Json
    by: str | None
    why: str | None
    rework: Rework | None
    op_id: str | None = None

    def at(self, now: int) -> Decision:
        """Return the decision with the time `now`."""
        digest, size = (self.value.digest, len(self.value.body)) if self.value else (None, 0)
        return Decision(
            verdict=self.verdict,
            at=now,
            by=self.by,
            why=self.why,
            value=digest,
            value_size=size,
            op_id=self.op_id,
        )


def decide(
    space: Space,
    id: str,
    verdict: Verdict,
    *,
    line: str,
    head: Digest | None,
    value: str | None = None,
    by: str | None = None,
    why: str | None = None,
    rework: Rework | None = None,
    also: Also | None = None,
    op_id: str | None = None,
) -> DecisionOutcome:
    """Decide what a call waits for, on the timeline `line` whose head is `head`; `id` is the call's or the ticket's.

    An `op_id` names the request: sent again it gives the first decision, whatever the call waits for by then.
    `also` returns what the same write changes for the run of the call.  `value` is the JSON text of new arguments (`edit`)
    or of the result (`answer`).  Raises `Decided` if it was decided otherwise, `Conflict` if it waits for nothing, is
    not in the history of the timeline, or `id` is a call's that was asked about before, `Invalid` for a value that does
    not fit, or without `by` for an effect from `financial` up, `Held` if the thread came from another store and
    was not released; nothing was written then.  An edit that changes nothing is an approval.
    """
    wanted = _request(verdict, value, by, why, rework, op_id)
    check_released(space)
    attempts = Attempts(f"call '{id}'", f"call '{id}' was not decided")
    while True:
        attempts.begin()
        asked, current = _locate(space, id)
        made = None if op_id is None else _made_by(space, asked.ticket, op_id)
        if verdict == "edit" and _changes_nothing(space, made or asked.ticket, wanted):
            wanted = _request("approve", None, by, why, rework, op_id)
        if made is not None:
            return _again(space, made, wanted)
        if asked.ticket.action == CHILD_RUN:
            raise _waits_for_child(asked.ticket)
        check_decider(current.record.effect, by, f"call '{current.record.id}' to {current.record.tool}")
        now = space.clock()
        if asked.ticket.decision is None and due(asked.ticket, now):
            calls.post_first(space, _lapsing(current, asked, now))
            continue
        elsewhere = line != asked.ticket.timeline
        found = _elsewhere(space, asked, line, head, now) if elsewhere else asked
        if found is not None and found.ticket.decision is not None:
            return _again(space, found.ticket, wanted)
        _check_present(space, asked.ticket, line, head)
        if id != asked.ticket.id:
            _check_first_question(space, asked.ticket)
        _check_value(asked.ticket, wanted)
        transition = _decided_by(space, current, asked, line, wanted, now)
        if also is not None:
            transition = transition.also(cells=also(asked.ticket))
        moved = calls.post_first(space, transition)
        if moved is not None:
            return DecisionOutcome(tickets.read(space, transition.record.ticket or "").ticket, moved, True)


def _decided_by(
    space: Space, current: VersionedCall, asked: StoredTicket, line: str, wanted: _DecisionRequest, now: int
) -> CallTransition:
    """Return the transition of a person's decision on a timeline."""
    transition = (
        _copying(space, current.record, asked.ticket, line, wanted, now)
        if line != asked.ticket.timeline
        else deciding(current, asked, wanted.at(now), value=wanted.value, rework=wanted.rework)
    )
    if wanted.verdict == "deny" and asked.ticket.action == "repeat":
        transition = transition.also(cells=repeat_guard.denying(space, transition.record))
    return transition


def deciding(
    current: VersionedCall,
    asked: StoredTicket,
    decision: Decision,
    *,
    value: Object | None = None,
    rework: Rework | None = None,
) -> CallTransition:
    """Return the transition of a decision, with the cells of the ticket; `value` is the body that it names.

    Raises `Conflict` if the call is not waiting.
    """
    closed, step = tickets.closing(asked, decision)
    state, changes = _leads_to(current.record, asked.ticket, decision, value, rework)
    transition = calls.advance(current, state, at=decision.at, step=step, **changes)
    return transition.also(cells=closed, objects=(value,) if value else ())


def release(space: Space, current: VersionedCall) -> VersionedCall:
    """Let a call that waits for child runs go on: one of them can; return the call as it is then."""
    asked = tickets.read(space, current.record.ticket or "")
    if asked.ticket.decision is not None:
        return calls.read(space, current.record.id)
    decision = Decision(verdict="approve", at=space.clock(), why="a child run can go on")
    moved = calls.post_first(space, deciding(current, asked, decision))
    return moved or calls.read(space, current.record.id)


def _waits_for_child(ticket: Ticket) -> Conflict:
    children = tickets.children_of(ticket)
    return Conflict(
        f"call '{ticket.call}' to {ticket.tool} waits for a child run on thread '{children[0].thread}'; nothing was "
        "decided.",
        code="call_waits_for_child",
        advice="Decide what the child waits for: approvals() lists it.",
        call=ticket.call,
        thread=children[0].thread,
        run=children[0].run,
    )


def withdraw(space: Space, call: str, *, by: str | None = None, why: str | None = None) -> DecisionOutcome:
    """Cancel a call that waits for a decision; raises `Decided` if it was decided."""
    wanted = _DecisionRequest("cancel", None, None, by, why, None)
    attempts = Attempts(f"call '{call}'", f"call '{call}' was not cancelled")
    while True:
        attempts.begin()
        asked, current = _locate(space, call)
        if asked.ticket.decision is not None:
            return _again(space, asked.ticket, wanted)
        decision = wanted.at(space.clock())
        moved = calls.post_first(space, deciding(current, asked, decision))
        if moved is not None:
            return DecisionOutcome(msgspec.structs.replace(asked.ticket, decision=decision), moved, True)


def due(ticket: Ticket, now: int) -> bool:
    """True if the time to decide the ticket is over."""
    return ticket.expires_at is not None and now >= ticket.expires_at


def expire_due(space: Space, *, now: int | None = None) -> list[DecisionOutcome]:
    """Close every overdue ticket of the thread, each by its own rule; None takes the time of the space's clock."""
    moment = space.clock() if now is None else now
    closed: list[DecisionOutcome] = []
    for ticket in tickets.opened(space):
        asked = tickets.read(space, ticket.id)
        if asked.ticket.decision is None and due(ticket, moment):
            transition = _lapsing(calls.read(space, ticket.call), asked, moment)
            moved = calls.post_first(space, transition)
            if moved is not None:  # else another process closed it first
                closed.append(DecisionOutcome(tickets.read(space, ticket.id).ticket, moved, True))
    return closed


def _request(
    verdict: Verdict,
    value: str | None,
    by: str | None,
    why: str | None,
    rework: Rework | None,
    op_id: str | None,
) -> _DecisionRequest:
    if verdict not in DECISIONS:
        raise Invalid(
            f"{verdict!r} is not a decision; nothing was decided.",
            code="verdict_unknown",
            advice=f"Use one of {', '.join(DECISIONS)}.",
            verdict=verdict,
        )
    names.check_person(by)
    names.check_words("why", why)
    if (value is not None) != (verdict in ("edit", "answer")):
        rule = "needs a" if value is None else "takes no"
        raise Invalid(
            f"{verdict} {rule} value; nothing was decided.",
            code="value_missing" if value is None else "value_not_taken",
            advice="Give it with value=." if value is None else "Leave value= out.",
            verdict=verdict,
        )
    if value is None:
        return _DecisionRequest(verdict, None, None, by, why, rework, op_id)
    parsed = json_schema.parse_value(value, "the value")
    return _DecisionRequest(verdict, Object.of(Kind.BODY, value.encode()), parsed, by, why, rework, op_id)


def _locate(space: Space, id: str) -> tuple[StoredTicket, VersionedCall]:
    """Read a ticket and its call, by the id of either."""
    current = calls.find(space, id)
    asked = None if current else tickets.find(space, id)
    if asked is not None:
        return asked, calls.read(space, asked.ticket.call)
    current = current or calls.read(space, id)
    if current.record.ticket is None:
        raise Conflict(
            f"call '{id}' is {current.record.state} and waits for no decision; nothing was decided.",
            code="call_not_waiting",
            call=id,
            state=current.record.state,
        )
    return tickets.read(space, current.record.ticket), current


def _made_by(space: Space, ticket: Ticket, op_id: str) -> Ticket | None:
    """Return the question about the call that the request of this op_id has decided; None: it has decided none."""
    for each in (ticket, *tickets.followed(space, ticket)):
        if each.decision is not None and each.decision.op_id == op_id:
            return each
    return None


def _check_first_question(space: Space, ticket: Ticket) -> None:
    """Raise `Conflict` if people were asked about the call before: a decision that names the call may be about that."""
    for before in tickets.followed(space, ticket):
        is_over = before.decision is not None and due(before, before.decision.at)
        if before.action == CHILD_RUN or (before.is_timer and is_over):
            continue  # no person was asked
        raise Conflict(
            f"call '{ticket.call}' to {ticket.tool} was asked about before, as '{before.id}', and waits for another "
            f"decision now, '{ticket.id}'; the decision names the call and not the question, so nothing was decided.",
            code="question_not_named",
            advice=f"Read the question that waits, and decide it by its own id, '{ticket.id}'.",
            call=ticket.call,
            ticket=ticket.id,
            earlier=before.id,
        )


def _again(space: Space, ticket: Ticket, wanted: _DecisionRequest) -> DecisionOutcome:
    """Return the outcome of a decided ticket; raises `Decided` unless it was decided in the same way."""
    first = ticket.decision
    assert first is not None
    if (first.verdict, first.value) != (wanted.verdict, wanted.value.digest if wanted.value else None):
        raise _decided(ticket, first)
    return DecisionOutcome(ticket, calls.read(space, ticket.call), False)


def _decided(ticket: Ticket, first: Decision) -> Decided:
    who = f" by {first.by}" if first.by else ""
    why = f" ({first.why})" if first.why else ""
    return Decided(
        f"call '{ticket.call}' to {ticket.tool} was decided already: {first.verdict}{who}{why}; nothing was written.",
        advice="The first decision is final.",
        call=ticket.call,
        tool=ticket.tool,
        verdict=first.verdict,
        by=first.by,
        why=first.why,
    )


def _elsewhere(
    space: Space, asked: StoredTicket, line: str, head: Digest | None, now: int
) -> StoredTicket | None:
    """Return the decided ticket as this other timeline sees it; None: it is not decided there."""
    found = tickets.find(space, _id_on(asked.ticket, line))
    if found is not None:
        return found
    if asked.ticket.decision is not None and took_in(space, asked.ticket, head):
        return asked
    if due(asked.ticket, now):
        raise Conflict(
            f"the time to decide on call '{asked.ticket.call}' is over; nothing was decided.",
            code="ticket_overdue",
            call=asked.ticket.call,
        )
    return None


def took_in(space: Space, ticket: Ticket, head: Digest | None) -> bool:
    """True if the decision is in the conversation of `head`: the timeline was forked, or merged the other, after it.

    One commit has both the decision and the result of the call.
    """
    current = calls.find(space, ticket.call)
    label = current.record.result_label if current else None
    if label and commits_of(space, label):
        by_hand = current is not None and current.record.origin == "call"
        return stands_on(space, label, head) and (not by_hand or told_in(space, ticket.call, label, head))
    # Any run may continue a copied call, so its whole history is searched; any other ticket belongs to its run.
    steps = reader.steps(space, head) if ticket.run is None else reversed(of_run(space, ticket.run, head))
    for step in steps:
        for event in step.changeset.events:
            if isinstance(event, ApprovalDecided) and event.ticket == ticket.id:
                return True
            if event.id == ticket.label:
                return False
    return False


def is_seen(space: Space, ticket: Ticket, line: str, head: Digest | None) -> bool:
    """True if the call is in the conversation of the timeline; an uncommitted call is on its own timeline.

    A call that was merged into the timeline is not: no run there would continue it.
    """
    if commits_of(space, ticket.label):
        return stands_on(space, ticket.label, head)
    return line == ticket.timeline


def _check_present(space: Space, ticket: Ticket, line: str, head: Digest | None) -> None:
    """Raise `Conflict` if the line does not see the ticket."""
    if not is_seen(space, ticket, line, head):
        code, why, advice = _elsewhere_or_undone(ticket, line)
        raise Conflict(
            f"call '{ticket.call}' to {ticket.tool} is not in the conversation of timeline '{line}': {why}; nothing was "
            "decided.",
            code=code,
            advice=advice,
            call=ticket.call,
            run=ticket.run,
            timeline=ticket.timeline,
        )


def _elsewhere_or_undone(ticket: Ticket, line: str) -> tuple[str, str, str]:
    """Return the code, the reason and the advice for a ticket that the line does not see."""
    if line != ticket.timeline:
        return "call_elsewhere", f"it was asked on '{ticket.timeline}'", "Decide it there."
    if ticket.run is None:
        return "copied_call_undone", "it was undone", "Take the undo back with redo(), or leave it as it is."
    return (
        "call_undone",
        "it was undone",
        f"Take the undo back with redo(), or end its run with cancel('{ticket.run}').",
    )


def _check_value(ticket: Ticket, wanted: _DecisionRequest) -> None:
    as_arguments = wanted.verdict == "edit" or (wanted.verdict == "answer" and ticket.resume == "arguments")
    if as_arguments and not isinstance(wanted.arguments, dict):
        raise Invalid(
            f"the arguments of {ticket.tool} must be a JSON object; nothing was decided.",
            code="arguments_not_object",
            tool=ticket.tool,
        )
    if wanted.verdict == "answer" and ticket.response_schema is not None:
        json_schema.check_answer(ticket.response_schema, wanted.arguments)


def _changes_nothing(space: Space, ticket: Ticket, wanted: _DecisionRequest) -> bool:
    """True if new arguments are those that the question is about: then an edit is an approval."""
    try:
        asked = json_schema.parse_value(space.body(ticket.args).decode("utf-8", "surrogatepass"), "they")
    except (Forgotten, Invalid):
        return False
    return canonical.encode(asked) == canonical.encode(wanted.arguments)


def _leads_to(
    record: CallRecord, ticket: Ticket, decision: Decision, value: Object | None, rework: Rework | None
) -> tuple[CallState, Changes]:
    """Return the state of the call after a decision, and the fields that change."""
    match decision.verdict:
        case "deny":
            return "denied", {"why": decision.why, "status": "error"}
        case "expire":
            return "expired", {"why": decision.why, "status": "error"}
        case "cancel":
            return "cancelled", {"why": decision.why, "status": "error"}
        case "answer" if ticket.resume != "arguments":
            return "approved", {}  # no tool runs: the answer is the result
        case "edit" | "answer":
            return "approved", _edited(record, ticket, decision, value, rework)
        case "approve":
            return "approved", {"approved": ticket.args, "approved_fingerprint": ticket.fingerprint}


def _edited(
    record: CallRecord, ticket: Ticket, decision: Decision, value: Object | None, rework: Rework | None
) -> Changes:
    assert value is not None
    assert value.digest == decision.value
    first = record.fingerprint if record.first_fingerprint is None else record.first_fingerprint
    changes: Changes = {"fingerprint": "", "first_fingerprint": first}
    if rework is not None:
        arguments = json_schema.parse_value(value.body.decode(), "the value")
        assert isinstance(arguments, dict)
        changes.update(rework(record, arguments))
    if (
        not changes.get("fingerprint") and ticket.arguments_schema is not None
    ):  # the tool has not checked them
        json_schema.check_arguments(
            ticket.arguments_schema, json_schema.parse_value(value.body.decode(), "the value")
        )
    changes["args"] = changes["approved"] = value.digest
    changes["args_size"] = len(value.body)
    changes["approved_fingerprint"] = changes.get("fingerprint", "")
    return changes


def _lapsing(current: VersionedCall, asked: StoredTicket, now: int) -> CallTransition:
    """Return the transition of a ticket that was not decided in time."""
    # The reason is stored in the ledger, where readers of older entries know it.
    why = "its time has come" if asked.ticket.is_timer else "nobody decided in time"
    decision = Decision(verdict=asked.ticket.on_timeout, at=now, why=why)
    return deciding(current, asked, decision)


def _copying(
    space: Space, origin: CallRecord, ticket: Ticket, line: str, wanted: _DecisionRequest, now: int
) -> CallTransition:
    """Return the transition that enters a decided copy of a call on another timeline; the origin does not change."""
    id, decision = space.ids(), wanted.at(now)
    size = origin.args_size if origin.args == ticket.args else len(space.body(ticket.args))
    fresh = CallRecord(
        id=id,
        tool=origin.tool,
        state="proposed",
        args=ticket.args,
        args_size=size,
        at=now,
        fingerprint=ticket.fingerprint,
        effect=origin.effect,
        idempotent=origin.idempotent,
        version=origin.version,
        key=call_identity.default_key(space.label, id)
        if call_identity.is_default(origin, space.label)
        else origin.key,
        key_scope=origin.key_scope,
        timeline=line,
        label=origin.label,
        backend=origin.backend,
        vendor_id=origin.vendor_id,
        copied_from=origin.id,
        ticket=_id_on(ticket, line),
    )
    state, changes = _leads_to(fresh, ticket, decision, wanted.value, wanted.rework)
    decided = msgspec.structs.replace(
        ticket, id=fresh.ticket or "", call=id, timeline=line, run=None, decision=decision
    )
    value = canonical.encode_struct(decided)
    transition = calls.propose(
        msgspec.structs.replace(fresh, **changes),
        "awaiting_approval",
        state,
        step=Transition(ticket=msgspec.Raw(value)),
    )
    cell = CellWrite(name=TICKET + decided.id, expected=0, value=value)
    cells = (cell, tickets.closed(decided), _copied(space, line, origin, id))
    return transition.also(cells=cells, objects=(wanted.value,) if wanted.value else ())


def _copied(space: Space, line: str, origin: CallRecord, copy: str) -> CellWrite:
    """Return the cell by which the timeline finds the copy; its name has the call that the conversation names."""
    name = f"{COPY}{line}:{first_of(space, origin).id}"
    before = space.engine.cell(space.name, name)
    return CellWrite(name=name, expected=before.revision if before else 0, value=canonical.encode(copy))


def first_of(space: Space, record: CallRecord) -> CallRecord:
    """Read the call that a copy, or a copy of a copy, was made from."""
    while record.copied_from is not None:
        record = calls.read(space, record.copied_from).record
    return record


def run_of(space: Space, ticket: Ticket) -> str | None:
    """Return the run whose model requested the call of a ticket, also if the call is a copy; None: a program made it."""
    return ticket.run or first_of(space, calls.read(space, ticket.call).record).run


def is_of(space: Space, ticket: Ticket, run: RunRecord) -> bool:
    """True if a run asks the question: its call is one of the run's, or one that the run continues for another timeline."""
    if ticket.run is not None or run.continues is None:
        return ticket.run == run.id
    return run_of(space, ticket) in (run.continues, run.parent_run)


def _id_on(ticket: Ticket, line: str) -> str:
    """Return the id under which a ticket is decided on another timeline."""
    return f"{ticket.id}/{line}"


_ids = msgspec.json.Decoder(str)


def standing(space: Space, id: str, line: str) -> VersionedCall | None:
    """Read the call of that id as it is on `line`: the copy that was decided there, else the call itself."""
    current = calls.find(space, id)
    if current is None or current.record.timeline == line:
        return current
    cell = space.engine.cell(space.name, f"{COPY}{line}:{id}")
    return current if cell is None or cell.value is None else calls.read(space, read_record(cell, _ids))


def decided_on(space: Space, line: str) -> list[str]:
    """Return the calls of other timelines that were decided on `line`, by the ids in its conversation."""
    return list(space.marked(COPY, line))


def waiting_on(space: Space, line: str, head: Digest | None) -> list[Ticket]:
    """Read the tickets that can be decided on `line`, whose head is `head`.

    A ticket that was asked and decided on another timeline still waits here, unless the decision is in this history
    too; a ticket that was decided here does not.  Where a call waits for child runs, their tickets are in the list.
    """
    found = [each for each in tickets.open_on(space, line) if is_seen(space, each, line, head)]
    elsewhere: dict[str, list[Ticket]] = {}  # by the call that the conversation names
    for ticket in tickets.elsewhere(space, line):
        if is_seen(space, ticket, line, head):
            first = first_of(space, calls.read(space, ticket.call).record)
            if first.timeline != line:
                elsewhere.setdefault(first.id, []).append(ticket)
    here = set(decided_on(space, line)) if elsewhere else set[str]()
    for call, asked_for in elsewhere.items():
        if call not in here:
            # Child runs belong to the timeline whose call started them.
            found += [each for each in _still_open(space, asked_for, head) if each.action != CHILD_RUN]
    return asked_of_people(space, found)


def asked_of_people(space: Space, found: list[Ticket]) -> list[Ticket]:
    """Return the tickets as of now, with those of child runs in place of the ones that wait for child runs."""
    return [
        tickets.as_of_now(inside, asked)
        for each in found
        for inside, asked in (
            [(space, each)] if each.action != CHILD_RUN else tickets.of_children(space, each)
        )
    ]


def place_of(space: Space, id: str, line: str) -> tuple[Space, str]:
    """Return where the call or ticket of that id is decided: here, or on the timeline of a child run that is waited for.

    Raises `Conflict` if the call that waits for the child was undone.
    """
    if space.engine.cell(space.name, calls.CALL + id) is None:
        for ticket in tickets.open_on(space, line):
            for inside, asked in tickets.of_children(space, ticket):
                if id in (asked.call, asked.id):
                    _check_present(space, ticket, line, reader.head_of(space, line).commit)
                    return inside, asked.timeline
    return space, line


def _still_open(space: Space, asked: list[Ticket], head: Digest | None) -> list[Ticket]:
    """Return the ticket that is still to be decided, of all tickets for one call on other timelines."""
    for ticket in asked:
        if ticket.decision is None:
            return [ticket]
    if any(took_in(space, ticket, head) for ticket in asked):
        return []
    return [msgspec.structs.replace(asked[0], decision=None)]
