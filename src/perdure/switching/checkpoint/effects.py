"""Counts the effects of a thread that are older than the last entries of a long ledger.

    window          the last entries; each of their calls is described by itself
    before them     external writes that were made, may have been made or still wait, by tool and outcome:
                    how many, with the first and the last by name; the unsettled ones all by name

A ledger is read whole once.  Later reads start from an earlier count: that which this process remembers, that which
runs store in a cell of the thread, or that of a checkpoint in the timeline's last commits.  Only the entries since, and
the last ones before, are read again.  The result is the same as if all were read (`snapshot.count_calls`).

A commit is written together with its own ledger entries, so it had not read them: a call that it requests, settles or
imports enters the ledger just after the position that the commit has read.  `named_in` takes such calls and their
outcomes from the history, and `with_named` takes their records from the entries that entered them.  Neither changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Step
from perdure.errors import Corrupt, Forgotten
from perdure.history.space import Space
from perdure.ledger import calls, snapshot
from perdure.ledger.snapshot import (
    ENTRIES_MAX,
    NO_COUNT,
    OTHER_TOOLS,
    CallAtPosition,
    CallCount,
    CallKey,
    CountedCalls,
    LedgerSnapshot,
    leads_to,
)
from perdure.model.call import SETTLED, STATES, CallRecord
from perdure.model.checkpoint import Checkpoint, Many
from perdure.model.commit import LedgerRead
from perdure.model.digest import Digest
from perdure.model.event import (
    ApprovalDecided,
    ToolCallCompleted,
    ToolCallRequested,
    ToolCallStarted,
    ToolCallSuspended,
)
from perdure.model.ticket import Ticket
from perdure.projections.calls import decode_transition
from perdure.projections.transcript import TranscriptEntry
from perdure.switching.checkpoint import stored

__all__ = ["COUNTING", "EXTRACTOR", "EarlierEffects", "Looked", "look", "named_in", "with_named"]


EXTRACTOR = "perdure-rules/3"
COUNTING = frozenset(
    {"perdure-rules/2", EXTRACTOR}
)  # extractors of checkpoints that count as this module does

# Commits that are searched for a checkpoint: reading entries costs less than reading commits.
COMMITS_MAX = 400

_KNOWN_MAX = 256  # spaces whose counts are remembered


class CallGroup(msgspec.Struct, frozen=True):
    """Calls of one tool with the same outcome, and the records of the named ones."""

    tool: str  # "": of several tools, which are too many to be separate groups
    count: int
    named: tuple[CallRecord, ...]


class EarlierEffects(msgspec.Struct, frozen=True):
    """The calls before the window."""

    groups: tuple[CallGroup, ...] = ()
    others: int = 0  # calls that changed nothing outside, or did not happen


class Looked(msgspec.Struct, frozen=True):
    """The window, and the calls before it."""

    stand: LedgerSnapshot
    earlier: EarlierEffects = EarlierEffects()


_known: dict[str, CallCount] = {}  # by space: the count with the highest position


def look(space: Space, commit: Digest | None, read: LedgerRead, timeline: str) -> Looked:
    """Read the last entries up to a position and count the calls before them, as seen from `commit` on that timeline."""
    if read.position <= ENTRIES_MAX:
        return Looked(snapshot.stand(space, read, timeline=timeline))
    base = _remembered(space, read) or _stored(space, read) or _kept(space, commit, read) or NO_COUNT
    stand, found = snapshot.count_calls(space, base, read, timeline=timeline)
    _remember(space, found)
    window = tuple(known for known in stand.calls if known.position > found.start)
    return Looked(
        msgspec.structs.replace(stand, calls=window, before=found.start),
        _with_records(space, found, stand.calls),
    )


def _with_records(space: Space, found: CallCount, read: Iterable[CallAtPosition]) -> EarlierEffects:
    """Return the groups, sorted, with the records of the named calls."""
    records = {known.record.id: known.record for known in read}
    groups = tuple(
        CallGroup(key[0], counted.count, tuple(_record(space, records, call) for call in counted.named))
        for key, counted in sorted(found.groups.items())
    )
    return EarlierEffects(groups, found.others)


def _record(space: Space, records: Mapping[str, CallRecord], call: str) -> CallRecord:
    known = records.get(call)
    if known is not None:
        return known
    held = calls.find(space, call)
    if held is None:
        raise Corrupt(
            f"the ledger of '{space.label}' has no call '{call}', which a checkpoint names; nothing was derived from it.",
            code="call_of_checkpoint_missing",
            advice="Run `perdure verify`.",
            call=call,
            thread=space.label,
        )
    return held.record


# ---- where to start from


def _remembered(space: Space, read: LedgerRead) -> CallCount | None:
    base = _known.get(space.name)
    return base if base is not None and leads_to(space, base.upto, read) else None


def _stored(space: Space, read: LedgerRead) -> CallCount | None:
    """Return the count that the thread's cell holds, if it is of the beginning of this ledger; else None."""
    found = snapshot.stored_count(space)
    return found if found is not None and leads_to(space, found.upto, read) else None


