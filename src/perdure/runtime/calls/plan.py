"""Plans a round: decides about each call that a model has requested before anything happens.

One write can then hold the assistant's turn, the requests, the questions to people and the starts.

`clearance` says whether a call may start now and which cells its start must write.  It is asked before
every start, also of a call that a person has approved: another timeline may have started an equal call
since, or another call with the same key may have a result.

Calls that were imported from another framework take part.  Their tool is found by its name, or by the
spelling that a vendor's format uses for that name.  The agent may not have the tool at the import; then
`clearance` records the meaning of those calls before the first start of a call to that tool, so that the
repeat guard can compare them.

`rework_with` says what changes in a call whose arguments a person has edited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

import msgspec

from perdure.engines.contract import CellWrite, LedgerOf, Question
from perdure.engines.loops import Attempts
from perdure.errors import Forgotten, Invalid, Moved
from perdure.history.space import Space
from perdure.ledger import call_identity, calls, repeat_guard, tickets
from perdure.ledger.call_identity import Free, Mine, Reuse, Waits, fingerprint_of
from perdure.ledger.calls import CallTransition, Changes, VersionedCall
from perdure.ledger.decisions import Rework
from perdure.ledger.repeat_guard import MayStart, Repeats, Verdict
from perdure.model import canonical
from perdure.model.call import CallRecord, CallState
from perdure.model.canonical import Json
from perdure.model.context import Context, ToolSpec
from perdure.model.digest import Digest, Kind, Object
from perdure.model.effect import within
from perdure.model.event import ToolCallRequested
from perdure.model.message import Message, Text, ToolCall, ToolResult
from perdure.model.ticket import Ticket
from perdure.providers import registry
from perdure.runtime.calls import root_ledger
from perdure.runtime.calls.pending_call import PendingCall, encode_result, settle_with_result_of_key
from perdure.runtime.calls.round import RoundContext, args_body, fingerprint_for
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.lease import Lost
from perdure.runtime.tools.call import Call
from perdure.runtime.tools.result import NoResult, explain
from perdure.runtime.tools.signature import Arguments, why_refused
from perdure.runtime.tools.tool import Tool

__all__ = [
    "plan",
    "plan_answers",
    "request_event",
    "requested",
    "clearance",
    "rework_with",
    "by_spelling",
    "fingerprint_here",
    "AskApproval",
    "Clearance",
    "Deny",
    "RequestedCall",
    "ReuseResult",
    "Start",
]

_IMPORTED_AT_ONCE = 100
_EVERYWHERE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")  # names that all shipped formats accept unchanged
_SPELLINGS_MAX = 4096  # that are cached


class Start(msgspec.Struct, frozen=True):
    """The call may start, if these cells are written in the same write."""

    cells: tuple[CellWrite, ...] = ()
    claim: Free | Mine | Waits | None = None  # of a key that is unique in the store: it is claimed first
    in_root: MayStart | None = (
        None  # of a child run's call: it is entered in the root's ledger first; None: it is not
    )


class AskApproval(msgspec.Struct, frozen=True):
    """A person has to decide first."""

    ticket: Ticket


class Deny(msgspec.Struct, frozen=True):
    """The call is not made."""

    why: str


class ReuseResult(msgspec.Struct, frozen=True):
    """A call with the same key was done; its result is the result of this call."""

    reuse: Reuse


Clearance: TypeAlias = Start | AskApproval | Deny | ReuseResult


class RequestedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call as a model requested it, before anything is decided."""

    call: ToolCall
    tool: Tool | None
    args: Object
    record: CallRecord
    arguments: Arguments | None = None  # None: the call is refused
    refusal: tuple[NoResult, str] = ("invalid", "")  # as what, and why


def requested(
    round_context: RoundContext,
    call: ToolCall,
    label: str,
    *,
    backend: str | None,
    vendor_id: str | None,
    cut_off: str | None = None,
    refused: str | None = None,
) -> RequestedCall:
    """Check `call`, which the message `label` requests; nothing is read.

    `cut_off` says why the answer that holds the call is not complete, and `refused` why a guard refuses the call;
    such a call is never run.
    """
    tool, arguments = round_context.toolbox.get(call.name), None
    refusal: tuple[NoResult, str] = "invalid", ""
    if cut_off is not None:
        refusal = "cut_off", cut_off
    elif tool is None:
        refusal = "no_such_tool", ""
    elif refused is not None:
        refusal = "denied", refused
    else:
        try:
            arguments = tool.validated(call.args)
        except Invalid as error:
            refusal = "invalid", why_refused(error)
    args = args_body(call.args)
    record = round_context.new_record(
        call,
        tool,
        arguments,
        args=args,
        label=label,
        backend=backend,
        vendor_id=vendor_id,
    )
    return RequestedCall(call=call, tool=tool, args=args, record=record, arguments=arguments, refusal=refusal)


