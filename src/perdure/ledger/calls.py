"""Calls: reading what is known of one, and moving it on.

A call's record is a cell of its thread's space, and every transition is an entry of the
thread's ledger beside it.  A *posting* is one transition ready to be written.  It moves no
head; it is good only if the call is still at the revision that it was read at, so calls never
get into each other's way.  `post` writes postings alone; a run's commit carries them too.

An illegal transition is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Literal, TypeAlias, TypedDict, Unpack

import msgspec

from perdure.engines.contract import Cell, CellWrite, Fence, Write
from perdure.errors import Conflict, Corrupt, Invalid, Moved, NotFound
from perdure.history import cells, writer
from perdure.history import cells as marks
from perdure.history.artifacts import Staged
from perdure.history.space import Space
from perdure.model import canonical, names
from perdure.model.call import TRANSITIONS, UNCLEAR, CallRecord, CallState, Status
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.effect import Effect
from perdure.model.head import Head
from perdure.projections.calls import NOTHING, Transition, decode_transition

__all__ = [
    "BARE",
    "CALL",
    "WHY_MAX",
    "Changes",
    "VersionedCall",
    "CallTransition",
    "advance",
    "find",
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
WHY_MAX = 2_000  # characters; what is longer is cut

_SHOWN = 200
_LOOK_BACK = 4  # entries that are read at once when that of a call is looked for: most writes have fewer
_WRITE_ENTRIES_MAX = 4_096
_TOOL_BYTES_MAX = 200

BARE = Transition()  # an entry that says nothing beside the transition

_Plain: TypeAlias = str | int | bool | None

_records = msgspec.json.Decoder(CallRecord)


class Changes(TypedDict, total=False):
    """The fields that a transition may change; the count of attempts follows from the states passed."""

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
    """A call as it was read, and the permission to move it on once."""

    record: CallRecord
    revision: int


class CallTransition(msgspec.Struct, frozen=True):
    """One transition of one call, ready to be written; the call's own cell comes first."""

    record: CallRecord  # as it will stand
    entry: bytes
    cells: tuple[CellWrite, ...]
    objects: tuple[Object, ...] = ()

    @property
    def held(self) -> VersionedCall:
        """The call once this is written."""
        return VersionedCall(self.record, self.cells[0].expected + 1)

    def also(self, *, cells: Iterable[CellWrite] = (), objects: Iterable[Object] = ()) -> CallTransition:
        """The same, with more that becomes true in the same write."""
        return CallTransition(self.record, self.entry, (*self.cells, *cells), (*self.objects, *objects))


def find(space: Space, id: str) -> VersionedCall | None:
    """The call of that id; None if the thread has none.

    Raises `Corrupt`, naming it, if it is not what its newest ledger entry says.
    """
    cell = space.engine.cell(space.name, CALL + id)
    if cell is None or cell.value is None:
        return None
    held = _held(cell)
    _check_entered(space, held.record, cell)
    return held


