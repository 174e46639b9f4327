"""Changing threads: runs, forks, moves of heads, merges, switches, decisions, state.

Each handler calls the method of the same name.  The op_id, or the id of the message, is derived from the
`Idempotency-Key` and the name of the credential; `If-Match` is the head that the change is made on; the name that a decision is recorded under is that of the credential.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import islice
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from perdure import aio
from perdure.aio.proxy import EventIterator
from perdure.errors import Conflict, Invalid, NotFound
from perdure.ledger.trace import Traced
from perdure.model import names
from perdure.model.commit import Act
from perdure.model.digest import Digest
from perdure.model.effect import Effect
from perdure.model.head import Head
from perdure.model.merge_rules import Side as MergeSide
from perdure.model.run import RunRecord
from perdure.model.ticket import Verdict
from perdure.runtime.events import Happening
from perdure.runtime.session.result import Result
from perdure.server.keys import SERVER
from perdure.server.limited_handle import awaitable
from perdure.server.problems import HttpProblem
from perdure.server.routing import HttpCall, LineQuery, OnLoop, route
from perdure.server.streams import EventStream, frames, watched
from perdure.shapes.comparison import MergeShape, PicksShape
from perdure.shapes.ledger import CallAfter, DecidedCall, OneRun, RunResult, RunShape
from perdure.shapes.lookup import call_seen_from, run_of
from perdure.shapes.threads import (
    BegunThread,
    ForkShape,
    HeadMove,
    PromoteShape,
    ReportShape,
    SwitchShape,
    UndoShape,
)
from perdure.store.thread import Thread

__all__ = ["Steered", "can_go_on", "is_misnamed", "not_served", "runner"]

_NAMED_MAX = 10  # owners that an error names, and runs that are looked at


class BaseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request asks for; a field that is unknown is refused."""


class EmptyBody(BaseBody, frozen=True, kw_only=True):
    """Nothing: the address says it all."""


class BeginBody(BaseBody, frozen=True, kw_only=True):
    """A thread of an agent; id null: a new one; owner null: the one to which the credential is limited, if any."""

    agent: str
    id: str | None = None
    owner: str | None = None


@route("POST", "/v1/threads", "operate", status=201, if_match=False)
def begin_thread(call: HttpCall, body: BeginBody) -> BegunThread:
    """Begin a thread for an agent, or open the existing one."""
    id = body.id if body.id is not None else call.op_id or call.server.new_id()
    owners = call.access.owners or ()
    owner = owners[0] if body.owner is None and len(owners) == 1 else body.owner
    if body.agent == SERVER or not call.access.sees(id, body.agent, owner):
        raise HttpProblem(
            403,
            "outside_limits",
            "this credential may not begin such a thread; nothing was begun.",
            advice=_allowed(call, owner),
        )
    _check_agent(call, body.agent)
    try:
        call.thread(id=id)  # one that the credential may not see does not become visible by being begun
        call.status = 200
    except NotFound:
        call.status = 201
    try:
        thread = call.store.thread(id, agent=call.server.agents.get(body.agent, body.agent), owner=owner)
    except Conflict as conflict:
        raise Conflict(
            f"thread '{id}' is another agent's or owner's; nothing was begun.", code="thread_taken", thread=id
        ) from conflict
    call.check_seen(thread)
    call.head = thread.head
    return BegunThread.of(thread)


def _allowed(call: HttpCall, owner: str | None) -> str:
    """Say which threads the credential may begin."""
    owners = call.access.owners or ()
    if owners and owner not in owners:
        return f"Give one of its owners: {', '.join(owners[:_NAMED_MAX])}."
    return "GET /v1/session has the limits of the credential."


def _check_agent(call: HttpCall, agent: str) -> None:
    """Raise `NotFound` for the misspelled name of a served agent; a name that the store knows may be a worker's."""
    hint = "" if call.server.can_run(agent) else names.did_you_mean(agent, call.served)
    if hint and next(call.store.agents(prefix=agent), None) != agent:
        raise NotFound(
            f"there is no agent '{agent}'. {hint}Nothing was begun.",
            code="agent_not_found",
            agent=agent,
            served=tuple(call.served),
        )


