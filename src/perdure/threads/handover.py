"""Handing over: one thread's patch for its agent's map, applied where that map stands now.

The map may have moved since the thread read it.  The ops are then applied on top; where
somebody else has changed the same path meanwhile, the commit says so in a `conflict` event.
"""

from __future__ import annotations

from perdure.engines.contract import Move, Step, Write
from perdure.errors import Conflict, StaleHead, Unavailable
from perdure.history import artifacts, generation, reapplying, writer
from perdure.history.patching import Ops
from perdure.history.reapplying import Source, reapply
from perdure.history.space import Space
from perdure.history.tree import EMPTY
from perdure.history.values import Kept
from perdure.history.writer import Proposal
from perdure.model import canonical
from perdure.model.commit import Act
from perdure.model.digest import Kind, Object, digest_of
from perdure.model.event import AgentChanged
from perdure.model.head import Head
from perdure.model.patch import Patch, Stored, decode_patch

__all__ = ["deliver", "encode_patch"]

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
        generation.check_state(agent, move.to)
        write = Write(
            space=agent.name, op_id=f"begin:{line}", intent=intent, fences=agent.fences, moves=(move,)
        )
        return agent.engine.apply(write).heads[0]

    try:
        return generation.fenced(agent, begun)
    except Conflict:
        hold = agent.engine.hold(agent.name, line)
        if hold is None:
            raise  # it was not that somebody else has begun the line
        return hold.head


def _proposal(thread: Space, agent: Space, step: Step, event: AgentChanged, head: Head) -> Proposal:
    patch = decode_patch(thread.body(event.patch))
    root = agent.root_at(head.commit)
    covered = list(reapplying.covered(agent, step.commit.reads.agent_root or EMPTY, root, patch))
    ops = Ops(agent, root)
    source = Source(lambda stored: _kept(thread, agent, stored), thread.body)
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


def _kept(thread: Space, agent: Space, stored: Stored) -> Kept:
    """A value of the thread's space, to be kept in the agent's; raises `NotFound` for one between two ops of a patch."""
    found = thread.engine.objects(thread.name, (stored.value,))[0]
    if found.kind is not Kind.ARTIFACT:
        return Kept(stored, (found,), body=found.body)  # the next op may edit it before it is written
    staged = artifacts.stage(agent, artifacts.get(thread, stored.value), media_type=stored.media_type)
    return Kept(stored, staged.objects, staged.cells)
