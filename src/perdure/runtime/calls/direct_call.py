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
    ground: RunEnvironment, tool_: Tool | Callable[..., Any], arguments: Mapping[str, Json] | str, *, id: str
) -> CallResult:
    """Carry out one call, once, whatever happens and however often it is asked for.

    Raises `Busy` if another caller is making it, `Conflict` if the id belongs to another call.
    """
    names.check_id("call id", id)
    declared = tool_ if isinstance(tool_, Tool) else tool(tool_)
    raw = arguments if isinstance(arguments, str) else _text(arguments)
    asked = ToolCall(id, declared.name, raw)
    desk = await ground.hands(partial(_desk, ground, declared, id))
    check = partial(_check_same, ground.space, declared=declared, raw=raw)
    held = await ground.hands(partial(calls.find, ground.space, id))
    try:
        if held is None:
            slot, rulings = await ground.hands(partial(_entered, desk, asked)), {}
        else:
            await ground.hands(partial(check, held.record))
            if held.record.state in SETTLED:
                return await ground.hands(partial(_settled, desk, asked, held))
            slot, rulings = await ground.hands(partial(_taken_up, desk, asked, held))
        return await _carried_out(desk, slot, rulings)
    except Moved as moved:
        if moved.cell != calls.CALL + id:
            raise
        return await ground.hands(partial(_overtaken, desk, asked, check))


async def _carried_out(desk: RoundContext, slot: PendingCall, rulings: dict[str, Ruling]) -> CallResult:
    carrier = CallExecutor(desk, desk.journal.root, rulings)
    try:
        await carrier.carry_out([slot])
    except asyncio.CancelledError:
        carrier.abandon(slot)  # if it was cancelled before its tool was called
        await desk.do(partial(_commit, desk, slot))
        raise
    await desk.do(partial(_commit, desk, slot))
    return await desk.do(partial(_result, desk, slot))


def _overtaken(desk: RoundContext, asked: ToolCall, check: Callable[[CallRecord], None]) -> CallResult:
    """What another caller, who was first, has made of the call; raises `Busy` while that caller is at it."""
    held = calls.read(desk.ground.space, asked.id)
    check(held.record)
    if held.record.state in SETTLED:
        return _settled(desk, asked, held)
    if held.record.state != "awaiting_approval":
        raise Busy(asked.id, "it is settled", call=True)
    slot = PendingCall(asked, None)
    slot.held = held
    slot.suspend(None)
    return _result(desk, slot)


def _desk(ground: RunEnvironment, declared: Tool, id: str) -> RoundContext:
    """A desk with that tool, and no other of its name."""
    head = reader.head_to_move(ground.space, ground.timeline)
    journal = Journal(ground, _turn_of(id), head, Feed(id))
    desk = RoundContext(ground, journal, None, lambda: True, origin="call")
    desk.toolbox = {**desk.toolbox, declared.name: declared}
    desk.label = ""  # no history tells what it came to until its commit does
    return desk


def _turn_of(id: str) -> str:
    """What the commit of a call by hand goes by: the same every time, and never too long for a name."""
    if len(id.encode()) <= _ID_BYTES_MAX:
        return BY_HAND + id
    return f"{BY_HAND}~{sha256(id.encode()).hexdigest()}"


def _entered(desk: RoundContext, asked: ToolCall) -> PendingCall:
    """Enter the call, and start it if it may; what is refused or has to be asked enters with the commit that says so.

    Raises `Moved` if another caller has entered it first.
    """
    for start in (True, *[False] * _TRIES_MAX):
        slot = plan(desk, asked, desk.journal.run, vendor_id=None, taken=set(), start=start)
        assert slot.posting is not None
        if slot.stage != "ready":
            return slot
        try:
            desk.journal.post(slot.posting)
        except Moved:
            if calls.find(desk.space, asked.id) is not None:
                raise
            continue  # another call holds what was to fence this one
        slot.written()
        return slot
    raise Conflict(
        f"could not start call '{asked.id}' after {_TRIES_MAX} attempts, because equal calls start and end "
        "all the time; nothing was done. Try again."
    )