class RunBody(BaseBody, frozen=True, kw_only=True):
    """What the user says; with `wait` false the answer comes when the run has begun.

    With `queue` it is left to a worker, after what is under way on the timeline; with `at` not before that time
    (`1h`, or a moment in ISO 8601).
    """

    text: str
    wait: bool = True
    queue: bool = False
    at: str | None = None

    @property
    def is_queued(self) -> bool:
        """True if a worker is to run it."""
        return self.queue or self.at is not None


def _waits(call: HttpCall, body: RunBody | ResumeBody) -> bool:
    """True if the client waits for the result of a run: the run then has a thread of its own to its end.

    It is faster there than on the loop, which other requests share.
    """
    is_queued = isinstance(body, RunBody) and body.is_queued
    return body.wait and not is_queued and not _wants_events(call)


@route("POST", "/v1/threads/{thread}/run", "operate", takes_long=_waits)
def run(call: HttpCall, query: LineQuery, body: RunBody) -> RunResult | OneRun | OnLoop:
    """Run the agent with an input, to its end or until it waits for a decision.

    With `Accept: text/event-stream` the answer is the events of the run.  Leaving does not stop it.
    With `queue` or `at` the input is queued for a worker (`perdure serve --work`), also while another run lives.
    A run that failed is retried, or queued again, when the request is sent again with its Idempotency-Key.
    """
    id = call.op_id or call.server.new_id()
    if body.is_queued:
        call.check_changeable()
        return _queued(call, query.timeline, body, id)
    found = _opened(call, query.timeline)
    if _waits(call, body):
        return _ended(call, found, lambda thread: thread.run(body.text, id=id))
    if found is None:
        return _queued(call, query.timeline, body, id)
    return OnLoop(partial(_run_on_loop, call, awaitable(call.server.store, found), body, id))


async def _run_on_loop(call: HttpCall, thread: aio.Thread, body: RunBody, id: str) -> OneRun | EventStream:
    if _wants_events(call):
        return await _streamed(call, thread, thread.stream(body.text, id=id))
    found = await thread.given(body.text, id=id)
    if found is not None and not await thread.off_loop(partial(can_go_on, thread.target(), found)):
        call.status = 202  # the request came before: its run lives, waits or has ended
        return await thread.off_loop(
            lambda: OneRun(thread=thread.id, run=RunShape.now(thread.target(), found))
        )
    stream = thread.stream(body.text, id=id)
    return await _begun(call, thread, stream, lambda: thread.target().given(body.text, id=id))


def can_go_on(thread: Thread, record: RunRecord) -> bool:
    """True if the same input again carries its run on: it was not begun, was interrupted, was decided, or failed."""
    if record.state == "waiting":
        return thread.decided(record.id)
    if record.state == "running":
        return thread.interrupted(record.id)
    return record.state in ("created", "failed")


class ResumeBody(BaseBody, frozen=True, kw_only=True):
    """Which run; null: the one on the timeline.  With `retry` one that failed goes on from its last step."""

    run: str | None = None
    wait: bool = True
    retry: bool = False


@route("POST", "/v1/threads/{thread}/resume", "operate", takes_long=_waits)
def resume(call: HttpCall, query: LineQuery, body: ResumeBody) -> RunResult | OneRun | OnLoop:
    """Resume a run that was interrupted, or whose approval was decided; with an Idempotency-Key the run is named."""
    _check_named(call, body.run)
    found = _opened(call, query.timeline)
    if _waits(call, body):
        return _ended(call, found, lambda thread: thread.resume(body.run, retry=body.retry))
    if found is None:
        raise not_served(call)
    return OnLoop(partial(_resume_on_loop, call, awaitable(call.server.store, found), body))


async def _resume_on_loop(call: HttpCall, thread: aio.Thread, body: ResumeBody) -> OneRun | EventStream:
    if _wants_events(call):
        return await _streamed(call, thread, thread.resume_stream(body.run, retry=body.retry))
    return await _begun(
        call,
        thread,
        thread.resume_stream(body.run, retry=body.retry),
        lambda: run_of(thread.target(), body.run, thread.timeline if body.run is None else None),
    )


def _check_named(call: HttpCall, run: str | None) -> None:
    """Raise `Invalid` if a request that may be repeated names no run: by then another run may be on the timeline."""
    if call.op_id is not None and run is None:
        raise Invalid(
            "the request has an Idempotency-Key but names no run; nothing was done.",
            code="run_required",
            advice="Send the id of the run, or leave the key out.",
        )