def request_event(space: Space, record: CallRecord) -> ToolCallRequested:
    """Return the event that a call was requested."""
    return ToolCallRequested(
        id=space.ids(),
        call=record.id,
        tool=record.tool,
        args=record.args,
        size=record.args_size,
        idempotency_key=record.key,
        side_effects=record.effect,
    )


def plan_answers(
    round_context: RoundContext, calls: Iterable[RequestedCall], *also: Question, assumes_new: bool = False
) -> Space:
    """Return the thread's space with the answers to `also` and to all that the decisions about these calls ask.

    One call reads them.  With `assumes_new` the gate of a fingerprint that this process has not seen is not read and
    counts as unwritten: if an equal call was started before, the write that starts this one is refused.  Nothing else
    refutes the assumption, so the gate of a call that this write may not start is read: a person may be asked about it,
    another result may be its own, or it starts later.
    """
    space, started = round_context.space, round_context.env.store_runtime.started
    assumes_new = assumes_new and round_context.env.parent is None  # a call of a child run starts later
    guarded = [each for each in calls if each.arguments is not None and each.record.reach.guarded]
    asked: list[Question] = [*also, LedgerOf(space.name)] if guarded else [*also]
    assumed: dict[Question, None] = {}
    for each in guarded:
        record, tool = each.record, each.tool
        gate = repeat_guard.questions(space, record)
        starts_now = tool is not None and tool.ask is False and tool.key is None
        if assumes_new and starts_now and not started.is_known(space.name, record.fingerprint):
            assumed |= dict.fromkeys(gate)
        else:
            asked += gate
        asked += call_identity.questions(space, record)
    return space.knowing(*asked, assumed=assumed)


def plan(
    round_context: RoundContext,
    requested: RequestedCall,
    *,
    taken: set[str],
    start: bool = True,
    space: Space | None = None,
) -> PendingCall:
    """Decide about a call; the decision is the transition to be written.

    `taken` holds the fingerprints of external writes that this round starts; an equal call waits for
    them.  With `start` off nothing is started yet, because a cell that the start depends on has changed.
    `space` has answers that were just read; None: everything is read here.
    """
    pending_call = PendingCall(requested.call, requested.tool)
    if requested.tool is None or requested.arguments is None:
        as_what, why = requested.refusal
        _refuse(pending_call, requested.record, "denied" if as_what == "denied" else "failed", as_what, why)
    else:
        _decide(round_context, pending_call, requested.tool, requested, taken, start=start, space=space)
    pending_call.bring((requested.args,))
    return pending_call


def _decide(
    round_context: RoundContext,
    pending_call: PendingCall,
    tool: Tool,
    requested: RequestedCall,
    taken: set[str],
    *,
    start: bool,
    space: Space | None,
) -> None:
    record, arguments = requested.record, requested.arguments
    assert arguments is not None, "a call without valid arguments is refused"
    if record.reach.guarded and record.fingerprint in taken:
        pending_call.enter(calls.propose(record, "requested"), arguments)  # an equal call goes first
        return
    match clearance(round_context, tool, record, space=space):
        case Deny(why):
            _refuse(pending_call, record, "denied", "denied", why)
        case ReuseResult(reuse):
            staged, preview = call_identity.borrowed(round_context.space, reuse)
            settle_with_result_of_key(pending_call, record, staged, preview, at=record.at)
        case AskApproval(ticket):
            pending_call.suspend(tickets.ask(record, ticket))
        case Start(cells, claim, in_root):
            if _needs_approval(tool, arguments, record):
                pending_call.suspend(tickets.ask(record, _approval(round_context, tool, record)))
                return
            taken.add(record.fingerprint)
            if start and record.reach.writes and claim is None and in_root is None:
                begun = msgspec.structs.replace(record, **round_context.start_changes(tool, record))
                transition = calls.propose(begun, "requested", "started").also(cells=cells)
            else:
                transition = calls.propose(record, "requested")
            pending_call.enter(transition, arguments)


def _needs_approval(tool: Tool, arguments: Arguments, record: CallRecord) -> bool:
    if isinstance(tool.ask, bool):
        return tool.ask
    return tool.asks(Call(id=record.id, tool=record.tool, key=record.key or "", arguments=arguments.normal))


def _approval(round_context: RoundContext, tool: Tool, record: CallRecord) -> Ticket:
    message = f"{tool.name} ({record.effect}) asks for approval before it runs"
    equal = root_ledger.describe_equal(round_context.space, round_context.env.parent, record)
    return tickets.question(
        record,
        id=round_context.space.ids(),
        at=round_context.now(),
        message=message if equal is None else f"{message}; {equal}",
        arguments_schema=tool.arguments_schema,
    )


