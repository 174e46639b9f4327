"""One direct call: a tool is called through the ledger without a model.

Integrations with other frameworks are built on it.  One commit applies what the call changes.  The same id
with the same arguments returns the first result; after a crash the same rules hold as in a run.  No lease is
needed: every write is fenced by the revision of the call's own record, so one commit applies its patch,
whichever process makes it.

A tool that another program runs is called in two parts: `begin` makes the start durable, and `StartedCall.settle` records
the outcome when that program reports it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar

import msgspec

from perdure.engines.loops import Attempts
from perdure.errors import Busy, Conflict, Invalid, Moved, PerdureError, Sealed, StaleHead
from perdure.history import reader
from perdure.history.space import Space
from perdure.ledger import calls, tickets
from perdure.ledger.calls import VersionedCall
from perdure.ledger.held import check_released
from perdure.model import names
from perdure.model.call import SETTLED, UNCLEAR, CallRecord, CallState
from perdure.model.canonical import Json
from perdure.model.message import ToolCall, ToolResult
from perdure.model.ticket import Ticket
from perdure.runtime.calls.executor import CallExecutor
from perdure.runtime.calls.pending_call import PendingCall
from perdure.runtime.calls.plan import plan, plan_answers, requested
from perdure.runtime.calls.recovery import continue_call
from perdure.runtime.calls.round import RoundContext, args_body, commit_round, fingerprint_for
from perdure.runtime.calls.settlement import Settler
from perdure.runtime.session import lease as leases
from perdure.runtime.session.broadcast import Feed
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.journal import Journal
from perdure.runtime.tools.call import Ruling, scratch_prefix
from perdure.runtime.tools.tool import Tool, tool

__all__ = ["BY_HAND", "CallResult", "StartedCall", "begin", "call"]

_T = TypeVar("_T")

BY_HAND = "call:"  # begins the name of a direct call's turn; the call's id follows
_ID_BYTES_MAX = 180


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a direct call."""

    id: str
    state: CallState
    result: ToolResult | None = None  # None: it waits for a decision
    ticket: Ticket | None = None  # what it waits for

    @property
    def text(self) -> str:
        """The text of the result."""
        if self.result is None:
            return ""
        return "".join(getattr(block, "text", "") for block in self.result.content)

    @property
    def ok(self) -> bool:
        """True if it succeeded."""
        return self.result is not None and self.result.status == "success"


async def call(
    env: RunEnvironment, tool_: Tool | Callable[..., Any], arguments: Mapping[str, Json] | str, *, id: str
) -> CallResult:
    """Carry out one call, once, however often it is requested and whichever process fails.

    Raises `Busy` if another caller is making it, `Conflict` if the id belongs to another call, `Held` if the call is
    not settled and its thread came from another store and was not released, `Sealed` if it is not settled and its
    timeline takes no more writes.
    """
    return await _with_call(env, tool_, arguments, id, _carry_out)


async def begin(
    env: RunEnvironment, tool_: Tool, arguments: Mapping[str, Json] | str, *, id: str
) -> CallResult | StartedCall:
    """Start one call whose tool another program runs; return its result instead if it is not to be made.

    The start is durable if the tool writes.  The tool's function is called by `StartedCall.settle`: it returns the outcome
    that the other program reported, or raises.  The errors are those of `call`.
    """

    async def start(
        round_context: RoundContext, pending_call: PendingCall, rulings: dict[str, Ruling]
    ) -> CallResult | StartedCall:
        executor = CallExecutor(round_context, round_context.journal.root, rulings, message_id=None)
        if pending_call.stage == "ready" and await executor.start(pending_call):
            return StartedCall(round_context, pending_call, rulings)
        return await _commit_outcome(round_context, pending_call)

    return await _with_call(env, tool_, arguments, id, start)