async def runner(call: HttpCall, timeline: str) -> aio.Thread | None:
    """Open the thread with its agent, tools included; None if this server cannot run the agent."""
    thread = await call.server.store.off_loop(lambda: _opened(call, timeline))
    return None if thread is None else awaitable(call.server.store, thread)


def _opened(call: HttpCall, timeline: str) -> Thread | None:
    call.check_changeable()
    found = call.thread(timeline)
    if not call.server.can_run(found.agent):
        return None
    declared = call.server.declared(found)
    return declared if call.expected is None else declared.expecting(call.expected)


def _queued(call: HttpCall, timeline: str, body: RunBody, id: str) -> OneRun:
    """Queue the input for a worker that has the agent; raises if the client waits for an answer."""
    if not body.is_queued and (body.wait or _wants_events(call)):
        raise not_served(call)
    call.status = 202
    thread = call.target(timeline)
    run = thread.start(body.text, id=id) if body.at is None else thread.schedule(body.text, body.at, id=id)
    record = run_of(thread, run, None)
    assert record is not None, "a run that was queued has a record"
    return OneRun(thread=thread.id, run=RunShape.now(thread, record))


def not_served(call: HttpCall) -> Invalid:
    """Return the error for a thread whose agent this server cannot run."""
    agent = call.thread().agent
    return Invalid(
        f"this server does not have the agent of '{call.segments['thread']}' with its tools, '{agent}'. "
        f"{names.did_you_mean(agent, call.served)}Nothing was run.",
        code="agent_not_served",
        advice="Start it with --code, or send queue: true and let a worker run it.",
        agent=agent,
        served=tuple(call.served),
    )


def is_misnamed(call: HttpCall, thread: Thread) -> bool:
    """True if the agent of a thread is a misspelled name of a served one: no worker has run it, and no other thread has it."""
    if not names.near(thread.agent, call.served):
        return False
    begun = any(each.state != "created" for each in thread.runs(limit=_NAMED_MAX))
    first = islice(call.store.threads(), names.COMPARED_MAX)
    return not begun and all(each.id == thread.id or each.agent != thread.agent for each in first)


def _wants_events(call: HttpCall) -> bool:
    return "text/event-stream" in call.headers.get("accept", "")


async def _streamed(call: HttpCall, thread: aio.Thread, happenings: EventIterator[Happening]) -> EventStream:
    """Answer with the events of a run, which goes on if the client leaves; what keeps it from beginning has a status."""

    async def shape(result: Any) -> RunResult:
        return await thread.off_loop(lambda: RunResult.of(thread.target(), result))

    await happenings.begin()
    return call.server.stream(call, frames(happenings, shape, place=call.server.place))


def _ended(call: HttpCall, thread: Thread | None, run: Callable[[Thread], Result]) -> RunResult:
    """Answer with the result of a run, which goes on if the client leaves; `thread` None: the agent is not served."""
    if thread is None:
        raise not_served(call)
    return RunResult.of(thread, run(thread))


async def _begun(
    call: HttpCall,
    thread: aio.Thread,
    happenings: AsyncIterator[Happening],
    find: Callable[[], RunRecord | None],
) -> OneRun:
    """Answer with the run that `find` reads, as soon as it has begun."""
    begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task = call.server.keep(watched(happenings, begun))
    await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
    if task.done() and task.exception() is not None:
        raise task.exception() or AssertionError
    call.status = 202

    def begun_run() -> OneRun:
        record = find()
        assert record is not None, "a run that has begun has a record"
        return OneRun(thread=thread.id, run=RunShape.now(thread.target(), record))

    return await thread.off_loop(begun_run)


class SteerBody(BaseBody, frozen=True, kw_only=True):
    """What the run should take into account."""

    text: str


class Steered(msgspec.Struct, frozen=True, kw_only=True):
    """A message that waits for the next step of a run."""

    thread: str
    id: str


@route("POST", "/v1/threads/{thread}/steer", "operate", if_match=False)
def steer(call: HttpCall, query: LineQuery, body: SteerBody) -> Steered:
    """Queue a message for the run on a timeline, which reads it at its next step."""
    thread = call.target(query.timeline)
    return Steered(thread=thread.id, id=thread.steer(body.text, id=call.op_id))