def _remember(space: Space, found: CallCount) -> None:
    before = _known.get(space.name)
    if before is not None and before.upto.position > found.upto.position:
        return
    if len(_known) >= _KNOWN_MAX:
        _known.clear()
    _known[space.name] = found


def _kept(space: Space, commit: Digest | None, read: LedgerRead) -> CallCount | None:
    """Return the count of a checkpoint in the last commits, if it counts as this module does; else None."""
    try:
        checkpoint = stored.last(space, commit, limit=COMMITS_MAX)
    except Forgotten:
        return None
    if checkpoint is None or checkpoint.extractor not in COUNTING or checkpoint.conversation != space.label:
        return None
    upto = checkpoint.ledger
    if upto.position <= ENTRIES_MAX or not leads_to(space, upto, read):
        return None
    return CallCount(upto, upto.position - ENTRIES_MAX, dict(_groups(checkpoint)), checkpoint.earlier_others)


def _groups(checkpoint: Checkpoint) -> Iterator[tuple[CallKey, CountedCalls]]:
    for many in checkpoint.earlier:
        yield _key_of(many), CountedCalls(many.count, tuple(each.call for each in many.calls))


def _key_of(many: Many) -> CallKey:
    if not many.tool:
        return OTHER_TOOLS
    one = many.calls[0]
    return (one.tool, one.effect, one.idempotent, one.state, one.outcome or "")


_records = msgspec.json.Decoder(CallRecord)
_tickets = msgspec.json.Decoder(Ticket)


class NamedEffects(msgspec.Struct, frozen=True, kw_only=True):
    """The calls and tickets that the last commits of a timeline name."""

    calls: frozenset[str] = frozenset()
    tickets: frozenset[str] = frozenset()  # tickets that were opened and not decided there
    completed: dict[str, ToolCallCompleted] = {}  # by call: the last event about its completion


def named_in(steps: Iterable[Step], spoken: Iterable[TranscriptEntry]) -> NamedEffects:
    """Collect the calls and tickets that these commits, oldest first, and their messages name."""
    found = {call.id for entry in spoken if entry.words for call in entry.words.tool_calls}
    asked: set[str] = set()
    completed: dict[str, ToolCallCompleted] = {}
    for event in (event for step in steps for event in step.changeset.events):
        match event:
            case ToolCallRequested(call=call) | ToolCallStarted(call=call):
                found.add(call)
            case ToolCallSuspended(call=call, ticket=ticket):
                found.add(call)
                asked.add(ticket)
            case ApprovalDecided(ticket=ticket):
                asked.discard(ticket)
            case ToolCallCompleted(call=call):
                found.add(call)
                completed[call] = event
            case _:
                pass
    return NamedEffects(calls=frozenset(found), tickets=frozenset(asked), completed=completed)


def with_named(space: Space, read: LedgerRead, stand: LedgerSnapshot, named: NamedEffects) -> LedgerSnapshot:
    """Add the calls and tickets that the history names and the ledger, as it was read, did not have yet."""
    calls = set(named.calls) - {known.record.id for known in stand.calls}
    tickets = set(named.tickets) - {ticket.id for ticket in stand.waiting}
    more: list[CallAtPosition] = []
    waiting: list[Ticket] = []
    # The entries of a commit are not far after the position that it has read.
    later = islice(loops.entries(space.engine, space.name, after=read.position), ENTRIES_MAX)
    while (calls or tickets) and (entry := next(later, None)) is not None:
        step = decode_transition(entry.body)
        if step.record and step.call in calls:
            calls.discard(step.call)
            more.append(CallAtPosition(_records.decode(step.record), entry.position))
        if step.ticket and (ticket := _tickets.decode(step.ticket)).id in tickets:
            tickets.discard(ticket.id)
            waiting.append(ticket)
    completed = [_as_completed(known, named) for known in (*stand.calls, *more)]
    asked = sorted((*stand.waiting, *waiting), key=lambda ticket: ticket.id)
    return msgspec.structs.replace(stand, calls=tuple(completed), waiting=tuple(asked))


def _as_completed(known: CallAtPosition, named: NamedEffects) -> CallAtPosition:
    """Return the call as the history leaves it, if the ledger as it was read did not have its completion yet."""
    record, event = known.record, named.completed.get(known.record.id)
    if event is None or record.state in SETTLED or event.status not in STATES:
        return known
    result = event.result_ref or record.result
    return CallAtPosition(msgspec.structs.replace(record, state=event.status, result=result), known.position)
