"""Reads the records of tool calls, and moves calls from state to state.

A call's record is a cell of its thread's space, and every transition is an entry of the thread's ledger as well.
A `CallTransition` is one transition that is ready to be written.  It moves no head; it is written only if the call is
still at the revision that the writer read, so calls do not block each other.  `post` writes transitions alone; the
commit of a run contains them too.

An illegal transition is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Literal, TypeAlias, TypedDict, Unpack

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Cell, CellOf, CellWrite, Write
from perdure.errors import Conflict, Corrupt, Invalid, Moved, NotFound
from perdure.history import writer
from perdure.history.artifacts import Staged
from perdure.history.space import (
    Space,
    read_record,
)
from perdure.model import canonical, names
from perdure.model.call import SETTLED, TRANSITIONS, UNCLEAR, CallCounts, CallRecord, CallState, Status
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.effect import Effect
from perdure.model.head import Head
from perdure.projections.calls import NOTHING, Transition, decode_transition

__all__ = [
    "CALL",
    "WHY_MAX",
    "Changes",
    "VersionedCall",
    "CallTransition",
    "advance",
    "check_answerable",
    "count_settled",
    "every",
    "find",
    "find_many",
    "last",
    "learn",
    "listing",
    "placed",
    "post",
    "post_first",
    "propose",
    "read",
    "reference",
    "settle",
]

CALL = "call/"  # cells of calls, by id
WHY_MAX = 2_000  # characters; a longer text is cut

_COMPARED_MAX = 200  # ids that an unknown id is compared with
_LOOK_BACK = 4  # entries read at once in the search for a call's entry: most writes have fewer
_WRITE_ENTRIES_MAX = 4_096
_TOOL_BYTES_MAX = 200

BARE = Transition()  # an entry that records the transition alone

_Plain: TypeAlias = str | int | bool | None

_records = msgspec.json.Decoder(CallRecord)


class Changes(TypedDict, total=False):
    """The fields that a transition may change.  The count of attempts is not one: it follows from the states."""

    args: Digest
    args_size: int
    fingerprint: str
    first_fingerprint: str | None
    version: str | None
    key: str | None
    key_scope: Literal["thread", "store"]
    key_until: int | None
    key_clock: str | None
    effect: Effect
    idempotent: bool
    timeline: str
    run: str | None
    label: str | None
    result_label: str | None
    backend: str | None
    epoch: int
    holder: str | None
    ticket: str | None
    approved: Digest | None
    approved_fingerprint: str | None
    result: str | None
    preview: Digest | None
    status: Status | None
    outcome: Literal["done", "not_done"] | None
    patch: Digest | None
    patch_base: Digest | None
    agent_patch: Digest | None
    memory: Digest | None
    why: str | None
    late: bool
    evidence: str | None


class VersionedCall(msgspec.Struct, frozen=True):
    """A call as it was read.  It permits one transition: the revision must not have changed since."""

    record: CallRecord
    revision: int


class CallTransition(msgspec.Struct, frozen=True):
    """One transition of one call, ready to be written.  The call's own cell is the first of `cells`."""

    record: CallRecord  # as the write leaves it
    entry: bytes
    cells: tuple[CellWrite, ...]
    objects: tuple[Object, ...] = ()

    @property
    def held(self) -> VersionedCall:
        """The call as it is once this is written."""
        return VersionedCall(self.record, self.cells[0].expected + 1)

    def also(self, *, cells: Iterable[CellWrite] = (), objects: Iterable[Object] = ()) -> CallTransition:
        """Return the same transition with more cells and objects in its write."""
        return CallTransition(self.record, self.entry, (*self.cells, *cells), (*self.objects, *objects))


def find(space: Space, id: str) -> VersionedCall | None:
    """Read the call of that id; None if the thread has none.

    Raises `Corrupt`, naming the call, if its record is not what its newest ledger entry says.
    """
    return find_many(space, (id,))[0]


def count_settled(space: Space, settled: Mapping[str, str]) -> CallCounts:
    """Count the calls of a run by the states that they ended in; one that is known by now is unclear no longer.

    The tool, a person or a late result may have settled it, while the run went on or after its end.
    """
    counts = CallCounts.of(settled)
    if not counts.unclear_calls:
        return counts
    found = zip(counts.unclear_calls, find_many(space, counts.unclear_calls), strict=True)
    left = [call for call, held in found if held is None or held.record.state in UNCLEAR | {"started"}]
    return counts._replace(unclear_calls=tuple(left))