class ForkBody(BaseBody, frozen=True, kw_only=True):
    """The name of the new timeline, where it begins (null: now), and the strongest effect of calls there."""

    name: str
    at: str | None = None
    effect_max: Effect | None = None


@route("POST", "/v1/threads/{thread}/fork", "operate", status=201)
def fork(call: HttpCall, query: LineQuery, body: ForkBody) -> ForkShape:
    """Fork a timeline at any of its moments; nothing is copied, and nothing runs."""
    thread = call.target(query.timeline)
    at = UNSET if body.at is None else body.at
    begun = thread.fork(
        body.name, at=at, effect_max=body.effect_max, op_id=call.op_id, author=call.access.name
    )
    call.head = begun.head
    return ForkShape.of(thread, begun)


class UndoBody(BaseBody, frozen=True, kw_only=True):
    """How many turns to go back over, or the moment to go back to."""

    turns: int | None = None
    to: str | None = None


@route("POST", "/v1/threads/{thread}/undo", "operate")
def undo(call: HttpCall, query: LineQuery, body: UndoBody) -> UndoShape:
    """Undo the last turns, or go back to any moment."""
    if body.turns is not None and body.to is not None:
        raise Invalid("turns and to were both given; nothing was moved.", code="options_conflict")
    thread = call.target(query.timeline)
    if body.to is None:
        head = thread.undo(1 if body.turns is None else body.turns, op_id=call.op_id, author=call.access.name)
    else:
        head = thread.undo(to=body.to, op_id=call.op_id, author=call.access.name)
    call.head = head
    return UndoShape.of_undo(thread, head, is_by_turns=body.to is None)


@route("POST", "/v1/threads/{thread}/redo", "operate")
def redo(call: HttpCall, query: LineQuery, body: EmptyBody) -> HeadMove:
    """Reverse the last undo."""
    thread = call.target(query.timeline)
    call.head = head = thread.redo(op_id=call.op_id, author=call.access.name)
    return HeadMove.by(thread, head)


@route("POST", "/v1/threads/{thread}/seal", "operate")
def seal(call: HttpCall, query: LineQuery, body: EmptyBody) -> HeadMove:
    """Seal a timeline: it takes no more writes."""
    thread = call.target(query.timeline)
    call.head = head = thread.seal(op_id=call.op_id, author=call.access.name)
    return HeadMove.by(thread, head)


@route("POST", "/v1/threads/{thread}/drop", "operate")
def drop(call: HttpCall, query: LineQuery, body: EmptyBody) -> HeadMove:
    """Drop a timeline other than main: it is sealed, and `gc` of what was removed takes what no other timeline needs.

    Until then it can be read, forked and promoted.
    """
    thread = call.target(query.timeline)
    call.head = head = thread.drop(thread.timeline, op_id=call.op_id, author=call.access.name)
    return HeadMove.by(thread, head)


class NameBody(BaseBody, frozen=True, kw_only=True):
    """The name of the other timeline."""

    name: str


@route("POST", "/v1/threads/{thread}/promote", "operate")
def promote(call: HttpCall, body: NameBody) -> PromoteShape:
    """Make another timeline main; the old main is kept, sealed."""
    thread = call.target()
    call.head = head = thread.promote(body.name, op_id=call.op_id, author=call.access.name)
    return PromoteShape.of(thread, head, body.name)


class MergeBody(BaseBody, frozen=True, kw_only=True):
    """The other timeline, and which side wins a conflict: for all paths, or by path prefix."""

    name: str
    prefer: MergeSide | dict[str, MergeSide] | None = None
    reason: str | None = None


class DryQuery(LineQuery, frozen=True, kw_only=True):
    """Which timeline, and whether nothing is to be changed."""

    dry_run: bool = False


@route("POST", "/v1/threads/{thread}/merge", "operate")
def merge(call: HttpCall, query: DryQuery, body: MergeBody) -> MergeShape:
    """Merge the changes of another timeline."""
    thread, dry_run = call.target(query.timeline), query.dry_run
    taken = thread.merge(
        body.name, reason=body.reason or None, prefer=body.prefer, dry_run=dry_run, op_id=call.op_id
    )
    call.head = taken.head
    return MergeShape.of(thread, body.name, taken, dry_run=dry_run)


