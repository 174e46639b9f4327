"""The journal of a live run: every write that it makes, fenced by its lease.

A run keeps the head that it last wrote and the root of its state.  If other writers move the timeline, the
run's commits go on top of theirs, and an event says so where both wrote one path.

A `CommitDraft` collects the events and state changes of one commit, and what belongs to the same write:
transitions of calls, cells.  Each draft is built on the root of the one before it, so several can be staged
and written together: one durable write, one move of the head.

If a write is refused because another process has the lease, the run is over in this process: `Lost`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec
from msgspec import UnsetType

from perdure.engines.contract import CellWrite, Fence, Hold, Move, Write
from perdure.errors import Conflict, Moved
from perdure.history import reader, writer
from perdure.history.artifacts import Staged
from perdure.history.changes.patch_builder import Ops, Patched
from perdure.history.revisions import Exactly
from perdure.history.space import Space
from perdure.history.writer import OnConflict, Proposal
from perdure.ledger import calls, effect_limit, snapshot
from perdure.ledger.calls import CallTransition, VersionedCall
from perdure.model.commit import NO_PATCH, Act, LedgerRead, Reads, RunMeta, StateAction
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import AgentChanged, Event, MemoryWritten, MessageAppended
from perdure.model.head import Head
from perdure.model.limits import Limits
from perdure.model.message import Message, check_message, encode_message, plain_body
from perdure.model.run import Usage
from perdure.providers.contract import Loss, encode_losses
from perdure.runtime.session import lease as leases
from perdure.runtime.session.broadcast import Feed
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.lease import Lease, Lost
from perdure.runtime.session.lease_keeper import HeldLease

__all__ = ["Journal", "CommitDraft", "appended", "vendor_of"]


class CommitDraft:
    """Collects what one commit will hold."""

    __slots__ = (
        "_adopted",
        "_ops",
        "_space",
        "actions",
        "cells",
        "events",
        "forced",
        "meta",
        "objects",
        "reason",
        "root",
    )

    def __init__(self, space: Space, root: Digest, reason: str, *, forced: bool = False) -> None:
        """Start on the state of that root; `forced`: it is committed even if it is empty."""
        self._space = space
        self.reason, self.forced = reason, forced
        self.root = root  # of the state that it starts on
        self._ops: Ops | None = None
        self._adopted: Patched | None = None
        self.events: list[Event] = []
        self.objects: list[Object] = []
        self.cells: list[CellWrite] = []
        self.actions: list[StateAction] = []
        self.meta: RunMeta | None = None

    def __bool__(self) -> bool:
        """True if there is anything to commit."""
        return self.forced or bool(self.events) or bool(self._ops) or self._adopted is not None

    @property
    def ops(self) -> Ops:
        """The changes of the state, to which callers add."""
        assert self._adopted is None, "a patch that was adopted is complete"
        if self._ops is None:
            self._ops = Ops(self._space, self.root)
        return self._ops

    @property
    def is_untouched(self) -> bool:
        """True if its state was neither read nor changed."""
        return self._ops is None and self._adopted is None

    def adopt(self, patched: Patched) -> None:
        """Use a patch that was made on the root of this draft; the patch's values are stored elsewhere."""
        assert self.is_untouched
        self._adopted = patched

    def say(
        self,
        message: Message,
        *,
        id: str,
        backend: str | None = None,
        usage: Usage | None = None,
        losses: Sequence[Loss] = (),
        context: Digest | None = None,
        cost: float | None = None,
    ) -> None:
        """Append a message to the conversation.

        `losses` are those of the step in which a model wrote it, `context` is the recipe of what it was shown, and
        `cost` what the step cost in US dollars, None if that is not known.
        """
        event, objects = appended(message, id=id, backend=backend, usage=usage, context=context)
        if losses:
            kept = self.keep(encode_losses(losses))
            event = msgspec.structs.replace(event, losses=kept.digest)
        if cost is not None:
            event = msgspec.structs.replace(event, cost=cost)
        self.events.append(event)
        self.objects += objects

    def keep(self, body: bytes) -> Object:
        """Store bytes with this commit; return the object that names them."""
        kept = Object.of(Kind.BODY, body)
        self.objects.append(kept)
        return kept

    def hold(self, staged: Iterable[Staged]) -> None:
        """Publish artifacts with this commit, which names them."""
        for each in staged:
            self.objects += each.objects
            self.cells += each.cells

    def act(self, name: str, source: str) -> None:
        """Name the intent behind the changes of the state."""
        self.actions.append(StateAction(name, source))

    def extend(self, events: Iterable[Event]) -> None:
        self.events.extend(events)

    def proposal(
        self, *, run: str, parent_run: str | None, reads: Reads, ledger: LedgerRead | None
    ) -> Proposal:
        patched, objects, cells = None, tuple(self.objects), tuple(self.cells)
        if self._ops is not None or self._adopted is not None:  # most commits of a run change no state
            patched = self._patched()
            objects, cells = (*objects, *patched.objects), (*cells, *patched.cells)
        return Proposal(
            reason=self.reason,
            root=self.root if patched is None else patched.root,
            patch=NO_PATCH if patched is None else patched.patch,
            events=tuple(self.events),
            objects=objects,
            cells=cells,
            outside=reads,
            ledger=ledger,
            run=run,
            parent_run=parent_run,
            run_meta=self.meta,
            state_actions=tuple(self.actions),
        )

    def _patched(self) -> Patched:
        if self._ops is not None:
            return self._ops.finish()
        whole = self._adopted
        assert whole is not None, "a patch was made or adopted"
        nodes = tuple([each for each in whole.objects if each.kind is Kind.NODE])
        return Patched(patch=whole.patch, root=whole.root, objects=nodes)


