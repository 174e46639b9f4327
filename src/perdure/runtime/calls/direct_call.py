"""One call by hand: a tool taken through the ledger without an agent.

What integrations with other frameworks are made of.  It is a turn by hand: one commit applies what
the call changes.  The same id with the same arguments gives the first result; after a crash the
same rules hold as in a run.  No lease is needed: every write is fenced by the revision of the call's
own record, so its patch is applied by one commit, whichever process makes it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec

from perdure.errors import Busy, Conflict, Invalid, Moved, PerdureError, StaleHead
from perdure.history import reader
from perdure.history.space import Space
from perdure.ledger import calls, tickets
from perdure.ledger.calls import VersionedCall
from perdure.model import names
from perdure.model.call import SETTLED, CallRecord, CallState
from perdure.model.canonical import Json
from perdure.model.message import ToolCall, ToolResult
from perdure.model.ticket import Ticket
from perdure.runtime.calls.executor import CallExecutor
from perdure.runtime.calls.pending_call import PendingCall
from perdure.runtime.calls.plan import plan
from perdure.runtime.calls.recovery import take_up
from perdure.runtime.calls.round_commit import commit_round
from perdure.runtime.calls.round_context import RoundContext, args_body, fingerprint_for
from perdure.runtime.session import lease as leases
from perdure.runtime.session.broadcast import Feed
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.journal import Journal
from perdure.runtime.tools.call import Ruling
from perdure.runtime.tools.call_state import scratch_prefix
from perdure.runtime.tools.tool import Tool, tool

__all__ = ["BY_HAND", "CallResult", "call"]

BY_HAND = "call:"  # how the turn of a call by hand is named, and its id after it
_TRIES_MAX = 8
_ID_BYTES_MAX = 180


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a call by hand came to."""

    id: str
    state: CallState
    result: ToolResult | None = None  # None: it waits for a decision
    ticket: Ticket | None = None  # what it waits for

    @property
    def text(self) -> str:
        """The words of the result."""
        if self.result is None:
            return ""
        return "".join(getattr(block, "text", "") for block in self.result.content)

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.result is not None and self.result.status == "success"


async def call(
    env: RunEnvironment, tool_: Tool | Callable[..., Any], arguments: Mapping[str, Json] | str, *, id: str
) -> CallResult:
    """Carry out one call, once, whatever happens and however often it is asked for.

    Raises `Busy` if another caller is making it, `Conflict` if the id belongs to another call.
    """
    names.check_id("call id", id)
    declared = tool_ if isinstance(tool_, Tool) else tool(tool_)
    raw = arguments if isinstance(arguments, str) else _text(arguments)
    asked = ToolCall(id, declared.name, raw)
    round_context = await env.run_blocking(partial(_round_context, env, declared, id))
    check = partial(_check_same, env.space, declared=declared, raw=raw)
    held = await env.run_blocking(partial(calls.find, env.space, id))
    try:
        if held is None:
            pending_call, rulings = await env.run_blocking(partial(_entered, round_context, asked)), {}
        else:
            await env.run_blocking(partial(check, held.record))
            if held.record.state in SETTLED:
                return await env.run_blocking(partial(_settled, round_context, asked, held))
            pending_call, rulings = await env.run_blocking(partial(_taken_up, round_context, asked, held))
        return await _carried_out(round_context, pending_call, rulings)
    except Moved as moved:
        if moved.cell != calls.CALL + id:
            raise
        return await env.run_blocking(partial(_overtaken, round_context, asked, check))


async def _carried_out(
    round_context: RoundContext, pending_call: PendingCall, rulings: dict[str, Ruling]
) -> CallResult:
    executor = CallExecutor(round_context, round_context.journal.root, rulings)
    try:
        await executor.carry_out([pending_call])
    except asyncio.CancelledError:
        executor.abandon(pending_call)  # if it was cancelled before its tool was called
        await round_context.do(partial(_commit, round_context, pending_call))
        raise
    await round_context.do(partial(_commit, round_context, pending_call))
    return await round_context.do(partial(_result, round_context, pending_call))


