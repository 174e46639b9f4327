"""The shapes of runs, tool calls and approvals.

What others wrote, arguments and results, is parsed where it is JSON, and text where it is not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec

from perdure.errors import Conflict, NotFound
from perdure.model.message import view
from perdure.model.run import Cost, Usage
from perdure.runtime.events import Happened, HeadMoved
from perdure.shapes.conversation import MessageShape, StepLossShape, step_losses, transcript_of
from perdure.shapes.text import in_json, now, stamp

if TYPE_CHECKING:  # a list of runs does not load what runs an agent
    from perdure.ledger.trace import Passed, Traced
    from perdure.model.call import CallRecord
    from perdure.model.run import RunRecord
    from perdure.model.ticket import Decision, Ticket
    from perdure.projections.transcript import TranscriptEntry
    from perdure.runtime.events import Committed, WaitingCall
    from perdure.runtime.session.result import Result
    from perdure.store.runs import ChildRun
    from perdure.store.thread import Thread
    from perdure.switching.report import Report

__all__ = [
    "EventShape",
    "StopShape",
    "CostShape",
    "RunShape",
    "RunPage",
    "OneRun",
    "RunResult",
    "RunDetail",
    "CallRecordShape",
    "CallPage",
    "CallDetail",
    "CallAfter",
    "DecisionShape",
    "TicketShape",
    "ApprovalPage",
    "ApprovalDetail",
    "DecidedCall",
]

_MESSAGES_SCANNED = 500


class StopShape(msgspec.Struct, frozen=True, kw_only=True):
    """Why the last answer of a run, or the run itself, ended."""

    reason: str  # `completed`, `truncated`, `refused`, `limit` and so on
    word: str | None  # the backend's own word, or the name of the limit


class CostShape(msgspec.Struct, frozen=True, kw_only=True):
    """What steps of models cost, in US dollars."""

    usd: float  # of the steps whose price is known
    steps: int
    unpriced: int  # steps whose price is not known, which are not in `usd`

    @classmethod
    def of(cls, cost: Cost) -> CostShape:
        """Return the cost in the shape of --json."""
        return cls(usd=cost.usd, steps=cost.steps, unpriced=cost.unpriced)

    @property
    def cost(self) -> Cost:
        """The cost itself."""
        return Cost(usd=self.usd, steps=self.steps, unpriced=self.unpriced)


class RunShape(msgspec.Struct, frozen=True, kw_only=True):
    """One run: one activation of an agent, from input to finish."""

    thread: str
    id: str
    agent: str
    agent_version: str | None
    timeline: str
    state: str
    interrupted: bool  # it has not ended, and no process is at it: it can be resumed
    decided: bool  # it waits, and something that it waits for was decided: it can be resumed
    due: str | None  # when a worker begins it or looks at it; null: it needs no worker
    scheduled: bool  # it was queued for a later time
    set_aside: bool  # it ended its worker three times, and no worker takes it
    begun_at: str
    at: str  # of its last change
    backend: str | None  # that takes its steps, or took the last
    head_policy: str
    why: str | None
    kind: str | None  # of the error, where it failed
    stop: StopShape | None  # why it ended; null: it has not, failed, or was cancelled
    cancel: str | None  # why it was asked to stop; null: it was not
    cancelled_by: str | None  # who asked

    @classmethod
    def of(cls, thread: str, record: RunRecord, *, interrupted: bool, decided: bool) -> RunShape:
        """Return the run in the shape of --json."""
        return cls(
            thread=thread,
            id=record.id,
            agent=record.agent,
            agent_version=record.agent_version,
            timeline=record.timeline,
            state=record.state,
            interrupted=interrupted,
            decided=decided,
            due=None if record.due is None else stamp(record.due),
            scheduled=record.scheduled,
            set_aside=record.aside_at is not None,
            begun_at=stamp(record.begun_at),
            at=stamp(record.at),
            backend=record.backend,
            head_policy=record.head_policy,
            why=record.why,
            kind=record.kind,
            stop=StopShape(reason=record.stop.reason, word=record.stop.word) if record.stop else None,
            cancel=record.cancel,
            cancelled_by=record.cancelled_by,
        )

    @classmethod
    def now(cls, thread: Thread, record: RunRecord) -> RunShape:
        """Return the run as it is at this moment."""
        return cls.of(
            thread.id,
            record,
            interrupted=record.state == "running" and thread.interrupted(record.id),
            decided=record.state == "waiting" and thread.decided(record.id),
        )

    @property
    def shown_state(self) -> str:
        """Return the state as people read it."""
        if self.set_aside:
            return "set aside"
        if self.interrupted:
            return "interrupted"
        if self.state == "created":
            return "scheduled" if self.scheduled else "queued"
        return "waiting, decided" if self.decided else self.state


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a thread, oldest first; without one, those of all threads that have not ended."""

    thread: str | None
    runs: list[RunShape]
    more: bool  # whether there are older ones beyond the limit


class OneRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run and its state now."""

    thread: str
    run: RunShape


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run."""

    thread: str
    run: str
    status: str
    text: str  # the assistant's last words
    why: str | None
    approvals: list[TicketShape]  # what it waits for
    calls: int  # that ended in it
    failed: list[str]  # the calls that failed in it
    unclear: list[str]  # the calls in it whose outcome is unknown, also by now
    steps: int  # how often the model was asked, over the whole run
    input_tokens: int
    output_tokens: int
    commit: str | None

    @classmethod
    def of(cls, thread: Thread, result: Result) -> Self:
        """Return the result as programs read it."""
        return cls(
            thread=thread.id,
            run=result.run,
            status=result.status,
            text=result.text,
            why=result.why,
            approvals=[TicketShape.of(thread, each, at_now=now()) for each in result.approvals],
            calls=result.calls,
            failed=list(result.failed_calls),
            unclear=list(result.unclear_calls),
            steps=result.steps,
            input_tokens=result.usage.input_tokens,
            output_tokens=result.usage.output_tokens,
            commit=result.commit,
        )


class RouteStep(msgspec.Struct, frozen=True, kw_only=True):
    """One backend that took over in the run, from whom, and why."""

    from_backend: str | None
    to_backend: str
    why: str | None
    notes: list[str]  # who was passed over, and what the turn had done by then
    commit: str | None

    @classmethod
    def of(cls, report: Report) -> RouteStep:
        """Return the switch in the shape of --json."""
        return cls(
            from_backend=report.from_backend,
            to_backend=report.to_backend,
            why=report.reason,
            notes=list(report.notes),
            commit=report.commit,
        )


class ParentShape(msgspec.Struct, frozen=True, kw_only=True):
    """The call that a run is a child of."""

    thread: str
    run: str | None
    call: str

    @classmethod
    def of(cls, record: RunRecord) -> ParentShape | None:
        """Return the parent of a run in the shape of --json; None if the run is no child."""
        if record.parent is None:
            return None
        return cls(thread=record.parent.thread, run=record.parent_run, call=record.parent.call)


class ChildShape(msgspec.Struct, frozen=True, kw_only=True):
    """One run that a tool of the run started."""

    thread: str
    run: str
    agent: str
    state: str
    why: str | None

    @classmethod
    def of(cls, child: ChildRun) -> ChildShape:
        """Return the child in the shape of --json."""
        record = child.record
        return cls(thread=child.thread, run=record.id, agent=record.agent, state=record.state, why=record.why)


class RunDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its state, its route, its messages and its calls."""

    thread: str
    run: RunShape
    route: list[RouteStep]  # the backends that took over on the way, oldest first
    messages: list[MessageShape]  # oldest first
    calls: list[CallRecordShape]
    losses: list[StepLossShape]  # what could not be carried over unchanged, step by step
    parent: ParentShape | None  # the call that it is a child of; null: it is no child
    children: list[ChildShape]  # the runs that its tools started
    usage: Usage  # tokens of its steps
    cost: CostShape  # of its steps, without its children

    @classmethod
    def of(cls, thread: Thread, record: RunRecord) -> Self:
        """Return the run as programs read it."""
        said = _said(thread, record)
        return cls(
            thread=thread.id,
            run=RunShape.now(thread, record),
            route=[RouteStep.of(each) for each in _route(thread, record)],
            messages=[MessageShape.of(entry) for entry in said],
            calls=[CallRecordShape.traced(thread, each) for each in thread.calls(run=record.id)],
            losses=[each for entry in said for each in step_losses(entry.id, thread.losses(entry))],
            parent=ParentShape.of(record),
            children=[ChildShape.of(each) for each in thread.children(record.id)],
            usage=sum((entry.usage for entry in said if entry.usage is not None), Usage()),
            cost=CostShape.of(
                sum((Cost.of(entry.cost) for entry in said if entry.role == "assistant"), Cost())
            ),
        )


def _route(thread: Thread, record: RunRecord) -> Sequence[Report]:
    """Return the switches that the run made; none if its commits are on no timeline."""
    try:
        return thread.on(record.timeline).switches(run=record.id)
    except NotFound:
        return ()


def _said(thread: Thread, record: RunRecord) -> Sequence[TranscriptEntry]:
    """Return the messages of the run, also after an undo; none if its commits are on no timeline."""
    try:
        seen = thread.on(record.timeline).at(record.id)
    except NotFound:
        return ()
    return [entry for entry in transcript_of(seen, limit=_MESSAGES_SCANNED) if entry.run == record.id]


class CallRecordShape(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call, as the ledger knows it."""

    thread: str
    id: str
    tool: str
    state: str
    effect: str
    idempotent: bool
    arguments: Any  # JSON, or text that is none; null: forgotten
    attempt: int  # how often it was started
    key: str | None
    timeline: str
    run: str | None
    backend: str | None
    origin: str | None  # null: a run; `call`: by hand; `import`: brought from elsewhere
    copied_from: str | None
    ticket: str | None  # the last approval that it waited for
    status: str | None  # of the result
    outcome: str | None  # what a person resolved it to
    result: str | None  # an artifact
    why: str | None
    started_at: str | None  # when its tool was last called; null: it was not, or is not known
    ended_at: str | None  # when what came of that was recorded; null: nothing was yet
    at: str  # of its last change

    @classmethod
    def of(cls, thread: str, traced: Traced) -> CallRecordShape:
        """Return a call that was traced with its history, in the shape of --json."""
        record = traced.record
        started, ended = traced.last_attempt
        return cls(
            thread=thread,
            id=record.id,
            tool=record.tool,
            state=record.state,
            effect=record.effect,
            idempotent=record.idempotent,
            arguments=in_json(traced.arguments),
            attempt=record.attempt,
            key=record.key,
            timeline=record.timeline,
            run=record.run,
            backend=record.backend,
            origin=record.origin,
            copied_from=record.copied_from,
            ticket=record.ticket,
            status=record.status,
            outcome=record.outcome,
            result=record.result,
            why=record.why,
            started_at=None if started is None else stamp(started),
            ended_at=None if ended is None else stamp(ended),
            at=stamp(record.at),
        )

    @classmethod
    def traced(cls, thread: Thread, record: CallRecord) -> CallRecordShape:
        """Return a call with its arguments and its times, which are read from the thread."""
        return cls.of(thread.id, thread.trace(record.id))


class CallPage(msgspec.Struct, frozen=True, kw_only=True):
    """The tool calls of a thread, oldest first; without a thread, all calls whose outcome is unknown."""

    thread: str | None
    calls: list[CallRecordShape]
    more: bool  # whether there are older ones beyond the limit