class PickBody(BaseBody, frozen=True, kw_only=True):
    """What is applied again: moments, or ranges of turns such as 4..6, of the timeline `source`; which side wins a conflict."""

    commit: str | list[str]
    source: str | None = None  # null: the timeline itself
    prefer: MergeSide | dict[str, MergeSide] | None = None
    reason: str | None = None


@route("POST", "/v1/threads/{thread}/cherry-pick", "operate")
def cherry_pick(call: HttpCall, query: DryQuery, body: PickBody) -> PicksShape:
    """Apply the changes of state of turns and commits to a timeline again, one commit for each, all or none."""
    thread, dry_run = call.target(query.timeline), query.dry_run
    taken = thread.cherry_pick(
        body.commit,
        source=body.source,
        reason=body.reason or None,
        prefer=body.prefer,
        dry_run=dry_run,
        op_id=call.op_id,
    )
    call.head = taken.head
    return PicksShape.of(thread, taken, dry_run=dry_run)


class SwitchBody(BaseBody, frozen=True, kw_only=True):
    """The backend that takes over, and why."""

    to: str
    reason: str | None = None


@route("POST", "/v1/threads/{thread}/switch", "operate")
def switch(call: HttpCall, query: DryQuery, body: SwitchBody) -> SwitchShape:
    """Switch a thread to another backend, after a check of what that keeps and loses."""
    call.check_changeable()
    thread = call.server.declared(call.thread(query.timeline), only_reads=query.dry_run)
    if call.expected is not None:
        thread = thread.expecting(call.expected)
    if query.dry_run:
        report = thread.check_switch(body.to)
    else:
        approved_by = call.access.name if call.access.may("decide") else None
        report = thread.switch(body.to, reason=body.reason, approved_by=approved_by, op_id=call.op_id)
    call.head = thread.head if report.commit is None else _head_at(thread, report.commit)
    shape = ReportShape.of(report, told=str(report))
    return SwitchShape(dry_run=query.dry_run, switched=report.switched, report=shape)


def _head_at(thread: Thread, commit: Digest) -> Head:
    """Return the head that a commit of this request led to, though others may have moved it since."""
    head = thread.head
    if head.commit == commit:
        return head
    moves = thread.moves()
    version = next((move.version for move in moves if move.to == commit and move.act is Act.COMMIT), None)
    return head if version is None else Head(head.timeline, version, commit)


class DecideBody(BaseBody, frozen=True, kw_only=True):
    """The question, the verdict, new arguments (edit) or a result (answer), and why.

    `ticket` is the `id` of the approval.  `call` alone will do for the first question about a call.
    """

    ticket: str | None = None
    call: str | None = None
    verdict: Verdict
    value: Any = None
    why: str | None = None


@route("POST", "/v1/threads/{thread}/decide", "decide", if_match=False)
def decide(call: HttpCall, body: DecideBody) -> DecidedCall:
    """Decide a question; the decision is recorded under the name of the credential.

    With an Idempotency-Key the request sent again gets the first decision, also when the call is asked about again.
    """
    call.check_changeable()
    thread = call.thread()
    asked = _question(thread, body)
    on = thread if asked.ticket is None else thread.on(asked.ticket.timeline)
    ticket = on.decide(
        asked.named, body.verdict, value=body.value, by=call.access.name, why=body.why, op_id=call.op_id
    )
    before = asked.ticket is not None and asked.ticket.id != ticket.id
    return DecidedCall.of(on, ticket, again=before or asked.ticket == ticket)


def _question(thread: Thread, body: DecideBody) -> Traced:
    """Read what a decision is about; raises `Invalid` unless it names one question or call, `NotFound` if there is none."""
    named = body.call if body.ticket is None else body.ticket
    if named is None:
        raise Invalid(
            "the decision names no question; nothing was decided.",
            code="question_missing",
            advice="Send the id of the approval as ticket.",
        )
    asked = call_seen_from(thread, named, None)
    if body.ticket is not None and (asked.ticket is None or asked.named != asked.ticket.id):
        raise NotFound(
            f"there is no question '{named}' here; nothing was decided.",
            code="ticket_not_found",
            ticket=named,
        )
    if body.call is not None and call_seen_from(thread, body.call, None).record.id != asked.record.id:
        raise Invalid(
            f"question '{named}' is about call '{asked.record.id}' and not about '{body.call}'; nothing was decided.",
            code="options_conflict",
            advice="Send the ticket alone.",
            ticket=named,
            call=body.call,
        )
    return asked