def _taken_up(
    desk: RoundContext, asked: ToolCall, held: VersionedCall
) -> tuple[PendingCall, dict[str, Ruling]]:
    """Go on with a call that was asked for before."""
    record = held.record
    if record.state == "started" and record.holder is not None and not desk.space.engine.gone(record.holder):
        raise Busy(record.id, "it is settled", call=True)
    slot = PendingCall(asked, desk.toolbox.get(asked.name))
    slot.held = held
    slot.told = True  # the commit that says so is the write that asked
    rulings: dict[str, Ruling] = {}
    take_up(desk, slot, rulings)
    return slot, rulings


def _commit(desk: RoundContext, slot: PendingCall) -> None:
    """One commit applies what the call changes and says what became of it; one that waits says so once.

    It holds the call's next posting, and without one there is nothing to commit: the call's revision
    decides who applies its patch.  While a run is on the line, the commit belongs to that run's turn.
    """
    space, journal, own = desk.ground.space, desk.journal, desk.journal.run
    for _ in range(_TRIES_MAX):
        held, revision = leases.look(space, desk.ground.timeline)
        journal.beside(revision, held.run if held else own)
        try:
            commit_round(desk, [slot], journal.draft("call"), spoken=False)
        except Moved as moved:
            if moved.cell == calls.CALL + slot.record.id:
                raise
            if leases.look(space, desk.ground.timeline)[1] == revision:
                raise
            journal.discard()
            _place(desk, slot)
        except StaleHead as stale:
            _keep_question(desk, slot)
            raise _kept(slot, stale) from stale
        else:
            return
    raise Conflict(
        f"could not commit call '{slot.call.id}' after {_TRIES_MAX} attempts, because runs begin and end on "
        f"'{desk.ground.timeline}' all the time. Make it again with the same id: it is not run again."
    )


def _place(desk: RoundContext, slot: PendingCall) -> None:
    """Give a call that the ledger knows to be settled, and no commit tells of, a posting for that commit."""
    held = slot.held
    if slot.posting is None and slot.stage == "settled" and held and not held.record.result_label:
        slot.posting = calls.learn(held, at=desk.now(), result_label="")


def _keep_question(desk: RoundContext, slot: PendingCall) -> None:
    """Record that a call which was started waits for a decision, though no commit can say so."""
    if slot.stage == "suspended" and slot.posting is not None and slot.held is not None:
        with suppress(PerdureError):  # the call stays started, until its process has ended
            desk.journal.post(slot.posting)
            slot.written()


def _kept(slot: PendingCall, stale: StaleHead) -> StaleHead:
    """The same refusal, saying that the ledger has what the call came to, if it has."""
    if slot.posting is not None or slot.record.state not in SETTLED:
        return stale
    changes = slot.patch is not None or slot.agent_patch is not None
    return StaleHead(
        stale.expected,
        stale.actual,
        because=f"call '{slot.call.id}' is {slot.record.state} and stands in the ledger",
        left="what it changes in the state was not applied" if changes else "nothing was committed",
        advice="Make it again with the same id: it is not run again, and its changes are applied then."
        if changes
        else "Make it again with the same id for its result: it is not run again.",
    )


def _settled(desk: RoundContext, asked: ToolCall, held: VersionedCall) -> CallResult:
    slot = PendingCall(asked, None)
    slot.held = held
    take_up(desk, slot, {})
    if _is_left(desk, held.record):
        _place(desk, slot)
        _commit(desk, slot)
    return _result(desk, slot)


def _is_left(desk: RoundContext, record: CallRecord) -> bool:
    """Whether no commit tells of a call that was settled on this line, and something follows from that.

    What it changes was never applied, because the line had gone another way; or its scratch is still there.
    """
    if record.origin != "call" or record.result_label or record.timeline != desk.ground.timeline:
        return False
    if record.patch is not None or record.agent_patch is not None or record.memory is not None:
        return True
    return bool(desk.journal.draft("call").ops.paths(scratch_prefix(record.id)))


def _result(desk: RoundContext, slot: PendingCall) -> CallResult:
    record = slot.record
    ticket = (
        tickets.read(desk.space, record.ticket).ticket
        if slot.stage == "suspended" and record.ticket
        else None
    )
    return CallResult(id=record.id, state=record.state, result=slot.result, ticket=ticket)


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
