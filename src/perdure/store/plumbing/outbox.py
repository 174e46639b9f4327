"""The outbox: what threads change in their agent's map and in memory, taken over by a second write.

A thread's commit that changes the agent's map holds the patch, one that writes to its owner's
memory holds the items, and a listed cell `outbox/<commit>` says that it is still to be applied.
Applying it is a write to the other space whose op_id derives from the commit, so it happens
once, whoever does it and however often; then the cell is emptied.  What a process that died left behind is finished when the
store is next opened; a process that lives may be doing the same at that moment, and one of
them finds the work done.

Handing over: one thread's patch for its agent's map, applied where that map stands now.

The map may have moved since the thread read it.  The ops are then applied on top; where
somebody else has changed the same path meanwhile, the commit says so in a `conflict` event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeAlias

import msgspec

from perdure.engines.contract import Cell, CellWrite, Engine, Move, Step, Write
from perdure.errors import Conflict, NotFound, PerdureError, StaleHead, Unavailable
from perdure.history import ancestry, artifacts, cells, gc_generation, writer
from perdure.history.ancestry import Stretch
from perdure.history.changes import patch_builder
from perdure.history.changes.patch_builder import Ops, ValueSource, reapply
from perdure.history.changes.values import StoredValue
from perdure.history.space import STORE, Space, applied_id
from perdure.history.tree import EMPTY
from perdure.history.writer import OUTBOX, Proposal
from perdure.memory import write
from perdure.model import canonical
from perdure.model.commit import Act
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import AgentChanged, MemoryWritten
from perdure.model.head import MAIN, Head
from perdure.model.limits import Limits
from perdure.model.memory import MEMORY
from perdure.model.patch import Patch, Stored, decode_patch
from perdure.store.plumbing import directory

__all__ = ["Spaces", "finish", "finish_all", "promotion", "deliver", "encode_patch"]


_TRIES_MAX = 64


def deliver(thread: Space, agent: Space, step: Step, event: AgentChanged, *, line: str, op_id: str) -> None:
    """Apply what `step` of the thread changed to a line of the agent's map, once.

    Raises `Unavailable` if the store cannot be written now; doing it again finishes it.
    """
    intent = digest_of(Kind.BODY, canonical.encode(["agent.changed", step.digest, line]))
    for _ in range(_TRIES_MAX):
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
    raise Unavailable(
        f"agent '{agent.label}' is being changed by others all the time; its map was not changed yet. "
        "The next change of the thread, or the next opening of the store, does it."
    )


def encode_patch(patch: Patch) -> Object:
    """The body that holds a patch for another map."""
    return Object.of(Kind.BODY, canonical.encode_struct(patch))


def _head(agent: Space, line: str, step: Step) -> Head:
    """Where the line of the agent's map stands; one that does not exist begins where the thread looked."""
    hold = agent.engine.hold(agent.name, line)
    return hold.head if hold else _begun(agent, line, step)


def _begun(agent: Space, line: str, step: Step) -> Head:
    move = Move(act=Act.FORK, timeline=line, expected=None, to=step.commit.reads.agent_commit)
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
            raise  # it was not that somebody else has begun the line
        return hold.head


def _proposal(thread: Space, agent: Space, step: Step, event: AgentChanged, head: Head) -> Proposal:
    patch = decode_patch(thread.body(event.patch))
    root = agent.root_at(head.commit)
    covered = list(patch_builder.covered(agent, step.commit.reads.agent_root or EMPTY, root, patch))
    ops = Ops(agent, root)
    source = ValueSource(lambda stored: _kept(thread, agent, stored), thread.body)
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


def _kept(thread: Space, agent: Space, stored: Stored) -> StoredValue:
    """A value of the thread's space, to be kept in the agent's; raises `NotFound` for one between two ops of a patch."""
    found = thread.engine.objects(thread.name, (stored.value,))[0]
    if found.kind is not Kind.ARTIFACT:
        return StoredValue(stored, (found,), body=found.body)  # the next op may edit it before it is written
    staged = artifacts.stage(agent, artifacts.get(thread, stored.value), media_type=stored.media_type)
    return StoredValue(stored, staged.objects, staged.cells)


_PROMOTED = OUTBOX + "promoted/"
_PAGE = 100

Spaces: TypeAlias = Callable[[str], Space]
"""The space of that name."""


class _Left(msgspec.Struct, frozen=True):
    """The value of an outbox cell."""

    depth: int
    down_to: int = -1  # for a promotion: the depth of the last commit that both lines share
    version: int = 0  # of the timeline, when this became true: after an undo a later commit can be less deep


_left = msgspec.json.Decoder(_Left)