class ReleasedThread(msgspec.Struct, frozen=True, kw_only=True):
    """A thread whose runs and approvals may go on now."""

    thread: str
    released: bool  # false: it was not held


@route("POST", "/v1/threads/{thread}/release", "administer", if_match=False)
def release(call: HttpCall, body: EmptyBody) -> ReleasedThread:
    """Let the runs and approvals of a thread from another store go on here; nothing may run them there any more."""
    call.check_changeable()
    thread = call.thread()
    found = call.store.release(thread.id, by=call.access.name)
    return ReleasedThread(thread=thread.id, released=thread.id in found)


class CancelBody(BaseBody, frozen=True, kw_only=True):
    """Which run (null: the one on the timeline), and why."""

    run: str | None = None
    why: str = "cancelled"


@route("POST", "/v1/threads/{thread}/cancel", "operate", if_match=False)
def cancel(call: HttpCall, query: LineQuery, body: CancelBody) -> OneRun:
    """Cancel a run; one that waits or was interrupted ends at once.  With an Idempotency-Key the run is named."""
    _check_named(call, body.run)
    thread = call.target(query.timeline)
    record = thread.cancel(body.run, why=body.why, by=call.access.name)
    return OneRun(thread=thread.id, run=RunShape.now(thread, record))


@route("POST", "/v1/threads/{thread}/calls/{call}/reconcile", "operate", if_match=False)
async def reconcile(call: HttpCall, body: EmptyBody) -> CallAfter:
    """Ask a call's tool for the outcome, and settle the call by the answer."""
    call.check_changeable()
    server = call.server

    def opened() -> tuple[Thread, str, str]:
        thread = call.thread()
        record = thread.trace(call.segments["call"], history=False).record
        return server.declared(thread.on(record.timeline)), record.id, record.state

    thread, id, before = await server.store.off_loop(opened)
    await awaitable(server.store, thread).reconcile(id, by=call.access.name)
    return await server.store.off_loop(lambda: CallAfter.by(thread, id, before))


class ResolveBody(BaseBody, frozen=True, kw_only=True):
    """The outcome that a person states, the result if it was done, and why."""

    outcome: Literal["done", "not_done"]
    value: Any = None
    why: str | None = None


@route("POST", "/v1/threads/{thread}/calls/{call}/resolve", "decide", if_match=False)
def resolve(call: HttpCall, body: ResolveBody) -> CallAfter:
    """Record the outcome of a call, if it is unknown."""
    call.check_changeable()
    thread = call.thread()
    record = thread.trace(call.segments["call"], history=False).record
    if body.outcome == "not_done" and body.value is not None:
        raise Invalid(
            "a call that was not done has no result; nothing was resolved.", code="result_not_taken"
        )
    thread.resolve(record.id, body.outcome, value=body.value, by=call.access.name, why=body.why)
    return CallAfter.by(thread, record.id, record.state)


@route("PUT", "/v1/threads/{thread}/state/{path}", "operate")
def put_state(call: HttpCall, query: LineQuery, body: Any) -> HeadMove:
    """Write a JSON value to a path, in a commit of its own."""
    thread = call.target(query.timeline)
    path = "/" + call.segments["path"]
    with thread.change("put", op_id=call.op_id, author=call.access.name) as change:
        change.put(path, body, media_type=call.media_type)
    assert change.head is not None, "a block that was left has a head"
    call.head = change.head
    return HeadMove.by(thread, change.head)


@route("DELETE", "/v1/threads/{thread}/state/{path}", "operate")
def delete_state(call: HttpCall, query: LineQuery) -> HeadMove:
    """Delete the value at a path, in a commit of its own; its history stays."""
    thread = call.target(query.timeline)
    with thread.change("delete", op_id=call.op_id, author=call.access.name) as change:
        change.delete("/" + call.segments["path"])
    assert change.head is not None, "a block that was left has a head"
    call.head = change.head
    return HeadMove.by(thread, change.head)