class StartedCall:
    """A call that was started and whose tool another program runs now."""

    def __init__(
        self, round_context: RoundContext, pending_call: PendingCall, rulings: dict[str, Ruling]
    ) -> None:
        self._parts = round_context, pending_call, rulings

    async def settle(self) -> CallResult:
        """Record the outcome, which the tool's function returns or raises."""
        return await _carry_out(*self._parts)

    async def abandon(self) -> CallResult:
        """Record that no report of the outcome will come: it is unknown if the tool writes."""
        round_context, pending_call, rulings = self._parts
        executor = CallExecutor(round_context, round_context.journal.root, rulings, message_id=None)
        executor.abandon(pending_call)
        return await _commit_outcome(round_context, pending_call)

    async def refuse(self, why: str) -> CallResult:
        """Record that the tool was not called, because a person or a rule of the other program refused it."""
        round_context, pending_call, _ = self._parts
        Settler(round_context.journal, None).fail(pending_call, "denied", why)
        return await _commit_outcome(round_context, pending_call)


_Next: TypeAlias = Callable[[RoundContext, PendingCall, dict[str, Ruling]], Awaitable[_T]]


async def _with_call(
    env: RunEnvironment,
    tool_: Tool | Callable[..., Any],
    arguments: Mapping[str, Json] | str,
    id: str,
    proceed: _Next[_T],
) -> CallResult | _T:
    """Enter the call into the ledger, or find it there, and `proceed` with it unless it is settled."""
    names.check_id("call id", id)
    declared = tool_ if isinstance(tool_, Tool) else tool(tool_)
    raw = arguments if isinstance(arguments, str) else _text(arguments)
    requested = ToolCall(id, declared.name, raw)
    round_context = await env.run_blocking(partial(_round_context, env, declared, id))
    check = partial(_check_same, env.space, declared=declared, raw=raw)
    recorded = await env.run_blocking(partial(calls.find, env.space, id))
    try:
        if recorded is None:
            pending_call, rulings = await env.run_blocking(partial(_enter, round_context, requested)), {}
        else:
            await env.run_blocking(partial(check, recorded.record))
            if recorded.record.state in SETTLED:
                return await env.run_blocking(partial(_settled, round_context, requested, recorded))
            await env.run_blocking(partial(check_released, env.space))
            pending_call, rulings = await env.run_blocking(
                partial(_continue, round_context, requested, recorded)
            )
        return await proceed(round_context, pending_call, rulings)
    except Moved as moved:
        if moved.cell != calls.CALL + id:
            raise
        return await env.run_blocking(partial(_overtaken, round_context, requested, check))


async def _carry_out(
    round_context: RoundContext, pending_call: PendingCall, rulings: dict[str, Ruling]
) -> CallResult:
    executor = CallExecutor(round_context, round_context.journal.root, rulings, message_id=None)
    try:
        await executor.carry_out([pending_call])
    except asyncio.CancelledError:
        executor.abandon(pending_call)  # if it was cancelled before its tool was called
        await round_context.do(partial(_commit, round_context, pending_call))
        raise
    return await _commit_outcome(round_context, pending_call)


async def _commit_outcome(round_context: RoundContext, pending_call: PendingCall) -> CallResult:
    await round_context.do(partial(_commit, round_context, pending_call))
    return await round_context.do(partial(_result, round_context, pending_call))


def _overtaken(
    round_context: RoundContext, requested: ToolCall, check: Callable[[CallRecord], None]
) -> CallResult:
    """Return the outcome that another caller has recorded first; raises `Busy` while that caller makes the call."""
    recorded = calls.read(round_context.env.space, requested.id)
    check(recorded.record)
    if recorded.record.state in SETTLED:
        return _settled(round_context, requested, recorded)
    if recorded.record.state != "awaiting_approval":
        raise Busy(requested.id, "it is settled", call=True)
    pending_call = PendingCall(requested, None, recorded)
    pending_call.suspend(None)
    return _result(round_context, pending_call)


def _round_context(env: RunEnvironment, declared: Tool, id: str) -> RoundContext:
    try:
        head = reader.unsealed_head(env.space, env.timeline)
    except Sealed:
        found = calls.find(env.space, id)
        if found is None or found.record.state not in SETTLED:
            raise  # before anything is done: what it does could not be committed
        head = reader.head_to_move(env.space, env.timeline)
    journal = Journal(env, _turn_of(id), head, Feed(id))
    return RoundContext(env, journal, tool=declared, origin="call")


