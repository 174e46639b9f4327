"""The engine contract: one way to write, a few ways to read, no optional methods.

Everything is immutable except heads and cells.  `apply` makes a `Write` true as a whole
or not at all, and durable before it returns.  A write is pure data about one *space* (a
thread, an agent, an owner's memory, the store's own): no callbacks, so that it can be
sent to a database in one round trip, or queued with others and committed as a group.

What can go wrong is said by each law below.  An error at the moment of commitment is
unknown, not failed: it is `InDoubt`, and the same write with the same `op_id` settles it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from perdure.model.commit import Act, Changeset, Commit, LedgerRead, MoveRecord
from perdure.model.digest import Digest, Object
from perdure.model.head import Head

__all__ = [
    "GC",
    "Cell",
    "CellWrite",
    "Engine",
    "Entry",
    "Fact",
    "Fence",
    "Hold",
    "Instant",
    "Move",
    "Place",
    "Rebuilt",
    "Receipt",
    "Recorded",
    "Step",
    "Write",
]

GC = "gc"  # the cell of every space whose revision counts how often something was forgotten


class Move(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A head's wanted move.  Good only if the timeline still stands exactly where `expected` says.

    `expected=None` begins a timeline that must not exist, at version 0.  `main` exists in
    every space from the start, at version 0 with nothing committed.
    """

    act: Act
    timeline: str
    expected: Head | None
    to: Digest | None
    seal: bool = False  # from this move on the timeline takes no more moves


class Fence(msgspec.Struct, frozen=True, gc=False):
    """A cell must still be at this revision (0: it must never have been written)."""

    cell: str
    revision: int