def read(space: Space, id: str) -> VersionedCall:
    """The call of that id; raises `NotFound`, naming ids that are close."""
    found = find(space, id)
    if found is None:
        known = [held.record.id for held in listing(space, limit=_SHOWN)]
        near = get_close_matches(id, known, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
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
    """The thread's calls by id, those after the id `after`."""
    found = space.engine.cells(space.name, prefix=CALL, after=CALL + after, limit=limit)
    return [_held(cell) for cell in found]


def last(space: Space, limit: int) -> list[VersionedCall]:
    """The last so many calls of the thread, by id."""
    return [_held(cell) for cell in marks.last(space, CALL, limit)]


def propose(record: CallRecord, *states: CallState, step: Transition = BARE) -> CallTransition:
    """Enter a call that was proposed, and take it on through `states` in the same write.

    `step` holds what else the entry says.  Raises `Conflict` for an illegal transition,
    `Invalid` for a record that cannot be entered.
    """
    if record.state != "proposed":
        raise Invalid(
            f"call '{record.id}' enters the ledger as {record.state}, not as proposed; nothing was written."
        )
    names.check_id("call id", record.id)
    if not record.tool or len(record.tool.encode("utf-8", "replace")) > _TOOL_BYTES_MAX:
        raise Invalid(f"a tool's name has 1 to {_TOOL_BYTES_MAX} bytes; call '{record.id}' was not written.")
    if states:
        _check_hops(record, states)
        attempt = record.attempt + states.count("started")
        record = msgspec.structs.replace(record, state=states[-1], attempt=attempt)
    try:
        value = canonical.encode_struct(record)
    except Invalid:
        record = _mended(record)
        value = canonical.encode_struct(record)
    told = msgspec.structs.replace(
        step,
        call=record.id,
        at=record.at,
        to=record.state,
        via=("proposed", *states[:-1]) if states else (),
        record=msgspec.Raw(value),
    )
    return CallTransition(record, canonical.encode_struct(told), (_cell(record, value, 0),))


def advance(
    held: VersionedCall, *states: CallState, at: int, step: Transition = BARE, **changes: Unpack[Changes]
) -> CallTransition:
    """Take a call on through `states`, which it passes in this order, changing these fields.

    `step` holds what else the entry says.  Raises `Conflict`, having written nothing, if one of
    them cannot follow the other.
    """
    record = held.record
    _check_hops(record, states)
    if "why" in changes:
        changes["why"] = _words(changes["why"])
    told: dict[str, _Plain] = {**changes}  # pyright: ignore[reportAssignmentType]
    if "started" in states:
        told["attempt"] = record.attempt + states.count("started")
    return _posting(held, at, states, told, step)


def learn(held: VersionedCall, *, at: int, **changes: Unpack[Changes]) -> CallTransition:
    """Add to what is known of a call that stays in its state."""
    return _posting(held, at, (), {**changes}, BARE)  # pyright: ignore[reportArgumentType]


def settle(
    held: VersionedCall,
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
    """Take a call to its last state with what it gave back, all in one posting.

    The result is an artifact; `preview` is what the model is shown of it, and the patches are
    what it changes when its round is committed, with the message `result_label`; `patch_base` is the
    root of the state that the call saw.  Raises as `advance` does.
    """
    given = (preview, patch, agent_patch, memory)
    bodies = [None if body is None else Object.of(Kind.BODY, body) for body in given]
    changes: Changes = {"status": status}
    if staged is not None:
        changes["result"] = reference(staged.digest)
    for name, body in zip(("preview", "patch", "agent_patch", "memory"), bodies, strict=True):
        if body is not None:
            changes[name] = body.digest
    if patch is not None and patch_base is not None:
        changes["patch_base"] = patch_base
    if why is not None or held.record.why is not None:
        changes["why"] = why
    if result_label is not None:
        changes["result_label"] = result_label
    if late:
        changes["late"] = True
    transition = advance(held, *states, at=at, step=step, **changes)
    kept = tuple([body for body in bodies if body is not None])
    if staged is None:
        return transition.also(objects=kept) if kept else transition
    return transition.also(cells=staged.cells, objects=(*staged.objects, *kept))


def placed(transition: CallTransition, label: str) -> CallTransition:
    """The posting of a result that no history was to hold, for the commit that `label` names and that holds it."""
    if transition.record.result_label:
        return transition
    record = msgspec.structs.replace(transition.record, result_label=label)
    value = canonical.encode_struct(record)
    step = decode_transition(transition.entry)
    if step.record == NOTHING:
        told = msgspec.structs.replace(step, set={**step.set, "result_label": label})
    else:  # the call enters the ledger with this posting
        told = msgspec.structs.replace(step, record=msgspec.Raw(value))
    own = msgspec.structs.replace(transition.cells[0], value=value)
    return CallTransition(
        record, canonical.encode_struct(told), (own, *transition.cells[1:]), transition.objects
    )


def attributed(transition: CallTransition, by: str | None) -> CallTransition:
    """The posting with the name of the person who had it made; None: as it is."""
    if by is None:
        return transition
    told = msgspec.structs.replace(decode_transition(transition.entry), by=by)
    return msgspec.structs.replace(transition, entry=canonical.encode_struct(told))


def reference(artifact: Digest) -> str:
    """How the ledger names a result."""
    return f"artifact://sha256/{artifact}"


def post(
    space: Space,
    transitions: Sequence[CallTransition],
    *,
    fences: tuple[Fence, ...] = (),
    op_id: str | None = None,
) -> tuple[VersionedCall, ...]:
    """Write `transitions` at once, durably, without moving a head; the calls as they stand now.

    Raises `Conflict`, having written nothing, if one of their cells or a fence is at another
    revision.  `op_id` names the write where it may be repeated; None: nobody will.
    """
    meant = "\n".join([f"{each.record.state} {each.record.id}" for each in transitions])
    write = Write(
        space=space.name,
        op_id=op_id or space.ids(),
        intent=digest_of(Kind.BODY, meant.encode()),
        fences=(*space.fences, *fences) if fences else space.fences,
        objects=tuple([each for transition in transitions for each in transition.objects]),
        cells=tuple([each for transition in transitions for each in transition.cells]),
        entries=tuple([transition.entry for transition in transitions]),
    )
    receipt = writer.submit(space, write, Head(transitions[0].record.timeline, 0, None))
    if op_id is not None and receipt.revisions != tuple([cell.expected + 1 for cell in write.cells]):
        return tuple(
            [read(space, transition.record.id) for transition in transitions]
        )  # it was written before
    return tuple([transition.held for transition in transitions])


def post_first(space: Space, transition: CallTransition) -> VersionedCall | None:
    """Write one posting; the call as it stands after it, None if somebody else was first."""
    try:
        return post(space, (transition,))[0]
    except Moved:
        return None


def _held(cell: Cell) -> VersionedCall:
    return VersionedCall(cells.read(cell, _records), cell.revision)


def _check_entered(space: Space, record: CallRecord, cell: Cell) -> None:
    """Raise `Corrupt` unless the record says what the entry says that was written with it."""
    step = _written_with(space, record.id, cell.position)
    if step is not None and step.record:
        agrees = bytes(step.record) == cell.value
    elif step is not None:
        told = {**step.set, "at": step.at, "state": step.to or record.state}
        agrees = all(getattr(record, name, None) == value for name, value in told.items())
    else:
        agrees = False
    if not agrees:
        raise Corrupt(
            f"the record of call '{record.id}' is not what its newest ledger entry says; it was not used, and "
            "nothing was started. Run `perdure verify`.",
            cell=cell.name,
        )


def _written_with(space: Space, id: str, position: int) -> Transition | None:
    """The entry about a call in the write whose last entry has that position; entries of a write follow each other."""
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
    # What nobody knows the outcome of can be found over all threads.
    return CellWrite(name=CALL + record.id, expected=expected, value=value, listed=record.state in UNCLEAR)


def _check_hops(record: CallRecord, states: Sequence[CallState]) -> None:
    state = record.state
    for hop in states:
        if hop not in TRANSITIONS[state]:
            cannot = "already" if hop == state else f"and cannot become {hop}"
            raise Conflict(
                f"call '{record.id}' to {record.tool} is {state} {cannot}; nothing was written. "
                "Read it again and decide afresh."
            )
        state = hop


def _posting(
    held: VersionedCall, at: int, states: tuple[CallState, ...], told: dict[str, _Plain], step: Transition
) -> CallTransition:
    to = states[-1] if states else None
    record = msgspec.structs.replace(held.record, **{**told, "at": at, "state": to or held.record.state})
    try:
        value = canonical.encode_struct(record)
    except Invalid:
        record = _mended(record)
        told = {name: getattr(record, name) for name in told}
        value = canonical.encode_struct(record)
    said = msgspec.structs.replace(step, call=record.id, at=at, to=to, via=states[:-1], set=told)
    return CallTransition(record, canonical.encode_struct(said), (_cell(record, value, held.revision),))


def _words(why: str | None) -> str | None:
    return why if why is None or len(why) <= WHY_MAX else why[: WHY_MAX - 1] + "…"


def _mended(record: CallRecord) -> CallRecord:
    """The same with U+FFFD for each lone surrogate: what a tool or a vendor said must not stop a record."""
    texts = {
        name: value for name in record.__struct_fields__ if isinstance(value := getattr(record, name), str)
    }
    mended = {
        name: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        for name, text in texts.items()
    }
    return msgspec.structs.replace(record, **mended)