class PassedShape(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the ledger about a call."""

    at: str
    states: list[str]  # that it passed, in order; none: something was learnt of it
    by: str | None
    why: str | None

    @classmethod
    def of(cls, passed: Passed) -> PassedShape:
        """Return the entry in the shape of --json."""
        return cls(at=stamp(passed.at), states=list(passed.states), by=passed.by, why=passed.why)


class CallDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call: what it was asked to do, what it gave back, and the way that it took."""

    thread: str
    call: CallRecordShape
    is_edited: bool  # whether a person replaced the arguments
    edited_by: str | None  # null: the arguments were not edited, or the decision names no person
    proposed: Any  # the arguments that the model gave, if a person replaced them; else null
    shown: str | None  # what the model is shown of the result
    passed: list[PassedShape]  # oldest first

    @classmethod
    def of(cls, thread: Thread, traced: Traced) -> Self:
        """Return a call that was traced with its history."""
        decision = traced.ticket.decision if traced.ticket is not None else None
        is_edited = decision is not None and decision.verdict == "edit"
        return cls(
            thread=thread.id,
            call=CallRecordShape.of(thread.id, traced),
            is_edited=is_edited,
            edited_by=decision.by if decision is not None and is_edited else None,
            proposed=in_json(traced.asked) if is_edited else None,
            shown=_words_of_result(traced),
            passed=[PassedShape.of(each) for each in traced.passed],
        )


class CallAfter(msgspec.Struct, frozen=True, kw_only=True):
    """A call and its state now."""

    thread: str
    call: CallRecordShape
    before: str  # its state before

    @classmethod
    def by(cls, thread: Thread, call: str, before: str) -> Self:
        """Return the answer about that call."""
        return cls(thread=thread.id, call=CallRecordShape.of(thread.id, thread.trace(call)), before=before)


def _words_of_result(traced: Traced) -> str | None:
    """Return the result as the model gets it, as text; None: there is none yet."""
    if traced.result is None:
        return None
    return "\n".join(_block(block) for block in msgspec.to_builtins(traced.result.content))


def _block(block: dict[str, Any]) -> str:
    return str(block["text"]) if "text" in block else json.dumps(block, ensure_ascii=False)


class DecisionShape(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided, by whom and why."""

    verdict: str
    at: str
    by: str | None
    why: str | None
    value: Any  # new arguments (edit) or the result (answer); else null

    @classmethod
    def of(cls, decision: Decision, value: str | None) -> DecisionShape:
        """Return the decision in the shape of --json."""
        return cls(
            verdict=decision.verdict,
            at=stamp(decision.at),
            by=decision.by,
            why=decision.why,
            value=in_json(value),
        )


class TicketShape(msgspec.Struct, frozen=True, kw_only=True):
    """One approval: what a call waits for, or waited for."""

    thread: str
    id: str
    call: str
    tool: str
    effect: str
    idempotent: bool
    arguments: Any  # that the question is about: JSON, or text that is none; null: forgotten
    action: str  # `approve`, `repeat` (the guard asks), or the tool's own word
    # Of the earlier call, now: possible, done, not_done, failed, denied; null: it is no repeat.
    repeat: str | None
    message: str
    timeline: str
    run: str | None
    asked_at: str
    age_seconds: int  # since it was asked
    expires_at: str | None  # null: it waits for ever
    on_timeout: str
    resume: str  # what a decision leads to: run the tool, use it as the result, or as the arguments
    parameters: Any
    response_schema: Any
    follows: str | None  # the question that the same call waited for before; null: it is the first

    @classmethod
    def of(cls, thread: Thread, ticket: Ticket, *, at_now: int) -> TicketShape:
        """Return the ticket as programs read it, with the call that it is about."""
        traced = thread.trace(ticket.id, history=False)
        return cls._made(thread.id, ticket, traced.record, traced.asked, at_now, traced.repeat)

    @classmethod
    def waiting(cls, call: WaitingCall) -> TicketShape:
        """Return the question of a call as a stream has it."""
        return cls._made(call.thread, call.ticket, call.record, call.arguments, now(), call.repeat)

    @classmethod
    def _made(
        cls,
        thread: str,
        ticket: Ticket,
        record: CallRecord,
        arguments: str | None,
        at_now: int,
        repeat: str | None,
    ) -> TicketShape:
        return cls(
            thread=thread,
            id=ticket.id,
            call=ticket.call,
            tool=ticket.tool,
            effect=record.effect,
            idempotent=record.idempotent,
            arguments=in_json(arguments),
            action=ticket.action,
            repeat=repeat,
            message=ticket.message,
            timeline=ticket.timeline,
            run=ticket.run,
            asked_at=stamp(ticket.asked_at),
            age_seconds=max(0, (at_now - ticket.asked_at) // 1_000_000),
            expires_at=None if ticket.expires_at is None else stamp(ticket.expires_at),
            on_timeout=ticket.on_timeout,
            resume=ticket.resume,
            parameters=in_json(ticket.parameters),
            response_schema=in_json(ticket.response_schema),
            follows=ticket.follows,
        )


class EventShape(msgspec.Struct, frozen=True, kw_only=True):
    """One durable event of a timeline, the commit that holds those before it, or another move of the head."""

    type: str  # as in the catalogue of events; `committed` for a commit, `head.moved` for another move
    cursor: str  # to go on after it
    commit: str | None  # where the head moved to; null: before the first
    run: str | None
    reason: str | None  # of a commit
    event: dict[str, Any] | None  # of a move: `act` and `version`
    message: dict[str, Any] | None  # the words, where a message was appended
    approval: TicketShape | None  # the question, where a call began to wait

    @classmethod
    def of(cls, event: Happened | Committed | HeadMoved) -> Self:
        """Return the event as programs read it."""
        if isinstance(event, HeadMoved):
            moved = {"type": event.type, "act": str(event.act), "version": event.version}
            return cls(
                type=event.type,
                cursor=event.cursor,
                commit=event.commit,
                run=None,
                reason=None,
                event=moved,
                message=None,
                approval=None,
            )
        happened = event if isinstance(event, Happened) else None
        message = happened.message if happened else None
        return cls(
            type=event.type,
            cursor=event.cursor,
            commit=event.commit,
            run=event.run,
            reason=None if isinstance(event, Happened) else event.reason,
            event=msgspec.to_builtins(happened.event) if happened else None,
            message=view(message) if message else None,
            approval=TicketShape.waiting(happened.waiting) if happened and happened.waiting else None,
        )


class ApprovalPage(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for a decision, oldest first."""

    thread: str | None  # null: all threads
    approvals: list[TicketShape]
    more: bool  # whether there are others beyond the limit


class ApprovalDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One approval: the question, the call that it is about, and what was decided."""

    thread: str
    ticket: TicketShape
    call: CallRecordShape
    arguments: Any  # that the question is about
    repeats: CallRecordShape | None  # the call that this one would repeat, or might
    decision: DecisionShape | None  # null: it is open

    @classmethod
    def of(cls, thread: Thread, traced: Traced) -> Self:
        """Return the approval of a call; raises `Conflict` if the call never waited for a decision."""
        ticket = traced.ticket
        if ticket is None:
            call = traced.record.id
            raise Conflict(
                f"call '{call}' is {traced.record.state} and never waited for a decision; nothing is shown.",
                code="call_never_waited",
                advice=f"See `perdure calls show {thread.id} {call}`.",
                call=call,
                state=traced.record.state,
            )
        return cls(
            thread=thread.id,
            ticket=TicketShape.of(thread, ticket, at_now=now()),
            call=CallRecordShape.of(thread.id, traced),
            arguments=in_json(traced.asked),
            repeats=_repeats(thread, ticket),
            decision=DecisionShape.of(ticket.decision, traced.value) if ticket.decision else None,
        )


class DecidedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, and the call that it moved."""

    thread: str
    ticket: str
    call: CallRecordShape
    before: Any  # the arguments that the question was about
    decision: DecisionShape
    again: bool  # it was decided in the same way before, and nothing was written
    checked: str | None = None  # `tool` or `schema`: what has checked new arguments; null: nothing has

    @classmethod
    def of(cls, thread: Thread, ticket: Ticket, *, again: bool) -> Self:
        """Return the decision about a ticket."""
        traced = thread.trace(ticket.id)
        assert traced.ticket is not None
        assert traced.ticket.decision is not None
        return cls(
            thread=thread.id,
            ticket=ticket.id,
            call=CallRecordShape.of(thread.id, traced),
            before=in_json(traced.asked),
            decision=DecisionShape.of(traced.ticket.decision, traced.value),
            again=again,
            checked=_checked(traced),
        )


def _repeats(thread: Thread, ticket: Ticket) -> CallRecordShape | None:
    parameters = in_json(ticket.parameters)
    if ticket.action != "repeat" or not isinstance(parameters, dict):
        return None
    earlier = cast("dict[str, object]", parameters).get("repeats")
    if not isinstance(earlier, str):
        return None
    try:
        traced = thread.trace(earlier)
    except NotFound:  # another thread has it: the root of a child run, or one that shares the key
        return None
    return CallRecordShape.of(thread.id, traced)


def _checked(traced: Traced) -> str | None:
    """Return what checked new arguments.  A call whose tool was not loaded has no fingerprint."""
    if traced.record.fingerprint:
        return "tool"
    return "schema" if traced.ticket is not None and traced.ticket.arguments_schema is not None else None