def _refuse(
    pending_call: PendingCall, record: CallRecord, state: CallState, as_what: NoResult, why: str
) -> None:
    """Settle a call that is not made; the model is shown why."""
    result = ToolResult(record.id, "error", explain(as_what, why, record.tool))
    body = Object.of(Kind.BODY, encode_result(result))
    record = msgspec.structs.replace(record, status="error", why=why or as_what, preview=body.digest)
    pending_call.settle(calls.propose(record, state).also(objects=(body,)), result)


def clearance(
    round_context: RoundContext, tool: Tool, record: CallRecord, *, space: Space | None = None
) -> Clearance:
    """Decide whether the call `record` may start; `space` has answers that were just read, None: it has none."""
    space = space or round_context.space
    effect_max = round_context.env.effect_max
    if not within(record.effect, effect_max):
        return Deny(f"on this timeline no call beyond {effect_max} is made")
    found = tickets.find(round_context.space, record.ticket) if record.ticket else None
    ticket = None if found is None or tickets.is_approval_outdated(space, found.ticket) else found.ticket
    seen = 0 if ticket is None else repeat_guard.seen(record, ticket)
    if record.reach.guarded and tool.repeat_guard != "allow":
        space = _identify_imported(round_context, tool, round_context.space, space)
    verdict = repeat_guard.check(
        space,
        record,
        head=round_context.journal.head.commit,
        backend=record.backend,
        policy=tool.repeat_guard,
        seen=seen,
        is_decided=ticket is not None and tickets.is_informed(ticket),
    )
    parent, in_root = round_context.env.parent, None
    if parent is not None and record.reach.guarded:
        if tool.repeat_guard != "allow":  # the agent of the root thread may not have the tool
            root = root_ledger.root_of(space, parent)
            _identify_imported(round_context, tool, root, root)
        in_root = root_ledger.check(space, parent, record, policy=tool.repeat_guard, ticket=ticket)
    cases = {each.case for each in (verdict, in_root) if isinstance(each, Repeats)}
    if cases - {"again"}:
        return _repeats(round_context, tool, record, verdict, in_root)
    home = round_context.env.open_store() if record.key_scope == "store" else space
    claim = call_identity.owner_of_key(home, space, record)
    match claim:
        case Reuse():
            return ReuseResult(claim)
        case _ if cases:  # the model has to answer again, and no key tells that this call is the one before
            return _repeats(round_context, tool, record, verdict, in_root)
        case Waits() if not seen and repeat_guard.allowed(record, ticket).get("claim") != claim.revision:
            return AskApproval(_key_question(round_context, tool, record, claim))
        case _:
            assert not isinstance(in_root, Repeats), "a repeat is asked about"
            cells = repeat_guard.starting(record, verdict)
            if record.key_scope == "store":
                return Start(cells, claim, in_root)
            own = call_identity.claiming(round_context.space, record, claim, at=round_context.now())
            return Start((*cells, *own), in_root=in_root)


def _repeats(
    round_context: RoundContext, tool: Tool, record: CallRecord, here: Verdict, in_root: Verdict | None
) -> Clearance:
    """Refuse a call that would repeat another, or ask: one approval covers the starts of both threads."""
    repeats = [each for each in (here, in_root) if isinstance(each, Repeats)]
    # The person is shown what is least known: a call of this run that is certainly done comes last.
    found = next((each for each in repeats if each.case != "again"), repeats[0])
    gates = {"seen": here.gate, "root_seen": in_root.gate if in_root is not None else None}
    by = _settled_by(round_context.space, found.earlier) if found is here else None
    words = tickets.describe_repeat(found, by)
    if tool.repeat_guard == "deny":
        return Deny(words)
    ticket = tickets.repetition(
        record,
        found,
        id=round_context.space.ids(),
        at=round_context.now(),
        message=words,
        arguments_schema=tool.arguments_schema,
        starts={name: gate.count for name, gate in gates.items() if gate is not None},
        root=round_context.env.parent.root_space if found is not here and round_context.env.parent else None,
    )
    return AskApproval(ticket)


def _key_question(round_context: RoundContext, tool: Tool, record: CallRecord, waits: Waits) -> Ticket:
    """Ask whether this call may run though another has its key; an approval covers that claim and no later one."""
    shown: dict[str, Json] = {"case": "key", "claim": waits.revision}
    if waits.record is not None and not repeat_guard.done(waits.record):
        shown["repeats"] = waits.owner.call
        if waits.owner.space != round_context.space.name:
            shown["space"] = waits.owner.space
    return tickets.question(
        record,
        id=round_context.space.ids(),
        at=round_context.now(),
        action="repeat",
        parameters=canonical.encode(shown).decode(),
        arguments_schema=tool.arguments_schema,
        message=tickets.describe_key_conflict(waits.owner.call, waits.record),
    )