class CellWrite(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A cell's wanted value.  Good only if the cell is still at `expected` (0: never written)."""

    name: str
    expected: int
    value: bytes | None  # UTF-8 text.  None: empty the cell; its revision goes on counting
    listed: bool = False  # findable across spaces, by `listed`


class Write(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that becomes true at once in one space.

    `objects` holds what is new: values, nodes, bodies, and for each commit its changeset
    and then the commit itself, parents before children.  An object that is already there
    is no error.  `op_id` names the write for ever; `intent` is the digest of what it means
    to do, so that a repetition can be told from a reuse.
    """

    space: str
    op_id: str
    intent: Digest
    fences: tuple[Fence, ...] = ()
    objects: tuple[Object, ...] = ()
    moves: tuple[Move, ...] = ()
    cells: tuple[CellWrite, ...] = ()
    entries: tuple[bytes, ...] = ()  # JSON texts for the space's ledger
    is_new: bool = False  # the op_id was made up for this write: an engine need not look for an earlier one


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a write made true; the same each time the write is repeated."""

    op_id: str
    heads: tuple[Head, ...] = ()  # in the order of the moves
    revisions: tuple[int, ...] = ()  # in the order of the cells
    position: int = 0  # of the last entry; entries of one write are consecutive
    chain: Digest | None = None  # the ledger's chain digest after the last entry


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A write that became true earlier: its intent and its receipt."""

    intent: Digest
    receipt: Receipt


class Hold(msgspec.Struct, frozen=True, gc=False):
    """Where a timeline stands, and the digest of the move that brought it there."""

    head: Head
    sealed: bool = False
    move: Digest | None = None  # None: it has never moved


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a commit stands on its line of first parents; derived, not hashed."""

    depth: int
    turn: int  # from 1; commits of one run share a turn
    sequence: int  # events on the line before this commit


class Step(msgspec.Struct, frozen=True, gc=False):
    """One commit of a history, with what happened in it and where it stands."""

    digest: Digest
    commit: Commit
    changeset: Changeset
    place: Place


class Cell(msgspec.Struct, frozen=True, gc=False):
    """A small named record with a revision that only grows."""

    space: str
    name: str
    revision: int
    value: bytes | None  # None: emptied
    position: int = 0  # of the last ledger entry of the write that wrote it; 0: that write had none


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """A cell as a repair writes it, whatever is stored under its name."""

    name: str
    value: bytes
    position: int = 0  # of the ledger entry that it follows from
    listed: bool = False


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One line of a space's ledger."""

    position: int  # from 1, without gaps
    chain: Digest  # over this entry and the chain before it
    body: bytes


class Fact(msgspec.Struct, frozen=True, gc=False):
    """One stored thing as `scan` found it: an object, or what is wrong with it."""

    kind: str
    digest: Digest | None  # None where not even that could be read
    object: Object | None  # None: forgotten, or damaged
    forgotten: str | None = None  # why, where a policy removed it
    fault: str | None = None  # what is wrong, where it is damaged


class Instant(msgspec.Struct, frozen=True):
    """A moment on a named clock.  It has nothing to do with the time of day."""

    clock: str
    at: int  # µs


class Engine(Protocol):
    """Where objects, heads, cells and ledgers live.  Thread-safe; safe to use from several processes."""

    def apply(self, write: Write) -> Receipt:
        """Make `write` true, all of it or none of it, and durable before returning.

        Looked up by op_id first: the same intent again returns the original receipt and
        writes nothing; another intent raises `OpReused`; a tombstone raises `Forgotten`.
        Then, in this order, raises and writes nothing: `Moved` if a fence or a cell is
        at another revision, `Sealed` if a timeline is sealed, `StaleHead` if a head does not
        stand where its move read it (`Conflict` if a timeline to begin exists, `NotFound` if
        one to move does not), `NotFound` if a move goes to a commit this space does not have
        or a commit names a parent that it does not have or comes without its changeset (roots
        are checked by `verify`, not here).  Fences, cells and moves are each looked at in the
        order given.
        The version rises by one whichever way the head moves; a move records its act, op_id
        and the move before it.  A forgotten object that is written again is there again.
        Raises `Invalid` if one timeline or cell is written twice, or a cell or an entry is
        not UTF-8 text, or a commit counts its depth wrongly.
        Raises `Corrupt`, having written nothing, if a cell that it reads is damaged, or if the
        space is not as the newest write left it (see `check`).
        Raises `Unavailable` if the store cannot be written now, `InDoubt` if the outcome
        is not known.
        """
        ...

    def recorded(self, space: str, op_id: str) -> Recorded | None:
        """The write of that op_id, or None if it never became true.

        Raises `Forgotten` if only its tombstone is left, `InDoubt` if it cannot be told.
        """
        ...

    def objects(self, space: str, digests: Sequence[Digest]) -> Sequence[Object]:
        """The objects of these digests, in order, each checked against its digest.

        Raises `NotFound`, `Forgotten` or `Corrupt`, naming the first that cannot be given.
        Objects of another space are not found.
        """
        ...

    def missing(self, space: str, digests: Sequence[Digest]) -> Sequence[Digest]:
        """Those of `digests` that the space never had.  Forgotten ones are not missing."""
        ...

    def steps(self, space: str, at: Digest, *, skip: int = 0, limit: int) -> Sequence[Step]:
        """Commits from `at` backwards along first parents, newest first, after skipping `skip`.

        Costs what it returns, however long the history is and however many are skipped
        (logarithmic).  Raises `NotFound` if the space has no commit `at`.
        """
        ...

    def turn(self, space: str, at: Digest, turn: int) -> Step | None:
        """The last commit of that turn on the line that ends at `at`; None if it has no such turn."""
        ...

    def labelled(self, space: str, label: str) -> Sequence[Digest]:
        """The commits that a message id names (that appended it) or a run id (its first), oldest first."""
        ...

    def commits(self, space: str, prefix: str, *, limit: int) -> Sequence[Digest]:
        """Commits of the space whose digest starts with `prefix` (hex), sorted."""
        ...

    def hold(self, space: str, timeline: str) -> Hold | None:
        """Where the timeline stands, checked against its last move; None if there is no such timeline.

        Raises `Corrupt` if the head is not where its last move left it.
        """
        ...

    def holds(self, space: str, *, after: str = "", limit: int) -> Sequence[Hold]:
        """Timelines by name, those after `after`.  `main` is listed once it has moved."""
        ...

    def moves(
        self, space: str, timeline: str, *, before: int | None = None, limit: int
    ) -> Sequence[MoveRecord]:
        """Recorded moves, newest first, with versions below `before` (None: all).

        A timeline that was begun has its first move at version 0.
        """
        ...

    def cell(self, space: str, name: str) -> Cell | None:
        """The cell, or None if it was never written.

        A cell is stored with a digest over its space, name, revision, value, position and whether
        it is listed (`rules.cell_digest`).  Raises `Corrupt`, naming the cell, if it does not match.
        """
        ...

    def cells(self, space: str, *, prefix: str = "", after: str = "", limit: int) -> Sequence[Cell]:
        """Cells that are not empty, by name, those after `after`; each is checked as `cell` does."""
        ...

    def listed(self, *, prefix: str, after: tuple[str, str] = ("", ""), limit: int) -> Sequence[Cell]:
        """Listed, not empty cells of every space, by (name, space), those after `after`, each checked."""
        ...

    def entries(self, space: str, *, after: int = 0, limit: int) -> Sequence[Entry]:
        """The ledger from the position after `after`, each checked against the chain."""
        ...

    def ledger(self, space: str) -> LedgerRead:
        """The position and the chain of the newest ledger entry; position 0 if there is none."""
        ...

    def check(self, space: str, *, again: bool = False) -> None:
        """Compare everything of the space that can change with what its newest write left.

        Each write leaves a *seal*: a sum over the digests of all cells, the moves of all heads and
        the end of the ledger (`sealed_cell` and its neighbours in `rules`).  Raises `Corrupt` if the sum of what is stored is
        another: something was edited, removed, or put back to an older version.  An engine may
        compare once for each opening of the store, unless it is to do so `again`, and then from the
        bytes of every cell; `apply` compares before it writes.
        """
        ...

    def reseal(self, space: str, cells: Sequence[Rebuilt] = ()) -> None:
        """Write `cells`, each one revision further, and take the rest of the space for true as it is stored.

        Only a repair calls this, after it has verified what it keeps.  Cells whose digest does not
        match get the digest of what they hold.  Raises `Corrupt`, having changed nothing, unless the
        ledger ends where the newest write that added to it left it.
        """
        ...

    def spaces(self, *, after: str = "", limit: int) -> Sequence[str]:
        """Spaces that were ever written, by name."""
        ...

    def scan(self, space: str, *, after: int = 0, limit: int) -> tuple[Sequence[Fact], int | None]:
        """Everything stored for a space, in storage order, and the cursor to go on with (None: the end).

        Never raises for damaged data: the fault is in the `Fact`.  Memory is bounded by `limit`.
        """
        ...

    def standing(self, space: str) -> int:
        """A number that grows with every write that becomes true in the space; 0 if there was none.

        Whoever decides what may be forgotten reads it first.  Forgetting is no write.
        """
        ...

    def forget(self, space: str, digests: Sequence[Digest], *, why: str, standing: int) -> int:
        """Replace the bytes of these objects by tombstones, durably; the number of bytes set free.

        Raises `Conflict`, having forgotten nothing, if anything was written to the space since
        `standing` was read: it may need them.  Afterwards reading one raises `Forgotten(why)`.
        Their digests stay.  If anything went, the cell `gc` is one revision further, without a
        value, so that a fence of whoever read before holds no longer.  Nothing else changes.
        What is not there, or forgotten already, is left as it is.  Raises `Invalid`, having
        forgotten nothing, for a commit, a changeset or a move: the chain is proved by them.
        """
        ...

    def drop(self, space: str, *, why: str) -> int:
        """Forget a whole space: objects, heads, cells and ledger; the number of bytes set free.

        Its op_ids stay as tombstones: repeating one of its writes raises `Forgotten`.  Its cells
        are emptied, each by one more revision, so that a fence from before holds no longer.
        """
        ...

    def instant(self) -> Instant:
        """Now, on a clock that never goes back and goes on while nobody runs.

        All who use the store read one clock as long as it has the same name.  Instants of
        another clock cannot be compared: whatever was dated on it is over.
        """
        ...

    def holder(self) -> str:
        """The name of this use of the store: one for each opening and process, never given twice.

        It is marked before it is returned, and the mark ends with the process, whatever ends
        that.  It also ends with `close`, so whoever closes has nothing under way.  A forked
        child has a name of its own and does not keep its parent's mark alive.  Raises
        `Unavailable` if the store cannot be written.
        """
        ...

    def gone(self, holder: str) -> bool:
        """Whether it is proven that nobody uses the store under that name, and nobody will.

        True as soon as the process has ended.  A process that is stopped, or cannot be seen, is
        not gone; nor is whoever asks, nor anything that cannot be a name of this engine.
        """
        ...

    def backup(self, path: Path) -> None:
        """Write a consistent copy of the store to a new file while others write.

        Raises `Conflict` if the file exists, `Unsupported` where an engine has no files.
        """
        ...

    def facts(self) -> dict[str, str | int]:
        """What `doctor` shows: kind, place, versions, settings, sizes."""
        ...

    def close(self) -> None:
        """Release everything.  A closed engine raises `Unavailable`; closing again is no error."""
        ...