def appended(
    message: Message,
    *,
    id: str,
    backend: str | None = None,
    usage: Usage | None = None,
    context: Digest | None = None,
) -> tuple[MessageAppended, tuple[Object, ...]]:
    """Return the event that appends a message, and the bodies that hold it."""
    encoded = plain_body(message)
    if encoded is None:
        check_message(message)
        encoded = encode_message(message)
    body = Object.of(Kind.BODY, encoded)
    vendor = None if message.vendor_metadata is None else vendor_of(message)
    provider, _, model = backend.partition(":") if backend else ("", "", "")
    event = MessageAppended(
        id=id,
        role=message.role,
        body=body.digest,
        size=len(body.body),
        vendor=vendor.digest if vendor else None,
        vendor_size=len(vendor.body) if vendor else 0,
        provider=provider or None,
        model=model or None,
        usage=usage,
        context=context,
    )
    return event, (body, vendor) if vendor else (body,)


def vendor_of(message: Message) -> Object | None:
    """Return the body of what only the vendor can read; None if there is nothing."""
    if message.vendor_metadata is None:
        return None
    return Object.of(Kind.BODY, message.vendor_metadata.encode("utf-8", "surrogatepass"))


_APPLIED_LATER = frozenset({AgentChanged, MemoryWritten})  # events whose changes `env.finish` applies
_EVENTS_MAX = 1_000_000
_ROUND_BYTES_MAX = 1 << 30