def _turn_of(id: str) -> str:
    """Return the name of the turn: the same every time, and never too long for a name."""
    if len(id.encode()) <= _ID_BYTES_MAX:
        return BY_HAND + id
    return f"{BY_HAND}~{sha256(id.encode()).hexdigest()}"


def _enter(round_context: RoundContext, call: ToolCall) -> PendingCall:
    """Enter the call into the ledger, and start it if it may start.

    A call that is refused or needs a decision enters with the commit that says so.
    Raises `Moved` if another caller has entered it first.
    """
    attempts = Attempts(f"the calls to {call.name}", f"call '{call.id}' was not started")
    may_start = True
    while True:
        attempts.begin()
        wanted = requested(round_context, call, round_context.journal.run, backend=None, vendor_id=None)
        known = plan_answers(round_context, (wanted,))
        pending_call = plan(round_context, wanted, taken=set(), start=may_start, space=known)
        assert pending_call.transition is not None
        if pending_call.stage != "ready":
            return pending_call
        try:
            round_context.journal.post(pending_call.transition)
        except Moved:
            if calls.find(round_context.space, call.id) is not None:
                raise
            may_start = False  # an equal call has changed a cell that the start depends on
        else:
            pending_call.written()
            return pending_call


def _continue(
    round_context: RoundContext, requested: ToolCall, recorded: VersionedCall
) -> tuple[PendingCall, dict[str, Ruling]]:
    """Continue a call that was requested before."""
    record = recorded.record
    if (
        record.state == "started"
        and record.holder is not None
        and not round_context.space.engine.gone(record.holder)
    ):
        raise Busy(record.id, "it is settled", call=True)
    pending_call = PendingCall(requested, round_context.toolbox.get(requested.name), recorded)
    # The write that asked for a decision is the commit that names the suspension.
    ruling = continue_call(round_context, pending_call, message_id=None, is_in_history=True)
    return pending_call, {} if ruling is None else {requested.id: ruling}


def _commit(round_context: RoundContext, pending_call: PendingCall) -> None:
    """Commit what the call changes and its outcome; a call that waits is committed once.

    Without an unwritten transition there is nothing to commit: the revision of the call decides which process
    applies its patch.  While a run is on the timeline, the commit belongs to that run's turn.
    """
    space, timeline = round_context.env.space, round_context.env.timeline
    journal, own_turn = round_context.journal, round_context.journal.run
    attempts = Attempts(
        f"the lease on '{timeline}'",
        f"call '{pending_call.call.id}' is not committed; make it again with the same id: it is not run again",
    )
    while True:
        attempts.begin()
        lease, revision = leases.look(space, timeline)
        journal.beside(revision, lease.run if lease else own_turn)
        try:
            commit_round(round_context, [pending_call], journal.draft("call"), message_id=None)
        except Moved as moved:
            if moved.cell == calls.CALL + pending_call.record.id:
                raise
            if leases.look(space, timeline)[1] == revision:
                raise
            journal.discard()
            _announce(round_context, pending_call)
        except (StaleHead, Sealed) as refused:
            _record_question(round_context, pending_call)
            raise _with_outcome(refused, pending_call) from refused
        else:
            return


def _announce(round_context: RoundContext, pending_call: PendingCall) -> None:
    """Give a settled call that no commit names a transition for such a commit."""
    if (
        pending_call.transition is None
        and pending_call.stage == "settled"
        and pending_call.has_entered
        and not pending_call.recorded.record.result_label
    ):
        pending_call.announce(calls.learn(pending_call.recorded, at=round_context.now(), result_label=""))


def _record_question(round_context: RoundContext, pending_call: PendingCall) -> None:
    """Record that a call which was started waits for a decision, though no commit can name it."""
    if pending_call.stage == "suspended" and pending_call.transition is not None and pending_call.has_entered:
        with suppress(PerdureError):  # the call stays started, until its process has ended
            round_context.journal.post(pending_call.transition)
            pending_call.written()