def _overtaken(
    round_context: RoundContext, asked: ToolCall, check: Callable[[CallRecord], None]
) -> CallResult:
    """What another caller, who was first, has made of the call; raises `Busy` while that caller is at it."""
    held = calls.read(round_context.env.space, asked.id)
    check(held.record)
    if held.record.state in SETTLED:
        return _settled(round_context, asked, held)
    if held.record.state != "awaiting_approval":
        raise Busy(asked.id, "it is settled", call=True)
    pending_call = PendingCall(asked, None)
    pending_call.held = held
    pending_call.suspend(None)
    return _result(round_context, pending_call)


def _round_context(env: RunEnvironment, declared: Tool, id: str) -> RoundContext:
    """A desk with that tool, and no other of its name."""
    head = reader.head_to_move(env.space, env.timeline)
    journal = Journal(env, _turn_of(id), head, Feed(id))
    round_context = RoundContext(env, journal, None, lambda: True, origin="call")
    round_context.toolbox = {**round_context.toolbox, declared.name: declared}
    round_context.label = ""  # no history tells what it came to until its commit does
    return round_context


def _turn_of(id: str) -> str:
    """What the commit of a call by hand goes by: the same every time, and never too long for a name."""
    if len(id.encode()) <= _ID_BYTES_MAX:
        return BY_HAND + id
    return f"{BY_HAND}~{sha256(id.encode()).hexdigest()}"


def _entered(round_context: RoundContext, asked: ToolCall) -> PendingCall:
    """Enter the call, and start it if it may; what is refused or has to be asked enters with the commit that says so.

    Raises `Moved` if another caller has entered it first.
    """
    for start in (True, *[False] * _TRIES_MAX):
        pending_call = plan(
            round_context, asked, round_context.journal.run, vendor_id=None, taken=set(), start=start
        )
        assert pending_call.transition is not None
        if pending_call.stage != "ready":
            return pending_call
        try:
            round_context.journal.post(pending_call.transition)
        except Moved:
            if calls.find(round_context.space, asked.id) is not None:
                raise
            continue  # another call holds what was to fence this one
        pending_call.written()
        return pending_call
    raise Conflict(
        f"could not start call '{asked.id}' after {_TRIES_MAX} attempts, because equal calls start and end "
        "all the time; nothing was done. Try again."
    )


def _taken_up(
    round_context: RoundContext, asked: ToolCall, held: VersionedCall
) -> tuple[PendingCall, dict[str, Ruling]]:
    """Go on with a call that was asked for before."""
    record = held.record
    if (
        record.state == "started"
        and record.holder is not None
        and not round_context.space.engine.gone(record.holder)
    ):
        raise Busy(record.id, "it is settled", call=True)
    pending_call = PendingCall(asked, round_context.toolbox.get(asked.name))
    pending_call.held = held
    pending_call.told = True  # the commit that says so is the write that asked
    rulings: dict[str, Ruling] = {}
    take_up(round_context, pending_call, rulings)
    return pending_call, rulings


def _commit(round_context: RoundContext, pending_call: PendingCall) -> None:
    """One commit applies what the call changes and says what became of it; one that waits says so once.

    It holds the call's next posting, and without one there is nothing to commit: the call's revision
    decides who applies its patch.  While a run is on the line, the commit belongs to that run's turn.
    """
    space, journal, own = round_context.env.space, round_context.journal, round_context.journal.run
    for _ in range(_TRIES_MAX):
        held, revision = leases.look(space, round_context.env.timeline)
        journal.beside(revision, held.run if held else own)
        try:
            commit_round(round_context, [pending_call], journal.draft("call"), spoken=False)
        except Moved as moved:
            if moved.cell == calls.CALL + pending_call.record.id:
                raise
            if leases.look(space, round_context.env.timeline)[1] == revision:
                raise
            journal.discard()
            _place(round_context, pending_call)
        except StaleHead as stale:
            _keep_question(round_context, pending_call)
            raise _kept(pending_call, stale) from stale
        else:
            return
    raise Conflict(
        f"could not commit call '{pending_call.call.id}' after {_TRIES_MAX} attempts, because runs begin and end on "
        f"'{round_context.env.timeline}' all the time. Make it again with the same id: it is not run again."
    )