def find_many(space: Space, ids: Iterable[str]) -> list[VersionedCall | None]:
    """Read the calls of these ids, as `find` reads each; their cells are read by one call of the engine."""
    questions = [CellOf(space.name, CALL + id) for id in ids]
    cells: Sequence[Cell | None] = space.ask(*questions) if questions else ()
    found: list[VersionedCall | None] = []
    for cell in cells:
        current = None if cell is None or cell.value is None else _versioned(cell)
        if current is not None and cell is not None:
            _check_entered(space, current.record, cell)
        found.append(current)
    return found


def read(space: Space, id: str) -> VersionedCall:
    """Read the call of that id; raises `NotFound`, naming ids that are close."""
    found = find(space, id)
    if found is None:
        known = [current.record.id for current in listing(space, limit=_COMPARED_MAX)]
        near = get_close_matches(id, known, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        if not near and len(id) < names.PART_MIN and any(each.endswith(id) for each in known):
            hint = f" A part of an id has {names.PART_MIN} characters or more."
        raise NotFound(
            f"'{space.label}' has no call '{id}'; nothing was read.{hint}",
            code="call_not_found",
            advice="See what there is with calls().",
            call=id,
            thread=space.label,
            near=tuple(near),
        )
    return found


def listing(space: Space, *, after: str = "", limit: int) -> list[VersionedCall]:
    """Read up to `limit` calls of the thread, sorted by id, after the id `after`."""
    found = space.engine.cells(space.name, prefix=CALL, after=CALL + after, limit=limit)
    return [_versioned(cell) for cell in found]


def every(space: Space) -> Iterator[VersionedCall]:
    """Yield all calls of the thread, sorted by id."""
    return map(_versioned, loops.cells(space.engine, space.name, prefix=CALL))


def last(space: Space, limit: int) -> list[VersionedCall]:
    """Read the last `limit` calls of the thread, sorted by id."""
    return [_versioned(cell) for cell in space.last_cells(CALL, limit)]


def propose(record: CallRecord, *states: CallState, step: Transition = BARE) -> CallTransition:
    """Return the transition that enters a proposed call into the ledger and takes it through `states`.

    `step` has the other fields of the entry.  Raises `Conflict` for an illegal transition, `Invalid` for a record
    that cannot be entered.
    """
    if record.state != "proposed":
        raise Invalid(
            f"call '{record.id}' enters the ledger as {record.state}, not as proposed; nothing was written.",
            code="call_not_proposed",
            call=record.id,
            state=record.state,
        )
    names.check_id("call id", record.id)
    if not record.tool or len(record.tool.encode("utf-8", "replace")) > _TOOL_BYTES_MAX:
        raise Invalid(
            f"a tool's name has 1 to {_TOOL_BYTES_MAX} bytes; call '{record.id}' was not written.",
            code="tool_name_length",
            call=record.id,
            bytes_max=_TOOL_BYTES_MAX,
        )
    if states:
        _check_transitions(record, states)
        attempt = record.attempt + states.count("started")
        record = msgspec.structs.replace(record, state=states[-1], attempt=attempt)
    try:
        value = canonical.encode_struct(record)
    except Invalid:
        record = _mended(record)
        value = canonical.encode_struct(record)
    entry = msgspec.structs.replace(
        step,
        call=record.id,
        at=record.at,
        to=record.state,
        via=("proposed", *states[:-1]) if states else (),
        record=msgspec.Raw(value),
    )
    return CallTransition(record, canonical.encode_struct(entry), (_cell(record, value, 0),))


def advance(
    current: VersionedCall, *states: CallState, at: int, step: Transition = BARE, **changes: Unpack[Changes]
) -> CallTransition:
    """Return the transition that takes a call through `states`, in this order, and changes these fields.

    `step` has the other fields of the entry.  Raises `Conflict` if a state cannot follow the one before it.
    """
    record = current.record
    _check_transitions(record, states)
    why = changes.get("why")
    if why is not None and len(why) > WHY_MAX:
        changes["why"] = why[: WHY_MAX - 1] + "…"
    fields: dict[str, _Plain] = {**changes}  # pyright: ignore[reportAssignmentType]
    if "started" in states:
        fields["attempt"] = record.attempt + states.count("started")
    return _transition(current, at, states, fields, step)


def learn(current: VersionedCall, *, at: int, **changes: Unpack[Changes]) -> CallTransition:
    """Return the transition that changes fields of a call and leaves its state."""
    return _transition(current, at, (), {**changes}, BARE)  # pyright: ignore[reportArgumentType]


def settle(
    current: VersionedCall,
    *states: CallState,
    at: int,
    staged: Staged | None = None,
    preview: bytes | None = None,
    status: Status | None = None,
    patch: bytes | None = None,
    patch_base: Digest | None = None,
    agent_patch: bytes | None = None,
    memory: bytes | None = None,
    why: str | None = None,
    result_label: str | None = None,
    late: bool = False,
    step: Transition = BARE,
) -> CallTransition:
    """Return the transition that takes a call to its last state, together with its result.

    The result is an artifact.  `preview` is the part of it that the model is shown.  The patches are applied when the
    round is committed, with the message `result_label`; `patch_base` is the root of the state that the call saw.
    Raises as `advance` does.
    """
    changes: Changes = {"status": status}
    if staged is not None:
        changes["result"] = reference(staged.digest)
    objects: list[Object] = []
    given = ("preview", preview), ("patch", patch), ("agent_patch", agent_patch), ("memory", memory)
    for name, body in given:
        if body is not None:
            kept = Object.of(Kind.BODY, body)
            changes[name] = kept.digest
            objects.append(kept)
    if patch is not None and patch_base is not None:
        changes["patch_base"] = patch_base
    if why is not None or current.record.why is not None:
        changes["why"] = why
    if result_label is not None:
        changes["result_label"] = result_label
    if late:
        changes["late"] = True
    transition = advance(current, *states, at=at, step=step, **changes)
    if staged is None:
        return transition.also(objects=objects) if objects else transition
    return transition.also(cells=staged.cells, objects=(*staged.objects, *objects))


def placed(transition: CallTransition, label: str) -> CallTransition:
    """Return a copy of `transition` whose `result_label` is the message that stores the result, if it has none yet."""
    if transition.record.result_label:
        return transition
    record = msgspec.structs.replace(transition.record, result_label=label)
    value = canonical.encode_struct(record)
    step = decode_transition(transition.entry)
    if step.record == NOTHING:
        entry = msgspec.structs.replace(step, set={**step.set, "result_label": label})
    else:  # the call enters the ledger with this transition
        entry = msgspec.structs.replace(step, record=msgspec.Raw(value))
    own = msgspec.structs.replace(transition.cells[0], value=value)
    return CallTransition(
        record, canonical.encode_struct(entry), (own, *transition.cells[1:]), transition.objects
    )


def attributed(transition: CallTransition, by: str | None) -> CallTransition:
    """Return the transition with the name of the person who asked for it; None leaves it as it is."""
    if by is None:
        return transition
    entry = msgspec.structs.replace(decode_transition(transition.entry), by=by)
    return msgspec.structs.replace(transition, entry=canonical.encode_struct(entry))


def reference(artifact: Digest) -> str:
    """Return the name under which the ledger stores a result."""
    return f"artifact://sha256/{artifact}"


def check_answerable(held: VersionedCall | None) -> None:
    """Raise `Conflict` if a call is not settled: a message that answers it would pretend a result."""
    if held is None or held.record.state in SETTLED:
        return
    record = held.record
    raise Conflict(
        f"call '{record.id}' of {record.tool} is {record.state}, and a message cannot answer it; nothing was written.",
        code="call_open",
        advice="Decide it with decide(), go on with resume(), or state its outcome with resolve().",
        call=record.id,
        tool=record.tool,
        state=record.state,
    )


def post(
    space: Space,
    transitions: Sequence[CallTransition],
    *,
    op_id: str | None = None,
) -> tuple[VersionedCall, ...]:
    """Write `transitions` in one durable write that moves no head, and return the calls as they are after it.

    Raises `Conflict`, having written nothing, if one of their cells, or a fence of `space`, is at another revision.  `op_id` names
    a write that the caller may repeat; None: the caller does not repeat it.
    """
    intent = "\n".join([f"{each.record.state} {each.record.id}" for each in transitions])
    write = Write(
        space=space.name,
        op_id=op_id or space.ids(),
        intent=digest_of(Kind.BODY, intent.encode()),
        fences=space.fences,
        objects=tuple([each for transition in transitions for each in transition.objects]),
        cells=tuple([each for transition in transitions for each in transition.cells]),
        entries=tuple([transition.entry for transition in transitions]),
    )
    receipt = writer.submit(space, write, Head(transitions[0].record.timeline, 0, None))
    if op_id is not None and receipt.revisions != tuple([cell.expected + 1 for cell in write.cells]):
        # An earlier attempt wrote this op_id; the calls may have changed since.
        return tuple([read(space, transition.record.id) for transition in transitions])
    return tuple([transition.held for transition in transitions])


def post_first(space: Space, transition: CallTransition) -> VersionedCall | None:
    """Write one transition and return the call as it is after it; None if another writer changed the call first."""
    try:
        return post(space, (transition,))[0]
    except Moved:
        return None


def _versioned(cell: Cell) -> VersionedCall:
    return VersionedCall(read_record(cell, _records), cell.revision)


def _check_entered(space: Space, record: CallRecord, cell: Cell) -> None:
    """Raise `Corrupt` unless the record says the same as the ledger entry that was written with it."""
    step = _written_with(space, record.id, cell.position)
    if step is not None and step.record:
        agrees = bytes(step.record) == cell.value
    elif step is not None:
        fields = {**step.set, "at": step.at, "state": step.to or record.state}
        agrees = all(getattr(record, name, None) == value for name, value in fields.items())
    else:
        agrees = False
    if not agrees:
        raise Corrupt(
            f"the record of call '{record.id}' is not what its newest ledger entry says; it was not used, and "
            "nothing was started.",
            code="call_record_altered",
            advice="Run `perdure verify`.",
            cell=cell.name,
            call=record.id,
        )


def _written_with(space: Space, id: str, position: int) -> Transition | None:
    """Find the entry about a call in the write whose last entry has that position; None if there is none.

    The entries of one write have consecutive positions.
    """
    low = position
    while low > 0:
        low, high = max(0, low - _LOOK_BACK), low
        for entry in reversed(space.engine.entries(space.name, after=low, limit=high - low)):
            step = decode_transition(entry.body)
            if step.call == id:
                return step
        if position - low >= _WRITE_ENTRIES_MAX:
            break
    return None


def _cell(record: CallRecord, value: bytes, expected: int) -> CellWrite:
    # A call with an unknown outcome is listed, so that a store finds it without reading every thread.
    return CellWrite(name=CALL + record.id, expected=expected, value=value, listed=record.state in UNCLEAR)


def _check_transitions(record: CallRecord, states: Sequence[CallState]) -> None:
    state = record.state
    for following in states:
        if following not in TRANSITIONS[state]:
            cannot = "already" if following == state else f"and cannot become {following}"
            raise Conflict(
                f"call '{record.id}' to {record.tool} is {state} {cannot}; nothing was written.",
                code="call_transition_invalid",
                advice="Read it again and decide again.",
                call=record.id,
                tool=record.tool,
                state=state,
                to=following,
            )
        state = following


def _transition(
    current: VersionedCall,
    at: int,
    states: tuple[CallState, ...],
    fields: dict[str, _Plain],
    step: Transition,
) -> CallTransition:
    to = states[-1] if states else None
    record = msgspec.structs.replace(
        current.record, **{**fields, "at": at, "state": to or current.record.state}
    )
    try:
        value = canonical.encode_struct(record)
    except Invalid:
        record = _mended(record)
        fields = {name: getattr(record, name) for name in fields}
        value = canonical.encode_struct(record)
    entry = msgspec.structs.replace(step, call=record.id, at=at, to=to, via=states[:-1], set=fields)
    return CallTransition(record, canonical.encode_struct(entry), (_cell(record, value, current.revision),))


def _mended(record: CallRecord) -> CallRecord:
    """Replace each lone surrogate by U+FFFD: a text of a tool or a vendor must not prevent the write."""
    texts = {
        name: value for name in record.__struct_fields__ if isinstance(value := getattr(record, name), str)
    }
    mended = {
        name: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        for name, text in texts.items()
    }
    return msgspec.structs.replace(record, **mended)