def _with_outcome(refused: StaleHead | Sealed, pending_call: PendingCall) -> StaleHead | Sealed:
    """Return the same error; if the ledger has the call, the error says what is known of it there."""
    recorded = pending_call.recorded.record.state if pending_call.has_entered else None
    if recorded not in SETTLED and recorded not in UNCLEAR:
        return refused
    changes = pending_call.changes.patch is not None or pending_call.changes.agent_patch is not None
    because = f"call '{pending_call.call.id}' is {recorded} in the ledger"
    left = "what it changes in the state was not applied" if changes else "nothing was committed"
    if isinstance(refused, Sealed):
        return Sealed(refused.timeline, because, left=left)
    return StaleHead(
        refused.expected,
        refused.actual,
        because=because,
        left=left,
        advice="Make it again with the same id: it is not run again, and its changes are applied then."
        if changes
        else "Make it again with the same id for its result: it is not run again.",
    )


def _settled(round_context: RoundContext, requested: ToolCall, recorded: VersionedCall) -> CallResult:
    pending_call = PendingCall(requested, None, recorded)
    continue_call(round_context, pending_call, message_id=None, is_in_history=True)
    if _is_left(round_context, recorded.record):
        _announce(round_context, pending_call)
        _commit(round_context, pending_call)
    return _result(round_context, pending_call)


def _is_left(round_context: RoundContext, record: CallRecord) -> bool:
    """True if no commit names a call that was settled on this timeline, and there is something to commit.

    Either its changes were never applied, because the timeline had moved; or its scratch is still there.
    """
    if record.origin != "call" or record.result_label or record.timeline != round_context.env.timeline:
        return False
    if record.patch is not None or record.agent_patch is not None or record.memory is not None:
        return True
    return bool(round_context.journal.draft("call").ops.paths(scratch_prefix(record.id)))


def _result(round_context: RoundContext, pending_call: PendingCall) -> CallResult:
    record = pending_call.record
    ticket = (
        tickets.read(round_context.space, record.ticket).ticket
        if pending_call.stage == "suspended" and record.ticket
        else None
    )
    return CallResult(id=record.id, state=record.state, result=pending_call.result, ticket=ticket)


def _check_same(space: Space, record: CallRecord, *, declared: Tool, raw: str) -> None:
    """Raise `Conflict` unless the call is a direct call with these arguments, or with those that they were edited to.

    A settled call returns its result whatever its origin.
    """
    is_same = args_body(raw).digest == record.args
    fingerprint = _fingerprint(declared, raw)
    if not is_same and fingerprint:
        recorded = record.fingerprint or _fingerprint(
            declared, space.nodes((record.args,))[0].decode("utf-8", "replace")
        )
        is_same = fingerprint in (recorded, record.first_fingerprint)
    if record.tool != declared.name or not is_same:
        raise Conflict(
            f"call '{record.id}' was made before with another tool or other arguments; nothing was done.",
            code="call_id_reused",
            advice="Give it another id.",
            call=record.id,
        )
    if record.origin != "call" and record.state not in SETTLED:
        is_imported = record.origin == "import"
        origin = "was imported" if is_imported else f"belongs to run '{record.run}'"
        way = "Use resolve()" if is_imported else "Use resume() to go on with that run"
        raise Conflict(
            f"call '{record.id}' to {record.tool} {origin} and is {record.state}; nothing was done.",
            code="not_a_direct_call",
            advice=f"{way}, or give this call another id.",
            call=record.id,
            state=record.state,
            origin=record.origin,
            run=record.run,
        )


def _fingerprint(declared: Tool, raw: str) -> str:
    """Return the fingerprint of such a call; empty where the tool refuses the arguments."""
    try:
        return fingerprint_for(declared, declared.validated(raw))
    except Invalid:
        return ""


def _text(arguments: Mapping[str, Json]) -> str:
    try:
        return json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Invalid(
            f"the arguments are not JSON: {error}; nothing was done.", code="arguments_not_json"
        ) from error