def finish(spaces: Spaces, thread: Space) -> None:
    """Apply everything in the outbox of one thread, in the order of its commits.

    Raises `Unavailable` if the store cannot be written now; what is left stays in the outbox.
    """
    # Cells come by digest, so the first page says nothing about which commit came first.
    for cell in sorted(_cells(thread), key=_turn):
        _apply(spaces, thread, cell)
        _empty(thread, cell)


def _turn(cell: Cell) -> tuple[int, int, str]:
    """When a cell's change became true.  Timelines have their own lines in the agent's space, so they do not mix."""
    left = _read(cell)
    return left.version, left.depth, cell.name


def finish_all(spaces: Spaces, store: Space) -> None:
    """Apply what processes that died have left in any outbox.

    What cannot be applied, because something it needs is damaged or the store cannot be
    written, stays where it is: that must not keep anybody from opening the store.
    """
    with suppress(PerdureError):
        for name in _left_in(store.engine):
            with suppress(PerdureError):
                finish(spaces, spaces(name))


def promotion(thread: Space, agent: Space, main: Head, other: Head) -> tuple[CellWrite, ...]:
    """The cell that promises to take over to the agent's map what the line to be promoted changed on its own."""
    if other.commit is None or not (agent.engine.holds(agent.name, limit=1) or _is_left(thread)):
        return ()
    tip = ancestry.point(thread, other.commit)
    shared = ancestry.meet(thread, tip, ancestry.point(thread, main.commit)) if main.commit else None
    floor = shared.depth if shared else -1
    if not any(_apart(step) for step in ancestry.walk(thread, Stretch(tip, floor))):
        return ()
    name = _PROMOTED + other.commit
    before = thread.engine.cell(thread.name, name)
    value = canonical.encode_struct(_Left(tip.depth, floor, main.version + 1))
    return (CellWrite(name=name, expected=before.revision if before else 0, value=value, listed=True),)


def _left_in(engine: Engine) -> Iterator[str]:
    """The spaces that have something in their outbox."""
    after = ("", "")
    while page := engine.listed(prefix=OUTBOX, after=after, limit=_PAGE):
        yield from dict.fromkeys(cell.space for cell in page)
        after = (page[-1].name, page[-1].space)


def _is_left(thread: Space) -> bool:
    """Whether anything is in the outbox of a thread."""
    return bool(thread.engine.cells(thread.name, prefix=OUTBOX, limit=1))


def _cells(thread: Space) -> Iterator[Cell]:
    """Everything in the outbox of one thread."""
    after = ""
    while page := thread.engine.cells(thread.name, prefix=OUTBOX, after=after, limit=_PAGE):
        yield from page
        after = page[-1].name


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
    """Hand over what `step` changed; to the line that it names itself where `line` is None."""
    for event in _changes(step):
        agent = _roomy(spaces(f"agent:{event.agent}"))
        deliver(thread, agent, step, event, line=line or event.timeline, op_id=op_id)


def _remember(spaces: Spaces, thread: Space, step: Step) -> None:
    """Hand over what `step` wrote to memory; a promotion needs none of this, as memory has no lines of its own."""
    events = [event for event in step.changeset.events if isinstance(event, MemoryWritten)]
    if not events:
        return
    agent = _agent_of(spaces, thread, step)
    for owner in dict.fromkeys(event.owner for event in events):
        memory = _roomy(spaces(MEMORY + owner))
        write.deliver(thread, memory, step, owner, agent=agent, op_id=applied_id(step.digest))


def _agent_of(spaces: Spaces, thread: Space, step: Step) -> str | None:
    """Whose thread it is, as the directory says; None if it was removed."""
    try:
        return directory.find(spaces(STORE), step.commit.thread).agent
    except NotFound:
        return None


def _roomy(agent: Space) -> Space:
    """The space with room for what a thread was allowed to write, and what is said about it."""
    most = Limits()
    limits = msgspec.structs.replace(
        agent.limits, write_bytes_max=4 * most.write_bytes_max, write_events_max=most.write_events_max
    )
    return msgspec.structs.replace(agent, limits=limits)


def _apart(step: Step) -> bool:
    """Whether the commit changed the agent's map on a line apart from main."""
    return any(event.timeline != MAIN for event in _changes(step))


def _changes(step: Step) -> Iterator[AgentChanged]:
    return (event for event in step.changeset.events if isinstance(event, AgentChanged))


def _empty(thread: Space, cell: Cell) -> None:
    """Say that the work is done; whoever did the same at the same time has said it already."""
    done = CellWrite(name=cell.name, expected=cell.revision, value=None, listed=True)
    op_id = f"done:{cell.revision}:{cell.name}"
    intent = digest_of(Kind.BODY, canonical.encode(["done", cell.name]))
    try:
        thread.engine.apply(Write(space=thread.name, op_id=op_id, intent=intent, cells=(done,)))
    except Conflict:
        return


def _read(cell: Cell) -> _Left:
    return cells.read(cell, _left)
