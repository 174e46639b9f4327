"""The journal of a live run: every write that it makes, fenced by its lease.

A run holds its own idea of the line: the head it last wrote and the root it stands on.  What
others write to the line meanwhile it goes on top of, and says so where both wrote one path.
Drafts are staged and written together: one durable write, one move of the head.

If a write is refused because the lease is another's now, the run is over here: `Lost`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from perdure.engines.contract import CellWrite, Fence, Move, Write
from perdure.errors import Conflict, Moved
from perdure.history import reader, writer
from perdure.history.refs import Exactly
from perdure.history.space import Space
from perdure.history.writer import OnConflict, Proposal
from perdure.ledger import bounds, calls
from perdure.ledger import lease as leases
from perdure.ledger.calls import Held, Posting
from perdure.ledger.lease import Lease, Lost
from perdure.model.commit import Act, LedgerRead, Reads
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import AgentChanged, Event, MemoryWritten, MessageAppended
from perdure.model.head import Head
from perdure.runtime.draft import Draft
from perdure.runtime.feed import Feed
from perdure.runtime.ground import Ground

__all__ = ["Journal"]

_HANDED_OVER = frozenset({AgentChanged, MemoryWritten})  # what is still to be applied elsewhere
_EVENTS_MAX = 1_000_000
_ROUND_BYTES_MAX = 1 << 30


class Journal:
    """What a run writes."""

    def __init__(
        self, ground: Ground, run: str, head: Head, feed: Feed, *, parent_run: str | None = None
    ) -> None:
        """Begin on the head that was read."""
        self.ground, self.run, self.feed = ground, run, feed
        self.head = head  # of the line that is written to
        self.root = ground.space.root_at(head.commit)  # after everything that is staged
        self._space = _roomy(ground.space)
        self.lease: Lease | None = None  # None: it is not taken yet
        self._parent_run = parent_run
        self._reads: Reads | None = None
        self.memory_root: Digest | None = None  # of the memory that the next commit rests on; None: on none
        self._ledger: LedgerRead | None = None
        self._staged: list[Proposal] = []
        self._pid = os.getpid()
        feed.begin(head.commit)

    @property
    def space(self) -> Space:
        """The thread's space, whose writes are refused once the lease is lost."""
        return self._space

    def hold(self, lease: Lease) -> None:
        """From here on every write needs that lease."""
        self.lease = lease
        fences = (*self.ground.space.fences, leases.fence(lease))
        self._space = msgspec.structs.replace(self._space, fences=fences)

    def beside(self, revision: int, run: str) -> None:
        """Write as a step of `run`, and only as long as the lease on the line is at that revision."""
        fence = Fence(leases.LEASE + self.head.timeline, revision)
        fences = (*self.ground.space.fences, fence)
        self.run, self._space = run, msgspec.structs.replace(self._space, fences=fences)

    def draft(self, reason: str, *, forced: bool = False) -> Draft:
        """A commit in the making, on top of what is staged."""
        return Draft(self._space, self.root, reason, forced=forced)

    def stage(self, draft: Draft) -> None:
        """Have a draft written with the next write; one without anything in it is left out."""
        if not draft:
            return
        proposal = draft.proposal(
            run=self.run, parent_run=self._parent_run, reads=self._read(), ledger=self._ledger
        )
        self.root = proposal.root
        self._staged.append(proposal)

    def write(
        self,
        *,
        op_id: str | None = None,
        intent: Digest | None = None,
        cells: Sequence[CellWrite] = (),
        postings: Sequence[Posting] = (),
        also: tuple[tuple[str, Head | None], ...] = (),
        on_conflict: OnConflict = "cover",
    ) -> bool:
        """Make everything that is staged durable, at once, with these cells and postings.

        False: there was nothing to write, or somebody else has made the write of that op_id before.
        Raises `Lost` if the lease is another's now, `StaleHead` if the line went another way, and
        `Conflict` if a cell or call did: then what is staged still is, and can be written otherwise.
        """
        if not self._staged:
            return False
        self._check_process()
        staged = [*self._staged[:-1], _with(self._staged[-1], cells, postings)]
        try:
            done = writer.commit(
                self._space,
                self.head,
                *staged,
                op_id=op_id or self._space.ids(),
                intent=intent,
                on_conflict=on_conflict,
                repeatable=intent is not None,
                entries=tuple([posting.entry for posting in postings]),
                also=also,
            )
        except Conflict as conflict:
            raise self._lost(conflict) from conflict
        self._staged = []
        self._moved(done, staged)
        return done.step is not None

    def post(self, *postings: Posting) -> tuple[Held, ...]:
        """Write to the ledger alone; no head moves."""
        self._check_process()
        try:
            return calls.post(self._space, postings)
        except Conflict as conflict:
            raise self._lost(conflict) from conflict

    def branch(self, name: str) -> None:
        """Begin a timeline where the run stands, and write there from here on."""
        commit = self.head.commit
        assert commit is not None, "a run has committed its input"
        source, at = self.head.timeline, Exactly(commit)
        bounds.fork(self._space, source, name, at, effect_max=None, op_id=f"begin:{name}")
        self.head = reader.head_of(self._space, name)

    def lead(self, other: Head, *, cells: Sequence[CellWrite]) -> None:
        """Let another line's head come to where the run stands, and write these cells."""
        self._check_process()
        move = Move(act=Act.COMMIT, timeline=other.timeline, expected=other, to=self.head.commit)
        write = Write(
            space=self._space.name,
            op_id=self._space.ids(),
            intent=digest_of(Kind.BODY, f"lead {other.timeline} {self.head.commit}".encode()),
            fences=self._space.fences,
            moves=(move,),
            cells=tuple(cells),
        )
        try:
            writer.submit(self._space, write, other)
        except Conflict as conflict:
            raise self._lost(conflict) from conflict

    @property
    def is_staged(self) -> bool:
        """Whether anything waits to be written."""
        return bool(self._staged)

    def stand_on(self, timeline: str) -> None:
        """Go on from another line whose head has come to the run's last commit."""
        self.head = reader.head_of(self._space, timeline)
        self.root = self._space.root_at(self.head.commit)

    def write_onto(self, head: Head, before: Sequence[Proposal], *, cells: Sequence[CellWrite]) -> None:
        """Write `before` and everything that is staged on top of a line that others have written to."""
        stood, staged = self.head, self._staged
        self.head, self._staged = head, [*before, *staged]
        try:
            self.write(cells=cells)
        except Conflict:
            self.head, self._staged = stood, staged
            raise

    def unstage_last(self) -> None:
        """Give up what was staged last."""
        self._staged.pop()
        self.root = self._staged[-1].root if self._staged else self._space.root_at(self.head.commit)

    def discard(self) -> None:
        """Give up what is staged because its write was refused, so that it is certain that nothing was written.

        The head stays as it was read: what others have written since is still seen as theirs.
        """
        self._staged = []
        self.root = self._space.root_at(self.head.commit)

    def unstage(self) -> None:
        """Give up what is staged."""
        self._staged = []
        self.stand_on(self.head.timeline)  # what was in doubt may have become true

    def _moved(self, done: writer.Committed, staged: list[Proposal]) -> None:
        self.head = done.head
        self.root = self._space.root_at(done.head.commit)
        if done.receipt.position:
            self._ledger = LedgerRead(done.receipt.position, done.receipt.chain)
        self.memory_root = None
        kinds = {type(event) for each in staged for event in each.events}
        if not kinds.isdisjoint(_HANDED_OVER):
            self._reads = None
            self.ground.finish()
        spoken = MessageAppended in kinds and any(
            [_is_spoken(event) for each in staged for event in each.events]
        )
        self.feed.committed(done.head.commit, spoken=spoken)

    @property
    def has_sight(self) -> bool:
        """Whether `reads` is known without a look at the store."""
        return self._reads is not None

    def look_around(self) -> None:
        """Read what `reads` says, once."""
        self._reads = self.reads

    @property
    def reads(self) -> Reads:
        """What lies outside the thread, as this run sees it."""
        if self._reads is None:
            self._reads = self.ground.standing.sight(self.head).reads
        return self._reads

    def _read(self) -> Reads:
        """What lies outside the thread, with the memory that was looked at."""
        if self.memory_root is None:
            return self.reads
        return msgspec.structs.replace(self.reads, memory_root=self.memory_root)

    def _check_process(self) -> None:
        """Raise `Lost` in a forked child: the lease names the parent, and its fence would let both write."""
        if self._pid != os.getpid() and self.lease is not None:
            raise Lost(self.lease)

    def _lost(self, conflict: Conflict) -> Conflict:
        """The same conflict, or `Lost` if the lease is the reason."""
        if self.lease is None or not isinstance(conflict, Moved):
            return conflict
        cell = self._space.engine.cell(self._space.name, leases.fence(self.lease).cell)
        return conflict if cell is not None and cell.revision == self.lease.epoch else Lost(self.lease)


def _is_spoken(event: Event) -> bool:
    return type(event) is MessageAppended and event.role == "assistant"


def _roomy(space: Space) -> Space:
    """The space with room for whatever tools have done by now: what happened must not be too much to record."""
    limits = msgspec.structs.replace(
        space.limits, write_events_max=_EVENTS_MAX, write_bytes_max=_ROUND_BYTES_MAX
    )
    return msgspec.structs.replace(space, limits=limits)


def _with(proposal: Proposal, cells: Sequence[CellWrite], postings: Sequence[Posting]) -> Proposal:
    """The proposal with more that becomes true in the same write."""
    if not cells and not postings:
        return proposal
    posted = [cell for posting in postings for cell in posting.cells]
    brought = [each for posting in postings for each in posting.objects]
    return msgspec.structs.replace(
        proposal, cells=(*proposal.cells, *cells, *posted), objects=(*brought, *proposal.objects)
    )
