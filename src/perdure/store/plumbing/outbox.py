"""The outbox: applies the changes that threads make to their agent's map and to memory, by a second write.

A thread's commit that changes the agent's map has the patch, a commit that writes to the owner's memory has the items,
and a listed cell `outbox/<commit>` says that they are still to be applied.  The write to the other space has an op_id
that derives from the commit, so it is applied once, by any process and after any number of attempts; then the cell is
emptied.  The next opening of the store finishes what a crashed process has left; if a live process does the same at
that moment, one of the two finds the work done.

The agent's map may have changed since the thread read it.  The patch is then applied on top, and if another writer
changed the same path, the commit has a `conflict` event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Cell, CellWrite, Move, Step, Write
from perdure.engines.loops import ATTEMPTS_MAX, delayed
from perdure.errors import Conflict, NotFound, PerdureError, StaleHead
from perdure.history import ancestry, artifacts, gc_generation, writer
from perdure.history.ancestry import Stretch
from perdure.history.changes import patch_builder, values
from perdure.history.changes.patch_builder import Ops, ValueSource, reapply
from perdure.history.changes.values import StoredValue
from perdure.history.space import (
    STORE,
    Space,
    applied_id,
    read_record,
)
from perdure.history.tree import EMPTY
from perdure.history.writer import OUTBOX, Proposal
from perdure.model import canonical
from perdure.model.commit import Act
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import AgentChanged, MemoryWritten
from perdure.model.head import MAIN, Head
from perdure.model.limits import Limits
from perdure.model.patch import Patch, Stored, decode_patch
from perdure.store.plumbing import directory
from perdure.store.plumbing.handles import deferred

if TYPE_CHECKING:
    from perdure.memory import write as memory_write
    from perdure.model import memory as memory_model
else:
    memory_write = deferred("perdure.memory.write")
    memory_model = deferred("perdure.model.memory")

__all__ = ["finish", "finish_all", "promotion", "encode_patch"]


def deliver(thread: Space, agent: Space, step: Step, event: AgentChanged, *, line: str, op_id: str) -> None:
    """Apply the changes of `step` of the thread to a timeline of the agent's map, once.

    Raises `Unavailable` if the store cannot be written now; a repeated call finishes it.
    """
    intent = digest_of(Kind.BODY, canonical.encode(["agent.changed", step.digest, line]))
    for _ in range(ATTEMPTS_MAX):
        if writer.once(agent, op_id, intent) is not None:
            return
        head = _head(agent, line, step)
        try:
            writer.commit(
                agent, head, _proposal(thread, agent, step, event, head), op_id=op_id, intent=intent
            )
        except StaleHead:
            continue
        return
    raise delayed(f"the map of agent '{agent.label}'")


def encode_patch(patch: Patch) -> Object:
    """Return the object of a patch for another map."""
    return Object.of(Kind.BODY, canonical.encode_struct(patch))


def _head(agent: Space, line: str, step: Step) -> Head:
    """Return the head of the agent map's timeline; a missing one is begun at the commit that the thread read."""
    hold = agent.engine.hold(agent.name, line)
    return hold.head if hold else _begun(agent, line, step)


def _begun(agent: Space, line: str, step: Step) -> Head:
    move = Move(
        act=Act.FORK, timeline=line, expected=None, to=step.commit.reads.agent_commit, at=agent.clock()
    )
    intent = digest_of(Kind.BODY, canonical.encode(["fork", line]))

    def begun(agent: Space) -> Head:
        gc_generation.check_state(agent, move.to)
        write = Write(
            space=agent.name, op_id=f"begin:{line}", intent=intent, fences=agent.fences, moves=(move,)
        )
        return agent.engine.apply(write).heads[0]

    try:
        return gc_generation.fenced(agent, begun)
    except Conflict:
        hold = agent.engine.hold(agent.name, line)
        if hold is None:
            raise  # the conflict is not that another process has begun the timeline
        return hold.head


def _proposal(thread: Space, agent: Space, step: Step, event: AgentChanged, head: Head) -> Proposal:
    patch = decode_patch(thread.body(event.patch))
    root = agent.root_at(head.commit)
    covered = list(patch_builder.covered(agent, step.commit.reads.agent_root or EMPTY, root, patch))
    ops = Ops(agent, root)
    source = ValueSource(
        lambda stored: _copied(thread, agent, stored), lambda digest: values.read_bytes(thread, digest)
    )
    for op in patch.ops:
        reapply(ops, op, source)
    patched = ops.finish()
    return Proposal(
        reason=step.commit.reason,
        root=patched.root,
        patch=patched.patch,
        events=tuple(covered),
        minted=frozenset(each.id for each in covered),
        objects=patched.objects,
        cells=patched.cells,
        run=step.commit.run,
        author=step.commit.thread,
    )


def _copied(thread: Space, agent: Space, stored: Stored) -> StoredValue:
    """Copy a value of the thread's space to the agent's; `NotFound` for a value that a later op of the patch replaces."""
    found = thread.engine.objects(thread.name, (stored.value,))[0]
    if found.kind is Kind.LIST:
        return values.keep_json(agent, values.read_bytes(thread, stored.value), base=None)
    if found.kind is not Kind.ARTIFACT:
        return StoredValue(stored, (found,), body=found.body)  # a later op may edit it before it is written
    staged = artifacts.stage(agent, artifacts.get(thread, stored.value), media_type=stored.media_type)
    return StoredValue(stored, staged.objects, staged.cells)


_PROMOTED = OUTBOX + "promoted/"

Spaces: TypeAlias = Callable[[str], Space]
"""Returns the space of that name."""