def _place(round_context: RoundContext, pending_call: PendingCall) -> None:
    """Give a call that the ledger knows to be settled, and no commit tells of, a posting for that commit."""
    held = pending_call.held
    if (
        pending_call.transition is None
        and pending_call.stage == "settled"
        and held
        and not held.record.result_label
    ):
        pending_call.transition = calls.learn(held, at=round_context.now(), result_label="")


def _keep_question(round_context: RoundContext, pending_call: PendingCall) -> None:
    """Record that a call which was started waits for a decision, though no commit can say so."""
    if (
        pending_call.stage == "suspended"
        and pending_call.transition is not None
        and pending_call.held is not None
    ):
        with suppress(PerdureError):  # the call stays started, until its process has ended
            round_context.journal.post(pending_call.transition)
            pending_call.written()


def _kept(pending_call: PendingCall, stale: StaleHead) -> StaleHead:
    """The same refusal, saying that the ledger has what the call came to, if it has."""
    if pending_call.transition is not None or pending_call.record.state not in SETTLED:
        return stale
    changes = pending_call.patch is not None or pending_call.agent_patch is not None
    return StaleHead(
        stale.expected,
        stale.actual,
        because=f"call '{pending_call.call.id}' is {pending_call.record.state} and stands in the ledger",
        left="what it changes in the state was not applied" if changes else "nothing was committed",
        advice="Make it again with the same id: it is not run again, and its changes are applied then."
        if changes
        else "Make it again with the same id for its result: it is not run again.",
    )


def _settled(round_context: RoundContext, asked: ToolCall, held: VersionedCall) -> CallResult:
    pending_call = PendingCall(asked, None)
    pending_call.held = held
    take_up(round_context, pending_call, {})
    if _is_left(round_context, held.record):
        _place(round_context, pending_call)
        _commit(round_context, pending_call)
    return _result(round_context, pending_call)


def _is_left(round_context: RoundContext, record: CallRecord) -> bool:
    """Whether no commit tells of a call that was settled on this line, and something follows from that.

    What it changes was never applied, because the line had gone another way; or its scratch is still there.
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
    """Raise `Conflict` unless the call was made by hand, with these arguments or those that it was given instead.

    A settled call gives its result whoever made it.
    """
    same = args_body(raw).digest == record.args
    meant = _meaning(declared, raw)
    if not same and meant:
        given = record.fingerprint or _meaning(declared, space.body(record.args).decode("utf-8", "replace"))
        same = meant in (given, record.first_fingerprint)
    if record.tool != declared.name or not same:
        raise Conflict(
            f"call '{record.id}' was made before with another tool or other arguments; nothing was done. "
            "Give it another id."
        )
    if record.origin != "call" and record.state not in SETTLED:
        whose = "was imported" if record.origin == "import" else f"belongs to run '{record.run}'"
        way = "Use resolve()" if record.origin == "import" else "Use resume() to go on with that run"
        raise Conflict(
            f"call '{record.id}' to {record.tool} {whose} and is {record.state}; nothing was done. {way}, "
            "or give this call another id."
        )


def _meaning(declared: Tool, raw: str) -> str:
    """The fingerprint of such a call; empty where the tool refuses the arguments."""
    try:
        return fingerprint_for(declared, declared.validated(raw))
    except Invalid:
        return ""


def _text(arguments: Mapping[str, Json]) -> str:
    try:
        return json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Invalid(f"arguments are JSON: {error}; nothing was done.") from error