class Journal:
    """Writes the commits and ledger entries of one run."""

    def __init__(
        self, env: RunEnvironment, run: str, head: Head, feed: Feed, *, parent_run: str | None = None
    ) -> None:
        """Start on the head that was read."""
        self.env, self.run, self.feed = env, run, feed
        self.head = head  # of the timeline that is written to
        self.root = env.space.root_at(head.commit)  # of the state after everything that is staged
        self.space = _roomy(env.space)  # the store refuses its writes once the lease is lost
        self.lease: Lease | None = None  # None: it is not taken yet, or never will be
        self.held_lease: HeldLease | None = None  # the same while this process renews it
        self._parent_run = parent_run
        self._reads: Reads | None = None
        self.memory_root: Digest | None = (
            None  # of the memory that the next commit has read; None: it has read none
        )
        self._ledger: LedgerRead | None = None
        self._ledger_from = 0  # where the ledger ended when the run began
        self._staged: list[Proposal] = []
        self._pid = os.getpid()
        feed.begin(head.commit)

    def start_with(self, agent: Hold | UnsetType | None, ledger: LedgerRead) -> None:
        """Take over what was read with the head: the head of the agent's map, and the end of the ledger."""
        self._reads = self.env.standing.sight(self.head, agent).reads
        self._ledger, self._ledger_from = ledger, ledger.position

    def hold(self, lease: Lease) -> None:
        """Fence every further write by that lease."""
        self.lease = lease
        fences = (*self.env.space.fences, leases.fence(lease))
        self.space = msgspec.structs.replace(self.space, fences=fences)

    def beside(self, revision: int, run: str) -> None:
        """Write as a step of `run`, and only as long as the lease's cell is at that revision."""
        fence = Fence(leases.LEASE + self.head.timeline, revision)
        fences = (*self.env.space.fences, fence)
        self.run, self.space = run, msgspec.structs.replace(self.space, fences=fences)

    def still_ours(self) -> bool:
        """True if the timeline is this run's for certain at this moment; costs no look at the store.

        A writer that takes no lease is never refused here: the fences of its writes decide.
        """
        if self.lease is None:
            return True
        return self.held_lease is not None and self.held_lease.still_ours()

    def count_due(self) -> LedgerRead | None:
        """Return the end of the ledger if this run has taken it past a multiple of `ENTRIES_MAX` entries; else None."""
        end, size = self._ledger, snapshot.ENTRIES_MAX
        return None if end is None or end.position // size == self._ledger_from // size else end

    def draft(self, reason: str, *, forced: bool = False) -> CommitDraft:
        """Start a commit on top of what is staged."""
        return CommitDraft(self.space, self.root, reason, forced=forced)

    def stage(self, draft: CommitDraft) -> None:
        """Stage a draft for the next write; an empty draft is left out."""
        if not draft.events and not draft:
            return
        reads = self._reads or self.reads
        if self.memory_root is not None:
            reads = msgspec.structs.replace(reads, memory_root=self.memory_root)
        proposal = draft.proposal(run=self.run, parent_run=self._parent_run, reads=reads, ledger=self._ledger)
        self.root = proposal.root
        self._staged.append(proposal)

    def write(
        self,
        *,
        op_id: str | None = None,
        intent: Digest | None = None,
        cells: Sequence[CellWrite] = (),
        transitions: Sequence[CallTransition] = (),
        also: tuple[tuple[str, Head | None], ...] = (),
        on_conflict: OnConflict = "cover",
    ) -> bool:
        """Make everything that is staged durable, at once, with these cells and transitions.

        False: there was nothing to write, or another writer has made the write of that op_id before.
        Raises `Lost` if another process has the lease, `StaleHead` if the timeline was moved to another commit,
        and `Conflict` if a cell or call has changed: then everything stays staged, and can be written otherwise.
        """
        if not self._staged:
            return False
        if self._pid != os.getpid():
            self._check_process()
        staged = self._staged
        if cells or transitions:
            staged = [*staged[:-1], _with(staged[-1], cells, transitions)]
        try:
            done = writer.commit(
                self.space,
                self.head,
                *staged,
                op_id=op_id or self.space.ids(),
                intent=intent,
                on_conflict=on_conflict,
                repeatable=intent is not None,
                entries=tuple([transition.entry for transition in transitions]) if transitions else (),
                also=also,
            )
        except Conflict as conflict:
            raise self._lost(conflict) from conflict
        self._staged = []
        if transitions:
            self.env.store_runtime.imports.advance(self.space, done.receipt.position, len(transitions))
        self._moved(done, staged)
        return done.step is not None

    def post(self, *transitions: CallTransition) -> tuple[VersionedCall, ...]:
        """Write to the ledger alone, and move no head."""
        self._check_process()
        try:
            return calls.post(self.space, transitions)
        except Conflict as conflict:
            raise self._lost(conflict) from conflict

    def branch(self, name: str) -> None:
        """Fork a timeline at the run's last commit, and write there from here on."""
        commit = self.head.commit
        assert commit is not None, "a run has committed its input"
        source, at = self.head.timeline, Exactly(commit)
        effect_limit.fork(self.space, source, name, at, effect_max=None, op_id=f"begin:{name}")
        self.head = reader.head_of(self.space, name)

    def lead(self, other: Head, *, cells: Sequence[CellWrite]) -> None:
        """Move the head of another timeline to the run's last commit, and write these cells."""
        self._check_process()
        move = Move(act=Act.COMMIT, timeline=other.timeline, expected=other, to=self.head.commit)
        write = Write(
            space=self.space.name,
            op_id=self.space.ids(),
            intent=digest_of(Kind.BODY, f"lead {other.timeline} {self.head.commit}".encode()),
            fences=self.space.fences,
            moves=(move,),
            cells=tuple(cells),
        )
        try:
            writer.submit(self.space, write, other)
        except Conflict as conflict:
            raise self._lost(conflict) from conflict

    @property
    def is_staged(self) -> bool:
        """True if anything waits to be written."""
        return bool(self._staged)

    def stand_on(self, timeline: str) -> None:
        """Go on from the head of a timeline."""
        self.head = reader.head_of(self.space, timeline)
        self.root = self.space.root_at(self.head.commit)

    def write_onto(self, head: Head, before: Sequence[Proposal], *, cells: Sequence[CellWrite]) -> None:
        """Write `before` and everything that is staged on top of a timeline that others have moved."""
        old_head, staged = self.head, self._staged
        self.head, self._staged = head, [*before, *staged]
        try:
            self.write(cells=cells)
        except Conflict:
            self.head, self._staged = old_head, staged
            raise

    def unstage_last(self) -> None:
        """Discard the draft that was staged last."""
        self._staged.pop()
        self.root = self._staged[-1].root if self._staged else self.space.root_at(self.head.commit)

    def discard(self) -> None:
        """Discard what is staged because its write was refused, so that certainly nothing was written.

        The head stays as it was read, so that later commits of other writers are still recognised as theirs.
        """
        self._staged = []
        self.root = self.space.root_at(self.head.commit)

    def unstage(self) -> None:
        """Discard what is staged, and read the head again."""
        self._staged = []
        self.stand_on(self.head.timeline)  # a write whose outcome was unknown may have been applied

    def _moved(self, done: writer.CommitOutcome, staged: list[Proposal]) -> None:
        self.head = done.head
        self.root = done.step.commit.root if done.step is not None else self.space.root_at(done.head.commit)
        if done.receipt.position:
            self._ledger = LedgerRead(done.receipt.position, done.receipt.chain)
        self.memory_root = None
        is_applied_later = spoken = False
        for each in staged:
            for event in each.events:
                if type(event) is MessageAppended:
                    spoken = spoken or event.role == "assistant"
                elif type(event) in _APPLIED_LATER:
                    is_applied_later = True
        if is_applied_later:
            self._reads = None
            self.env.finish()
        self.feed.committed(done.head.commit, spoken=spoken)

    @property
    def has_sight(self) -> bool:
        """True if `reads` is known without a read of the store."""
        return self._reads is not None

    def look_around(self) -> None:
        """Read `reads` from the store."""
        self._reads = self.reads

    @property
    def reads(self) -> Reads:
        """What the run sees outside its thread."""
        if self._reads is None:
            self._reads = self.env.standing.sight(self.head).reads
        return self._reads

    def _check_process(self) -> None:
        """Raise `Lost` in a forked child: the lease is the parent's, and its fence would let both write."""
        if self._pid != os.getpid() and self.lease is not None:
            raise Lost(self.lease)

    def _lost(self, conflict: Conflict) -> Conflict:
        """Return the conflict, or `Lost` if the lease is the reason."""
        if self.lease is None or not isinstance(conflict, Moved):
            return conflict
        cell = self.space.engine.cell(self.space.name, leases.fence(self.lease).cell)
        return conflict if cell is not None and cell.revision == self.lease.epoch else Lost(self.lease)


def _roomy(space: Space) -> Space:
    """Return the space with higher limits: tools have run already, so their results must not be too much to record."""
    return msgspec.structs.replace(space, limits=_roomy_limits(space.limits))


@lru_cache(maxsize=16)
def _roomy_limits(limits: Limits) -> Limits:
    return msgspec.structs.replace(limits, write_events_max=_EVENTS_MAX, write_bytes_max=_ROUND_BYTES_MAX)


def _with(proposal: Proposal, cells: Sequence[CellWrite], transitions: Sequence[CallTransition]) -> Proposal:
    """Return the proposal with more cells and transitions in the same write."""
    objects: list[Object] = []
    together = [*proposal.cells, *cells]
    for transition in transitions:
        together += transition.cells
        objects += transition.objects
    return msgspec.structs.replace(
        proposal,
        cells=tuple(together),
        objects=(*objects, *proposal.objects) if objects else proposal.objects,
    )