class _Pending(msgspec.Struct, frozen=True):
    """The value of an outbox cell."""

    depth: int
    down_to: int = -1  # for a promotion: the depth of the last commit that both timelines share
    version: int = 0  # of the timeline at the commit; depth alone is no order: after an undo it is smaller


_pending = msgspec.json.Decoder(_Pending)


def finish(spaces: Spaces, thread: Space) -> None:
    """Apply everything in the outbox of one thread, in the order of its commits.

    Raises `Unavailable` if the store cannot be written now; the rest stays in the outbox.
    """
    # The engine returns cells by digest, so all are read before the first commit is known.
    for cell in sorted(loops.cells(thread.engine, thread.name, prefix=OUTBOX), key=_order):
        _apply(spaces, thread, cell)
        _empty(thread, cell)


def _order(cell: Cell) -> tuple[int, int, str]:
    """Return the order of a cell's change.  Each timeline changes its own timeline of the agent's map."""
    pending = _read(cell)
    return pending.version, pending.depth, cell.name


def finish_all(spaces: Spaces, store: Space) -> None:
    """Apply what crashed processes have left in any outbox.

    What cannot be applied, because data are damaged or the store cannot be written, stays in the outbox: it must not
    prevent a program from opening the store.
    """
    with suppress(PerdureError):
        for name in dict.fromkeys(cell.space for cell in loops.listed(store.engine, prefix=OUTBOX)):
            with suppress(PerdureError):
                finish(spaces, spaces(name))


def promotion(thread: Space, agent: Space, main: Head, other: Head) -> tuple[CellWrite, ...]:
    """Return the outbox cell for the changes of the agent's map that only the promoted timeline has; none if none."""
    has_pending = bool(thread.engine.cells(thread.name, prefix=OUTBOX, limit=1))
    if other.commit is None or not (agent.engine.holds(agent.name, limit=1) or has_pending):
        return ()
    tip = ancestry.point(thread, other.commit)
    shared = ancestry.meet(thread, tip, ancestry.point(thread, main.commit)) if main.commit else None
    floor = shared.depth if shared else -1
    if not any(_apart(step) for step in ancestry.walk(thread, Stretch(tip, floor))):
        return ()
    name = _PROMOTED + other.commit
    before = thread.engine.cell(thread.name, name)
    value = canonical.encode_struct(_Pending(tip.depth, floor, main.version + 1))
    return (CellWrite(name=name, expected=before.revision if before else 0, value=value, listed=True),)


def _apply(spaces: Spaces, thread: Space, cell: Cell) -> None:
    if cell.name.startswith(_PROMOTED):
        tip = ancestry.point(thread, Digest(cell.name.removeprefix(_PROMOTED)))
        steps = list(ancestry.walk(thread, Stretch(tip, _read(cell).down_to)))
        for step in reversed([step for step in steps if _apart(step)]):
            _deliver(spaces, thread, step, line=MAIN, op_id=f"promoted:{step.digest}")
    else:
        step = thread.step(Digest(cell.name.removeprefix(OUTBOX)))
        _deliver(spaces, thread, step, line=None, op_id=applied_id(step.digest))
        _remember(spaces, thread, step)


def _deliver(spaces: Spaces, thread: Space, step: Step, *, line: str | None, op_id: str) -> None:
    """Deliver the changes of `step` to the agent's map, on `line`; None: on the timeline that the event names."""
    for event in _changes(step):
        agent = _roomy(spaces(f"agent:{event.agent}"))
        deliver(thread, agent, step, event, line=line or event.timeline, op_id=op_id)


def _remember(spaces: Spaces, thread: Space, step: Step) -> None:
    """Deliver what `step` wrote to memory; a promotion delivers nothing, because memory has no timelines."""
    events = [event for event in step.changeset.events if isinstance(event, MemoryWritten)]
    if not events:
        return
    agent = _agent_of(spaces, step)
    for owner in dict.fromkeys(event.owner for event in events):
        memory = _roomy(spaces(memory_model.MEMORY + owner))
        memory_write.deliver(thread, memory, step, owner, agent=agent, op_id=applied_id(step.digest))


def _agent_of(spaces: Spaces, step: Step) -> str | None:
    """Return the agent of the thread, as the directory says; None if the thread was removed."""
    try:
        return directory.find(spaces(STORE), step.commit.thread).agent
    except NotFound:
        return None


def _roomy(agent: Space) -> Space:
    """Return the space with limits high enough for any write of a thread and the events about it."""
    most = Limits()
    limits = msgspec.structs.replace(
        agent.limits, write_bytes_max=4 * most.write_bytes_max, write_events_max=most.write_events_max
    )
    return msgspec.structs.replace(agent, limits=limits)


def _apart(step: Step) -> bool:
    """True if the commit changed the agent's map on another timeline than main."""
    return any(event.timeline != MAIN for event in _changes(step))


def _changes(step: Step) -> Iterator[AgentChanged]:
    return (event for event in step.changeset.events if isinstance(event, AgentChanged))


def _empty(thread: Space, cell: Cell) -> None:
    """Empty the cell; a process that did the same work at the same time may have emptied it already."""
    done = CellWrite(name=cell.name, expected=cell.revision, value=None, listed=True)
    op_id = f"done:{cell.revision}:{cell.name}"
    intent = digest_of(Kind.BODY, canonical.encode(["done", cell.name]))
    try:
        thread.engine.apply(Write(space=thread.name, op_id=op_id, intent=intent, cells=(done,)))
    except Conflict:
        return


def _read(cell: Cell) -> _Pending:
    return read_record(cell, _pending)
