"""One call by hand: a tool taken through the ledger without an agent.

What integrations with other frameworks are made of.  It is a turn by hand: one commit applies what
the call changes.  The same id with the same arguments gives the first result; after a crash the
same rules hold as in a run.  Nobody needs a lease for it: the call's own record is the fence.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec

from holdfast.errors import Busy, Conflict, Invalid, Moved, StaleHead
from holdfast.history import reader
from holdfast.history.space import Space
from holdfast.ledger import calls, tickets
from holdfast.ledger import lease as leases
from holdfast.ledger.calls import Held
from holdfast.model import names
from holdfast.model.call import SETTLED, CallRecord, CallState
from holdfast.model.canonical import Json
from holdfast.model.message import ToolCall, ToolResult
from holdfast.model.ticket import Ticket
from holdfast.runtime.call import Ruling
from holdfast.runtime.carrying import Carrier
from holdfast.runtime.desk import Desk, args_body, fingerprint_for
from holdfast.runtime.feed import Feed
from holdfast.runtime.ground import Ground
from holdfast.runtime.journal import Journal
from holdfast.runtime.made import BY_HAND
from holdfast.runtime.planning import plan
from holdfast.runtime.recovery import take_up
from holdfast.runtime.room import scratch_prefix
from holdfast.runtime.round import commit_round
from holdfast.runtime.slot import Slot
from holdfast.runtime.tool import Tool, tool

__all__ = ["CallResult", "call"]

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
    ground: Ground, tool_: Tool | Callable[..., Any], arguments: Mapping[str, Json] | str, *, id: str
) -> CallResult:
    """Carry out one call, once, whatever happens and however often it is asked for."""
    names.check_id("call id", id)
    declared = tool_ if isinstance(tool_, Tool) else tool(tool_)
    raw = arguments if isinstance(arguments, str) else _text(arguments)
    asked = ToolCall(id, declared.name, raw)
    desk = await ground.hands(partial(_desk, ground, declared, id))
    held = await ground.hands(partial(calls.find, ground.space, id))
    if held is not None:
        await ground.hands(partial(_check_same, ground.space, held.record, declared, raw))
        if held.record.state in SETTLED:
            return await ground.hands(partial(_settled, desk, asked, held))
        slot, rulings = await ground.hands(partial(_taken_up, desk, asked, held))
    else:
        slot, rulings = await ground.hands(partial(_entered, desk, asked)), {}
    carrier = Carrier(desk, desk.journal.root, rulings)
    try:
        await carrier.carry_out([slot])
    except asyncio.CancelledError:
        carrier.abandon(slot)  # if it was cancelled before its tool was called
        await ground.hands(partial(_commit, desk, slot))
        raise
    await ground.hands(partial(_commit, desk, slot))
    return await ground.hands(partial(_result, desk, slot))


def _desk(ground: Ground, declared: Tool, id: str) -> Desk:
    """A desk with that tool, and no other of its name."""
    head = reader.head_to_move(ground.space, ground.timeline)
    journal = Journal(ground, _turn_of(id), head, Feed(id))
    desk = Desk(ground, journal, None, lambda: True, origin="call")
    desk.toolbox = {**desk.toolbox, declared.name: declared}
    desk.label = ""  # no history tells what it came to until its commit does
    return desk


def _turn_of(id: str) -> str:
    """What the commit of a call by hand goes by: the same every time, and never too long for a name."""
    if len(id.encode()) <= _ID_BYTES_MAX:
        return BY_HAND + id
    return f"{BY_HAND}~{sha256(id.encode()).hexdigest()}"


def _entered(desk: Desk, asked: ToolCall) -> Slot:
    """Enter the call, and start it if it may."""
    for start in (True, *[False] * _TRIES_MAX):
        slot = plan(desk, asked, desk.journal.run, vendor_id=None, taken=set(), start=start)
        assert slot.posting is not None
        try:
            desk.journal.post(slot.posting)
        except Moved as moved:
            if calls.find(desk.space, asked.id) is not None:
                raise Conflict(
                    f"call '{asked.id}' is being made by another at this moment; nothing was done."
                ) from moved
            continue
        slot.written()
        return slot
    raise Conflict(f"others make the same call all the time; call '{asked.id}' was not made. Try again.")


def _taken_up(desk: Desk, asked: ToolCall, held: Held) -> tuple[Slot, dict[str, Ruling]]:
    """Go on with a call that was asked for before."""
    record = held.record
    if record.state == "started" and record.holder is not None and not desk.space.engine.gone(record.holder):
        raise Busy(record.id, "it is settled", call=True)
    slot = Slot(asked, desk.toolbox.get(asked.name))
    slot.held = held
    slot.told = bool(desk.space.engine.labelled(desk.space.name, desk.journal.run))
    rulings: dict[str, Ruling] = {}
    take_up(desk, slot, rulings)
    return slot, rulings


def _commit(desk: Desk, slot: Slot) -> None:
    """One commit applies what the call changes and says what became of it; one that waits says so once.

    While a run is on the line, it belongs to that run's turn.
    """
    space, journal, own = desk.ground.space, desk.journal, desk.journal.run
    for _ in range(_TRIES_MAX):
        held, revision = leases.look(space, desk.ground.timeline)
        journal.beside(revision, held.run if held else own)
        try:
            commit_round(desk, [slot], journal.draft("call"), spoken=False)
        except Moved:
            if leases.look(space, desk.ground.timeline)[1] == revision:
                raise
            journal.unstage()
        except StaleHead as stale:
            raise _kept(slot, stale) from stale
        else:
            return
    raise Conflict(
        f"runs begin and end all the time; call '{slot.call.id}' was not committed. Make it again."
    )


def _kept(slot: Slot, stale: StaleHead) -> StaleHead:
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


def _settled(desk: Desk, asked: ToolCall, held: Held) -> CallResult:
    slot = Slot(asked, None)
    slot.held = held
    take_up(desk, slot, {})
    if _is_left(desk, held.record):
        _commit(desk, slot)
    return _result(desk, slot)


def _is_left(desk: Desk, record: CallRecord) -> bool:
    """Whether this line has not been told of a call that was settled on it, and something follows from that.

    Its scratch is still there, or what it changes was never applied: the line had gone another way.
    """
    if desk.journal.draft("call").ops.paths(scratch_prefix(record.id)):
        return True
    changes = record.patch is not None or record.agent_patch is not None
    return changes and record.result_label == "" and record.timeline == desk.ground.timeline


def _result(desk: Desk, slot: Slot) -> CallResult:
    record = slot.record
    ticket = (
        tickets.read(desk.space, record.ticket).ticket
        if slot.stage == "suspended" and record.ticket
        else None
    )
    return CallResult(id=record.id, state=record.state, result=slot.result, ticket=ticket)


def _check_same(space: Space, record: CallRecord, declared: Tool, raw: str) -> None:
    """Raise `Conflict` unless these are the arguments that the call came with, or those that it was given instead."""
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
