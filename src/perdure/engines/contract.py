"""The engine contract: one way to write, a few ways to read, no optional methods.

Everything is immutable except heads and cells.  `apply` makes a `Write` true as a whole
or not at all, and durable before it returns.  A write is pure data about one *space* (a
thread, an agent, an owner's memory, the store's own): no callbacks, so that it can be
sent to a database in one round trip, or queued with others and committed as a group.

Each law below says what can go wrong.  An error at the moment of commitment is
unknown, not failed: it is `InDoubt`, and the same write with the same `op_id` settles it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any, Protocol, TypeAlias

import msgspec

from perdure.model.commit import Act, Changeset, Commit, CommitEvents, LedgerRead, MoveRecord
from perdure.model.digest import Digest, Object
from perdure.model.head import Head

__all__ = [
    "GC",
    "Answer",
    "Buried",
    "Cell",
    "CellOf",
    "CellWrite",
    "Engine",
    "LedgerEntry",
    "Fact",
    "Fence",
    "HeadOf",
    "Hold",
    "Instant",
    "LabelOf",
    "Labels",
    "LedgerOf",
    "Move",
    "OpOf",
    "Place",
    "Question",
    "Rebuilt",
    "Receipt",
    "Recorded",
    "Replay",
    "Step",
    "Write",
    "Written",
    "time_of_day",
]

GC = "gc"  # the cell of every space whose revision counts how often something was forgotten


class Move(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A move of a head that a writer asks for.  It is good only if the timeline is still exactly at `expected`.

    `expected=None` begins a timeline that must not exist, at version 0.  `main` exists in
    every space from the start, at version 0 with nothing committed.

    A writer that knows the move before this one gives its digest as `previous`.  The record of a move is hashed
    over it, so an engine can then make the record before it asks the store.
    """

    act: Act
    timeline: str
    expected: Head | None
    to: Digest | None
    seal: bool = False  # from this move on the timeline takes no more moves
    previous: Digest | None = None  # of the timeline's last move; None: the writer does not say
    # When it was asked for, µs since 1970, UTC; None: the commit that it leads to says it.
    at: int | None = None
    author: str | None = None  # who asked for it, where that was said


class Fence(msgspec.Struct, frozen=True, gc=False):
    """A cell must still be at this revision (0: it must never have been written)."""

    cell: str
    revision: int