def _settled_by(space: Space, earlier: CallRecord) -> str | None:
    """Return the name of the person who settled a call; None if the tool settled it, or the person gave no name."""
    if earlier.state != "resolved":
        return None
    from perdure.ledger.trace import trace  # it reads the ledger, which no other call needs

    return next((each.by for each in trace(space, earlier.id).passed if "resolved" in each.states), None)


def by_spelling(toolbox: Mapping[str, Tool], api: str) -> dict[str, Tool]:
    """Return the tools by the spelling that the format `api` uses for their names.

    Tools that keep their names are left out, and so is a spelling that could mean another tool.
    """
    claims: dict[str, list[Tool]] = {}
    for tool in toolbox.values():
        claims.setdefault(_spelled(tool.name, api), []).append(tool)
    return {name: tools[0] for name, tools in claims.items() if len(tools) == 1 and name not in toolbox}


@lru_cache(maxsize=_SPELLINGS_MAX)
def _spelled(name: str, api: str) -> str:
    """Return what a tool is called in requests of that format, if it is the only tool there."""
    alone = Context(messages=(Message("user", (Text("-"),)),), tools=(ToolSpec(name=name),))
    names = registry.adapter(api).render(alone, model="-").names
    return next((spelling for spelling, meant in names.items() if meant == name), name)


def fingerprint_here(tool: Tool, args: str) -> str:
    """Return the fingerprint of a call from elsewhere; arguments that the tool refuses equal those of no call here."""
    try:
        return fingerprint_for(tool, tool.validated(args))
    except Invalid:
        return fingerprint_of(tool.name, tool.version, args)


def _identify_imported(round_context: RoundContext, tool: Tool, space: Space, known: Space) -> Space:
    """Record fingerprints for calls to `tool` that were imported into a space when its agent did not have it.

    The space is the one of the run, or of the root thread of a child run.  Returns it with the answers that are still
    good: all of `known`, or none if anything was written.
    """
    imports = round_context.env.store_runtime.imports
    if imports.are_all(known, tool.name):
        return known
    (end,) = known.ask(LedgerOf(space.name))  # before the marks are read: a later import is not missed
    names = [tool.name]
    if not _EVERYWHERE.fullmatch(tool.name):
        spellings = [by_spelling(round_context.toolbox, api).items() for api in registry.APIS]
        names += dict.fromkeys(
            spelling for found in spellings for spelling, meant in found if meant.name == tool.name
        )
    attempts = Attempts(f"the imported calls to {tool.name}", f"the call to {tool.name} was not started")
    for name in names:
        while found := repeat_guard.unlearnt(space, name, limit=_IMPORTED_AT_ONCE):
            known = space
            first, *others = [_identified(space, tool, call) for call in found]
            cells = repeat_guard.learning(space, [each.record for each in (first, *others)])
            try:
                if space.name == round_context.space.name:
                    round_context.journal.post(first.also(cells=cells), *others)
                else:
                    calls.post(space, (first.also(cells=cells), *others))
            except Lost:
                raise
            except Moved:
                attempts.begin()
    imports.note(space, tool.name, end.position)
    return known


def _identified(space: Space, tool: Tool, call: VersionedCall) -> CallTransition:
    """Return the transition of an imported call whose tool is known now; an error of one that only reads is a failure."""
    record = call.record
    is_error = record.state == "unknown" and record.result is not None
    states: tuple[CallState, ...] = ("requested", "failed") if is_error and not tool.reach.guarded else ()
    return calls.advance(
        call,
        *states,
        at=space.clock(),
        fingerprint=_imported_fingerprint(space, tool, record.args),
        version=tool.version,
        effect=tool.reach.effect,
        idempotent=tool.reach.idempotent,
    )


def _imported_fingerprint(space: Space, tool: Tool, args: Digest) -> str:
    try:
        raw = space.nodes((args,))[0]  # not what stands in the place of redacted ones
        return fingerprint_here(tool, raw.decode("utf-8", "surrogatepass"))
    except Forgotten:
        return fingerprint_of(tool.name, tool.version, args)  # nothing is left to compare with


def rework_with(env: RunEnvironment) -> Rework:
    """Return how this agent's tools validate edited arguments; fingerprint and templated key follow from them.

    Without the tool the arguments are validated when the call runs.
    """
    toolbox = env.agent.toolbox

    def rework(record: CallRecord, arguments: dict[str, Json]) -> Changes:
        tool = toolbox.get(record.tool)
        if tool is None:
            return {}
        validated = tool.validated(json.dumps(arguments))
        changes: Changes = {"fingerprint": fingerprint_for(tool, validated)}
        if tool.key is not None:
            changes["key"] = call_identity.templated_key(
                tool.key,
                dict(validated.normal),
                agent=env.agent.name,
                thread=env.space.label,
                scope=tool.key_scope,
            )
        return changes

    return rework