class CellWrite(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A new value for a cell.  It is good only if the cell is still at `expected` (0: never written)."""

    name: str
    expected: int
    value: bytes | None  # UTF-8 text.  None: empty the cell; its revision goes on counting
    listed: bool = False  # findable across spaces, by `listed`


class Write(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that becomes true at once in one space.

    `objects` holds what is new: values, nodes, bodies, and for each commit its changeset
    and then the commit itself, parents before children.  An object that is already there
    is no error.  `op_id` names the write for ever; `intent` is the digest of what it means
    to do, so that the engine can distinguish a repetition from a reuse.
    """

    space: str
    op_id: str
    intent: Digest
    fences: tuple[Fence, ...] = ()
    objects: tuple[Object, ...] = ()
    moves: tuple[Move, ...] = ()
    cells: tuple[CellWrite, ...] = ()
    entries: tuple[bytes, ...] = ()  # JSON texts for the space's ledger
    is_new: bool = False  # the op_id was created for this write: an engine need not look for an earlier one


class Buried(Object, frozen=True, gc=False):
    """What is left of an object that was forgotten in another store: its digest and why.  It has no bytes."""

    why: str = ""


class Replay(Write, frozen=True, kw_only=True, gc=False):
    """A write that became true in another store, for the same place in the history of the same space.

    It has no fences and no cells: `reseal` writes the cells once all writes of the space are replayed.  Among
    its objects may be `Buried` ones.
    """

    revisions: tuple[int, ...] = ()  # for the receipt


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
    """The head of a timeline, and the digest of the move that brought it there."""

    head: Head
    sealed: bool = False
    move: Digest | None = None  # None: it has never moved


class Place(msgspec.Struct, frozen=True, gc=False):
    """The place of a commit on its line of first parents; derived, not hashed."""

    depth: int
    turn: int  # from 1; commits of one run share a turn
    sequence: int  # events on the line before this commit


class Step(msgspec.Struct, frozen=True, gc=False):
    """One commit of a history, with its changeset and its place."""

    digest: Digest
    commit: Commit
    changeset: Changeset
    place: Place
    bodies: Mapping[Digest, bytes] = {}  # those that are stored with it, where the reader asked for them

    @property
    def turn_number(self) -> int:
        """The number of its message, or of the message before it; 0 before the first."""
        return self.place.turn - self.commit.unnumbered

    def as_events(self) -> CommitEvents:
        """Return its events, and of the commit what a transcript shows."""
        commit, events = self.commit, self.changeset.events
        parent, run = commit.first_parent, commit.run
        return CommitEvents(
            self.digest, parent, commit.thread, commit.root, commit.at, run, events, self.bodies
        )


class Cell(msgspec.Struct, frozen=True, gc=False):
    """A small named record with a revision that only grows."""

    space: str
    name: str
    revision: int
    value: bytes | None  # None: emptied
    position: int = 0  # of the last ledger entry of the write that wrote it; 0: that write had none


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """A cell as a repair or a copy writes it, whatever is stored under its name."""

    name: str
    value: bytes | None  # None: emptied
    position: int = 0  # of the ledger entry that it follows from
    listed: bool = False
    revision: int = 0  # 0: one further than the revision that is stored


class LedgerEntry(msgspec.Struct, frozen=True, gc=False):
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
    audited: bool = (
        False  # the engine also compared what it derives from the object (its place, its keys) with it
    )


class Written(msgspec.Struct, frozen=True, gc=False):
    """One write of a space as `writes` found it."""

    op_id: str  # empty: it could not be read
    recorded: Recorded | None  # None: its space was forgotten, or it is damaged
    facts: tuple[Fact, ...] = ()  # what it stored, as `scan` returns it, moves included and in their order
    forgotten: str | None = None  # why, where its space was forgotten


class Instant(msgspec.Struct, frozen=True):
    """A moment on a named clock, which is unrelated to the time of day, and the time of day if the store has its own."""

    clock: str
    at: int  # µs; the clock shows this or more
    error: int = 0  # µs; the clock shows no more than `at + error`
    utc: int | None = None  # µs since 1970: the store's time of day; None: it is that of this host


def time_of_day(engine: Engine) -> int:
    """Return µs since 1970, UTC, on the clock that all users of the store share: the server's, or that of this host.

    Timers are due by this clock, so it does not matter what time a program's own clock shows.
    """
    utc = engine.instant().utc
    return time.time_ns() // 1_000 if utc is None else utc


class HeadOf(msgspec.Struct, frozen=True, gc=False):
    """Asks for the head of a timeline, as `hold` returns it."""

    space: str
    timeline: str


class CellOf(msgspec.Struct, frozen=True, gc=False):
    """Asks for a cell, as `cell` returns it."""

    space: str
    name: str


class LedgerOf(msgspec.Struct, frozen=True, gc=False):
    """Asks for the end of a ledger, as `ledger` returns it."""

    space: str


class OpOf(msgspec.Struct, frozen=True, gc=False):
    """Asks for an earlier write, as `recorded` returns it."""

    space: str
    op_id: str


class LabelOf(msgspec.Struct, frozen=True, gc=False):
    """Asks for the commits that a label names, as `labelled` returns them."""

    space: str
    label: str


Question: TypeAlias = HeadOf | CellOf | LedgerOf | OpOf | LabelOf
Labels: TypeAlias = Collection[str]  # names of commits, as `Engine.labelled` takes them
Answer: TypeAlias = Any
"""What the method for one question returns: a hold, a cell, the end of a ledger, a recorded write, or digests."""


class Engine(Protocol):
    """Stores objects, heads, cells and ledgers.  Thread-safe; safe to use from several processes."""

    def apply(self, write: Write) -> Receipt:
        """Make `write` true, all of it or none of it, and durable before returning.

        The engine looks up the op_id first: the same intent again returns the original receipt and
        writes nothing; another intent raises `OpReused`; a tombstone raises `Forgotten`.
        Then, in this order, it raises and writes nothing: `Moved` if a fence or a cell is at another
        revision, `Sealed` if a timeline is sealed, `StaleHead` if a head is not where its move read it, or came
        there by another move than the one that the write names as `previous` (`Conflict` if a timeline to begin exists, `NotFound` if one to move does not), `NotFound` if a
        move goes to a commit that this space does not have (fact `commit`), or a commit names a parent
        that it does not have or comes without its changeset (`verify` checks roots, `apply` does not).
        The engine looks at fences, cells and moves in the order given.
        The version rises by one whichever way the head moves; a move records its act, op_id, time, author
        and the move before it.  A forgotten object that is written again is there again.
        A `Replay` leaves the same objects, moves and entries as the write that it repeats, and the same receipt, if
        every write before it was replayed; an object that is `Buried` is forgotten, unless the space has it.
        Raises `Invalid` if one timeline or cell is written twice, or a cell or an entry is
        not UTF-8 text, or a commit counts its depth wrongly.
        Raises `Corrupt`, having written nothing, if a cell that it reads is damaged, or if the
        space is not as the newest write left it (see `check`).
        Raises `Unavailable` if the store cannot be written now, `InDoubt` if the outcome
        is not known.
        """
        ...

    def recorded(self, space: str, op_id: str) -> Recorded | None:
        """Return the write of that op_id, or None if it never became true.

        Raises `Forgotten` if only its tombstone is left, `InDoubt` if the engine cannot decide which.
        """
        ...

    def answers(self, questions: Sequence[Question], *, fresh: bool = True) -> Sequence[Answer]:
        """Answer small questions about any spaces, in order, all of them from one moment.

        Without `fresh` that moment may be the last one at which this process has asked or written.
        Each answer is what the method for that question would return; what it would raise is raised for the first
        question that fails.  No write is half visible: a caller that asks for two things that one write changes sees
        both as they were before it, or both as they were after it.
        """
        ...

    def objects(self, space: str, digests: Sequence[Digest]) -> Sequence[Object]:
        """Return the objects of these digests, in order, each checked against its digest.

        Raises `NotFound`, `Forgotten` or `Corrupt` for the first that it cannot return; the fact `digest` of
        `NotFound` and `Corrupt` names it.  Objects of another space are not found.
        """
        ...

    def missing(self, space: str, digests: Sequence[Digest]) -> Sequence[Digest]:
        """Return those of `digests` that the space never had.  Forgotten ones are not missing."""
        ...

    def steps(
        self, space: str, at: Digest, *, skip: int = 0, limit: int, bodies: bool = False, labels: Labels = ()
    ) -> Sequence[Step]:
        """Return the commits from `at` backwards along first parents, newest first, after skipping `skip`.

        Costs what it returns, however long the history is and however many are skipped
        (logarithmic).  Raises `NotFound` with the fact `commit` if the space has no commit `at`.
        With `bodies` each has those bodies that the engine reads along with it, each under its own digest; any
        may be absent, and `objects` says why.
        With `labels` only the newest commit of these `limit` for each label is returned: the one that has it, or the
        last of the run of that id.  The commits between them may be followed as skipped ones are, by their places.
        """
        ...

    def events(self, space: str, at: Digest, *, limit: int, bodies: bool = False) -> Sequence[CommitEvents]:
        """Return of the commits that `steps` returns what `Step.as_events` makes of each; raises as `steps` does.

        Each is compared with its digest, as its events are and the bodies that come with it.  An engine may leave out
        what these do not depend on: the places and the patches.
        """
        ...

    def turn(self, space: str, at: Digest, turn: int) -> Step | None:
        """Return the last commit of that turn on the line that ends at `at`; None if it has no such turn."""
        ...

    def labelled(self, space: str, label: str) -> Sequence[Digest]:
        """Return the commits that have a label, oldest first.

        A message id labels the commit that appended it, a run id the first of the run, and a name the commits that
        have it: its label is `moment_label(name)`, so that it is never taken for an id.
        """
        ...

    def commits(self, space: str, prefix: str, *, limit: int) -> Sequence[Digest]:
        """Return the commits of the space whose digest starts with `prefix` (hex), sorted."""
        ...

    def hold(self, space: str, timeline: str) -> Hold | None:
        """Return the head of a timeline, checked against its last move; None if there is no such timeline.

        Raises `Corrupt` if the head is not where its last move left it.
        """
        ...

    def holds(self, space: str, *, after: str = "", limit: int) -> Sequence[Hold]:
        """Return the timelines by name, those after `after`.  `main` is listed once it has moved."""
        ...

    def moves(
        self, space: str, timeline: str, *, before: int | None = None, limit: int
    ) -> Sequence[MoveRecord]:
        """Return the recorded moves, newest first, with versions below `before` (None: all).

        A timeline that was begun has its first move at version 0.
        """
        ...

    def cell(self, space: str, name: str) -> Cell | None:
        """Return the cell, or None if it was never written.

        A cell is stored with a digest over its space, name, revision, value, position and whether
        it is listed (`shared_rules.cell_digest`).  Raises `Corrupt`, naming the cell, if it does not match.
        """
        ...

    def cells(
        self,
        space: str,
        *,
        prefix: str = "",
        after: str = "",
        before: str | None = None,
        descending: bool = False,
        limit: int,
    ) -> Sequence[Cell]:
        """Return the cells that are not empty, by name, each checked as `cell` does.

        Their names start with `prefix`, come after `after` and before `before` (None: no upper bound).
        `descending` returns the last name first.  Costs what it returns, in both directions.
        Fewer than `limit`: there are no more.
        """
        ...

    def cells_of(self, spaces: Sequence[str], name: str) -> Sequence[Cell]:
        """Return the cells of that name of those spaces in which it was ever written, each checked as `cell` does."""
        ...

    def listed(self, *, prefix: str, after: tuple[str, str] = ("", ""), limit: int) -> Sequence[Cell]:
        """Return the listed, not empty cells of every space, by (name, space), those after `after`, each checked.

        Fewer than `limit`: there are no more.
        """
        ...

    def entries(
        self,
        space: str,
        *,
        after: int = 0,
        before: int | None = None,
        descending: bool = False,
        limit: int,
    ) -> Sequence[LedgerEntry]:
        """Return the ledger entries after position `after` and before `before` (None: no upper bound).

        `descending` returns the newest first.  Costs what it returns, in both directions.  Each entry is
        checked against the chain: its chain digest must be the one over its body and the chain before it.
        Raises `Corrupt` if it is not, or if an entry is missing next to one that is read.
        """
        ...

    def ledger(self, space: str) -> LedgerRead:
        """Return the position and the chain of the newest ledger entry; position 0 if there is none."""
        ...

    def check(self, space: str, *, again: bool = False) -> None:
        """Compare everything of the space that can change with what its newest write left.

        Each write leaves a *seal*: a sum over the digests of all cells, the moves of all heads and
        the end of the ledger (`sealed_cell` and its neighbours in `shared_rules`).  Raises `Corrupt` if the sum of
        what is stored is another: something was edited, removed, or put back to an older version.  An engine may
        compare once for each opening of the store, unless the caller says `again`: then it compares the
        bytes of every cell.  `apply` compares before it writes.
        """
        ...

    def reseal(self, space: str, cells: Sequence[Rebuilt] = ()) -> None:
        """Write `cells`, each at its revision or one further, and accept the rest of the space as it is stored.

        Only a repair calls this, after it has verified what it keeps, and a copy, after it has replayed the writes
        of the space.  Cells whose digest does not
        match get the digest of what they hold.  Raises `Corrupt`, having changed nothing, unless the
        ledger ends where the newest write that added to it left it.
        """
        ...

    def spaces(self, *, after: str = "", limit: int) -> Sequence[str]:
        """Return the spaces that were ever written, by name."""
        ...

    def scan(self, space: str, *, after: int = 0, limit: int) -> tuple[Sequence[Fact], int | None]:
        """Return everything stored for a space, in storage order, and the cursor to go on with (None: the end).

        A cursor is a standing: a scan after the `standing` of an earlier moment returns what was written since.
        The digest of an object is computed from the bytes that were read.  Never raises for damaged data: the
        fault is in the `Fact`.  Memory is bounded by `limit`, as far as one write may be.
        """
        ...

    def writes(self, space: str, *, after: int = 0, limit: int) -> tuple[Sequence[Written], int | None]:
        """Return the writes of a space with everything that they stored, in order, and the cursor to go on with.

        Cursors, damage and memory are as in `scan`.  A `Replay` of each into an empty space, with the ledger
        entries up to its position, and `reseal` with all of `stored_cells` make an equal space.
        """
        ...

    def stored_cells(self, space: str, *, after: str = "", limit: int) -> Sequence[Rebuilt]:
        """Return every cell that was ever written, emptied ones too, by name, as `reseal` writes it; each is checked."""
        ...

    def standing(self, space: str) -> int:
        """Return a number that grows with every write that becomes true in the space; 0 if there was none.

        A caller that decides what may be forgotten reads it first.  Forgetting is no write.
        """
        ...

    def wait(
        self, seen: Mapping[str, int], seconds: float, *, woken: Event | None = None
    ) -> Mapping[str, int]:
        """Wait until a space has a higher standing than the one that was `seen` there, at most `seconds`.

        Returns the spaces that have, each with a standing that it has reached; empty if there was none in time, or
        if the caller set `woken` before.  No caller can have seen -1, so it returns the standing at once.  A write that
        became true after `seen` was read is never missed, whichever thread, opening or process made it; the engine
        may set `woken` itself.  With 0 seconds it looks once.

        The engine serves all waits of one opening together and asks the store nothing while there is none: a
        thousand waits cost no more than one, and a space without a wait costs its writers nothing.
        Raises `Unavailable` if the engine is closed, also while it waits.  A forked child inherits no wait.
        """
        ...

    def forget(self, space: str, digests: Sequence[Digest], *, why: str, standing: int) -> int:
        """Replace the bytes of these objects by tombstones, durably; return the number of bytes set free.

        Raises `Conflict`, having forgotten nothing, if anything was written to the space since
        `standing` was read: that write may need them.  Afterwards reading one raises `Forgotten(why)`.
        Their digests stay.  If anything was forgotten, the cell `gc` is one revision further, without a
        value, so that a fence of an earlier reader fails.  Nothing else changes.
        An object that is not there, or forgotten already, is left as it is.  Raises `Invalid`, having
        forgotten nothing, for a commit, a changeset or a move: they prove the chain.
        """
        ...

    def drop(self, space: str, *, why: str) -> int:
        """Forget a whole space: objects, heads, cells and ledger; return the number of bytes set free.

        Its op_ids stay as tombstones: repeating one of its writes raises `Forgotten`.  Its cells
        are emptied, each by one more revision, so that an earlier fence fails.
        """
        ...

    def instant(self) -> Instant:
        """Return the time now, on a clock that never goes back and goes on while no process runs.

        All users of the store read one clock as long as it has the same name.  Instants of
        another clock cannot be compared: anything dated on it is over.

        Costs no round trip: an engine may answer from its own clock and what it last learned of the distance to
        the server's.  It then answers with a time that the server's clock has certainly reached, and with the most
        that this clock can be ahead of it, as `error`.  So no process takes a lease for over too early, and its
        holder, which counts the error as passed, gives the lease up before another process may take it.  A server whose clock may be behind
        that of the one before it has another name for its clock.
        """
        ...

    def holder(self) -> str:
        """Return the name of this use of the store: one for each opening and process, never given twice.

        The engine marks the name before it returns it, and the mark ends with the process, however
        that ends (see `gone`).  It also ends with `close`, so a caller closes only when it has nothing under way.  A forked
        child has a name of its own and does not keep its parent's mark alive.  Raises
        `Unavailable` if the store cannot be written.
        """
        ...

    def gone(self, holder: str) -> bool:
        """True if it is proven that no process uses the store under that name, or ever will.

        There are two proofs.  The opening was closed.  Or the kernel of this host says that its process has ended: the
        holder's own lock file, the same by device and inode, was opened here and its lock is free.
        A missing file proves nothing, because containers share a kernel and not their files.  Nor does a lost
        connection: a restart, a failover or a cut cable ends every session while the clients live.  Of a process on
        another host only `close` is ever known; there it stays false, and the end of the lease decides.
        A process that is stopped, or cannot be seen, is not gone; nor is the caller, nor anything that cannot
        be a name of this engine.
        """
        ...

    def backup(self, path: Path) -> None:
        """Write a consistent copy of the store to a new file while others write.

        Raises `Conflict` if the file exists, `Unsupported` where an engine has no files.
        """
        ...

    def facts(self) -> dict[str, str | int]:
        """Return what `doctor` shows: kind, place, versions, settings, sizes."""
        ...

    def counters(self) -> dict[str, int]:
        """Return what this opening has done since it was opened, by name, without asking the store.

        The numbers only grow.  An engine on a server counts `commits`, `repeated` (writes that were there already),
        `conflicts`, `in_doubt`, `retries`, `round_trips` and `connections`; one in a file counts `conflicts` and
        `in_doubt`; one in memory counts nothing.
        """
        ...

    def close(self) -> None:
        """Release everything.  A closed engine raises `Unavailable`; closing again is no error."""
        ...
