"""Caches of heads, cells and places of commits, and how long they are valid.

`ConnectionCache` belongs to the connection that writes: what it read or wrote since another connection wrote last.  A
commit needs the head of its timeline, the place of its parent on the line, and the number of the next row.  The
connection that wrote the commit before knows all three.  Once a transaction has begun, SQLite's data version shows
whether another connection has written in between; if so, the cache drops the spaces that have new rows.  No head and
no cell changes without a new row of its space, except where something is forgotten; another number counts that.

`Recent` belongs to the process: the heads and cells that it last saw.  A program reads a head before every change, and
nearly always it moved that head last.  The lock file counts the writes of all processes.  If the count is the same as
when a head was seen, and no process is writing, the head is unchanged and the database need not be read.

While this process holds the lock no other can write.  `Recent` drops what the process is about to change before
COMMIT, takes it in again after COMMIT, and keeps nothing that is read in between: so no reader sees what is not
durable, nor what has just been replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from threading import Lock
from typing import Any, TypeAlias, TypeVar

import msgspec

from perdure.engines.contract import Answer, Cell, CellOf, HeadOf, Hold, LedgerOf, Question, Receipt, Write
from perdure.engines.shared_rules import check_seal, damaged, sealed_cell, sealed_head, unmoved
from perdure.engines.sqlite.commit.file_lock import FileLock
from perdure.engines.sqlite.commit.seals import Seals, ledger_end, newest_op
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.format.index import object_key
from perdure.engines.sqlite.format.rows import FROM_FAR, IS_PLACED, JUMP, Rows
from perdure.engines.sqlite.reads import hold_of, stored
from perdure.errors import PerdureError
from perdure.model.commit import LedgerRead
from perdure.model.digest import Digest

__all__ = ["UNWRITTEN", "ConnectionCache", "FirstParentPlace", "SealedCell", "SpaceEnd", "Recent"]

_T = TypeVar("_T")

_HELD_MAX = 4_096  # of each kind: then the cache is emptied
_LINE = f"""
SELECT l.id, l.digest, l.jump, l.depth, l.turn, l.sequence, l.events, l.run, l.jump IS {JUMP} AND {IS_PLACED} {FROM_FAR}
WHERE l.id=? AND l.digest IS NOT NULL
"""


class FirstParentPlace(msgspec.Struct, frozen=True, gc=False):
    """The place of a commit on the line of first parents, as its row has it."""

    row: int
    digest: bytes
    jump: int | None
    depth: int
    turn: int
    sequence: int
    events: int
    run: int | None


class SealedCell(msgspec.Struct, frozen=True, gc=False):
    """The revision of a cell, and what the cell adds to the seal of its space and to the sum of listed cells."""

    revision: int
    part: int  # of the seal of its space
    listed: int  # of the sum of listed cells

    @classmethod
    def of(cls, cell: Cell, digest: bytes, *, listed: int) -> SealedCell:
        """Return a cell that is stored with this digest."""
        part = sealed_cell(cell.name, digest)
        return cls(cell.revision, part, part if listed and cell.value is not None else 0)


UNWRITTEN = SealedCell(0, 0, 0)


class SpaceEnd(msgspec.Struct, frozen=True, gc=False):
    """The state that the newest write of a space left."""

    seal: int
    writes: int  # how many there were
    ledger: LedgerRead
    link: bytes = b""  # of that write


HeldTimeline: TypeAlias = tuple[Hold | None, int | None, int]
"""A timeline, the row of the commit at its head, and what the timeline adds to the seal of its space."""


class ConnectionCache:
    """What one connection knows of the store.  The writer uses it inside its transactions."""

    def __init__(self, connection: Database, rows: Rows, seals: Seals) -> None:
        """Begin empty; `seals` has the spaces that this opening has compared with their seals."""
        self._db = connection
        self._rows = rows
        self._index = rows.index
        self._seals = seals
        # The data version at which the cache is valid.  In a transaction another one means that another connection
        # has written since; a COMMIT makes true everything that was noted before it, and its version valid.
        self.version: int | None = None
        self.next_number: int | None = (
            None  # of the next row to be added; None: the index may not know all rows
        )
        self.holds: dict[int, dict[str, HeldTimeline]] = {}  # by space and timeline
        self.lines: dict[tuple[int, Digest], FirstParentPlace] = {}
        self._ancestors: dict[int, tuple[int, int | None]] = {}
        self.cells: dict[int, dict[str, SealedCell]] = {}  # by space and name
        self.ends: dict[int, SpaceEnd] = {}  # by space

    def renew(self) -> bool:
        """Drop the spaces that others have written to; no row was changed in place.  True if the index knows all rows."""
        row, self.next_number = self.next_number, None
        if row is None:
            return False
        self.look()
        spaces = self._index.spaces_from(row)
        if spaces is None:
            self.holds.clear()
            self.cells.clear()
            self.ends.clear()
        else:
            for space in spaces:
                self.holds.pop(space, None)
                self.cells.pop(space, None)
                self.ends.pop(space, None)
        return True

    def forget(self) -> None:
        """Drop everything, because of a rollback or a change by others."""
        self.version = self.next_number = None
        self.holds.clear()
        self.lines.clear()
        self._ancestors.clear()
        self.cells.clear()
        self.ends.clear()

    # ---- rows

    def look(self) -> None:
        """Make sure that the index knows all rows; the first call after `forget` reads them."""
        if self.next_number is None:
            self.next_number = self._index.catch_up(self._db) + 1

    def next_row(self, count: int) -> int:
        """Return the number of the next row to be added, and reserve `count` of them."""
        if self.next_number is None:
            self.look()
        assert self.next_number is not None
        self.next_number += count
        return self.next_number - count

    # ---- commits

    def line(self, space: int | None, commit: Digest) -> FirstParentPlace | None:
        """Return the place of a commit; None if the space has no such commit."""
        if space is None:
            return None
        found = self.lines.get((space, commit))
        return self._find_line(space, commit) if found is None else found

    def note_line(self, space: int, commit: Digest, line: FirstParentPlace) -> None:
        """Note a commit that was read or written."""
        if len(self.lines) >= _HELD_MAX or len(self._ancestors) >= _HELD_MAX:
            self.lines.clear()
            self._ancestors.clear()
        self.lines[space, commit] = line
        self._ancestors[line.row] = line.depth, line.jump

    def _find_line(self, space: int, commit: Digest) -> FirstParentPlace | None:
        digest = bytes.fromhex(commit)
        for row in self._index.known(self._db, space, object_key(commit)):
            line = self._line_at(row)
            if line is not None and line.digest == digest:
                self.note_line(space, commit, line)
                return line
        return None

    def jump_from(self, parent: FirstParentPlace, ahead: Mapping[int, FirstParentPlace]) -> int:
        """Return the far ancestor of a commit on `parent`: where two equal jumps would end, or else the parent.

        `ahead` are commits of the same write, by the rows that they will have.
        """
        if parent.jump is None:
            return parent.row
        first = self._ancestors.get(parent.jump) or self._ancestor(parent.jump, ahead)
        if first is None or first[1] is None:
            return parent.row
        second = self._ancestors.get(first[1]) or self._ancestor(first[1], ahead)
        if second is not None and parent.depth - first[0] == first[0] - second[0]:
            return first[1]
        return parent.row

    def cached_jump(self, parent: FirstParentPlace) -> int | None:
        """Return the same without reading the database, on any thread; None if the cache has too little for that."""
        if parent.jump is None:
            return parent.row
        first = self._ancestors.get(parent.jump)
        if first is None or first[1] is None:
            return None if first is None else parent.row
        second = self._ancestors.get(first[1])
        if second is None:
            return None
        return first[1] if parent.depth - first[0] == first[0] - second[0] else parent.row

    def _ancestor(self, row: int, ahead: Mapping[int, FirstParentPlace]) -> tuple[int, int | None] | None:
        """Return the depth and the jump of the commit in a row; None if there is no such row."""
        if row in ahead:
            return ahead[row].depth, ahead[row].jump
        found = self._ancestors.get(row)
        if found is None:
            values = self._db.execute("SELECT depth, jump FROM log WHERE id=?", (row,)).fetchone()
            if values is not None and isinstance(values[0], int):
                found = values[0], values[1]
                self._note_ancestor(row, found)
        return found

    def _note_ancestor(self, row: int, found: tuple[int, int | None]) -> None:
        if len(self._ancestors) >= _HELD_MAX:
            self._ancestors.clear()
        self._ancestors[row] = found

    def _line_at(self, row: int) -> FirstParentPlace | None:
        values = self._db.execute(_LINE, (row,)).fetchone()
        if values is None:
            return None
        *columns, follows = values
        if not follows:
            raise damaged(
                f"row {row} of the log is not where its parent puts it; nothing was written.",
                "row_misplaced",
                row=row,
            )
        return FirstParentPlace(*columns)

    # ---- heads and cells

    def hold(self, space: int | None, timeline: str) -> Hold | None:
        """Return the head of a timeline, checked against its last move when it was read."""
        if space is None:
            return unmoved(timeline)
        held = self.holds.get(space)
        found = None if held is None else held.get(timeline)
        if found is not None:
            return found[0]
        hold, row = hold_of(self._db, space, timeline)
        self._note_commit(space, hold, row)
        self.note_hold(space, timeline, hold, row, 0 if hold is None else sealed_head(timeline, hold.move))
        return hold

    def note_hold(self, space: int, timeline: str, hold: Hold | None, row: int | None, part: int) -> None:
        """Note a timeline that was read or moved: the row of the commit at its head, its part of the space's seal."""
        _of(self.holds, space)[timeline] = hold, row, part

    def _note_commit(self, space: int, hold: Hold | None, row: int | None) -> None:
        """Note the place of the commit at the head: the head names its row, so that it need not be searched for."""
        commit = None if hold is None else hold.head.commit
        line = None if commit is None or row is None else self._line_at(row)
        if commit is not None and line is not None and line.digest == bytes.fromhex(commit):
            self.note_line(space, commit, line)

    def cell(self, space: int | None, name: str, cell: str) -> SealedCell:
        """Return a cell of the space called `name`, at revision 0 if it was never written."""
        if space is None:
            return UNWRITTEN
        held = self.cells.get(space)
        found = None if held is None else held.get(cell)
        if found is None:
            there = stored(self._db, name, space, cell)
            found = UNWRITTEN if there is None else SealedCell.of(there[0], there[1], listed=there[2])
            self.note_cell(space, cell, found)
        return found

    def note_cell(self, space: int, cell: str, found: SealedCell) -> None:
        """Note a cell that was read or written."""
        _of(self.cells, space)[cell] = found

    def end(self, space: int, name: str) -> SpaceEnd:
        """Return the state that the newest write of a space left, compared with what is stored; raise `Corrupt`."""
        found = self.ends.get(space)
        if found is None:
            self._seals.check(self._db, self._rows, space, name)
            op = newest_op(self._db, self._rows, space)
            seal = None if op is None or op.seal is None else int.from_bytes(op.seal)
            check_seal(name, seal or 0, seal)
            number, link = (0, b"") if op is None else (op.number, op.link)
            found = SpaceEnd(seal or 0, number, ledger_end(self._db, space), link)
            self.note_end(space, found)
        return found

    def note_end(self, space: int, found: SpaceEnd) -> None:
        """Note the state that the newest write of a space left."""
        if len(self.ends) >= _HELD_MAX:
            self.ends.clear()
        self.ends[space] = found


def _of(held: dict[int, dict[str, _T]], space: int) -> dict[str, _T]:
    """Return the part of a cache for one space, with room for one more."""
    found = held.get(space)
    if found is None or len(found) >= _HELD_MAX:
        if len(held) >= _HELD_MAX:
            held.clear()
        found = held[space] = {}
    return found


_NEVER = -2  # a count that no lock file has
_TRIES = 3  # to answer from memory while this process writes to the same spaces
_SORTED_MAX = 512  # answers: to sort out more would cost more than to read a few again
_REMEMBERED = (HeadOf, CellOf, LedgerOf)
_UNSEEN: Any = object()


class _Moment(msgspec.Struct, gc=False):
    """When questions were asked."""

    change: int  # the last one before
    turn: int | None  # in which this process has the lock; None: it has not
    writes: int  # how many there were, where it has not


class Recent:
    """The heads, cells and ends of ledgers that were asked for, as this process last saw them.  Thread-safe.

    When another process has written, its rows say to which spaces: only what was seen of these is dropped.
    """

    def __init__(self, lock: FileLock, rows: Rows, read: Callable[[Callable[[Database], _T]], _T]) -> None:
        """Begin empty; `lock` counts the writes of all processes, `read` reads on some connection."""
        self._lock = lock
        self._rows = rows
        self._read: Callable[[Callable[[Database], Any]], Any] = read
        self._mutex = Lock()
        self._seen: dict[Question, Answer] = {}
        # What was seen before others wrote, until it is known where.
        self._hidden: dict[Question, Answer] = {}
        self._writes = _NEVER  # how many there were when the cache was valid
        self._row: int | None = None  # a row that the cache has taken in, with all before it; None: not known
        self._generation: object = None  # of the rows that were changed in place, at that row
        self._names: dict[int, str] = {}  # of spaces, by number
        self._turns = 0  # how often this process has had the lock
        self._has_begun = False  # this process has the lock, and what is seen is as of then
        # Whenever something that was seen is dropped it gets a number: answers from before and after do not mix.
        self._next_change = count(1).__next__
        self._change = 0  # the last of them
        self._change_of: dict[str, int] = {}  # the last one of each space that this process wrote to
        self._change_of_all = 0  # the last one of spaces that are not known
        self._dropped: set[Question] = set()  # what this process changes while it has the lock

    def ask(
        self, questions: Sequence[Question], read: Callable[[Sequence[Question]], Sequence[Answer]]
    ) -> Sequence[Answer]:
        """Answer questions as of one moment, by `read` where they are not known."""
        change = self._change  # first: later writes may be missed
        if not self._has_begun and 0 <= self._lock.writes() == self._writes:  # as mostly
            try:
                found = list(map(self._seen.__getitem__, questions))
            except KeyError:
                pass
            else:
                if change == self._change:
                    return found
        return self._answered(questions, read)

    def _answered(
        self, questions: Sequence[Question], read: Callable[[Sequence[Question]], Sequence[Answer]]
    ) -> Sequence[Answer]:
        """Answer questions while this process writes, after others have written, or where some are not known."""
        turns, writes = self._turns, -1
        for _ in range(_TRIES):
            change, turns = self._change, self._turns  # first: later writes may be missed
            turn, writes = turns, -1
            if not (self._has_begun and self._lock.is_held):
                turn, (writes, spaces) = None, self._lock.written_since(self._writes)
                if writes > self._writes >= 0:
                    self._catch_up(writes, spaces)
                    change = self._change
                if writes < 0 or writes != self._writes:
                    break
            elif self._writes < 0:
                return read(questions)
            try:
                found = list(map(self._seen.__getitem__, questions))
            except KeyError:  # one was not asked for since
                return self._completed(questions, read, _Moment(change, turn, writes))
            if not self._has_changed(questions, change):
                return found
        fresh = read(questions)
        if writes >= 0:
            self._note(questions, fresh, writes, turns)
        return fresh

    def recall(self, questions: Sequence[Question]) -> Sequence[Answer] | None:
        """Answer questions as this process last saw them, without looking whether others have written; None if it cannot."""
        change, seen = self._change, self._seen
        try:
            found = list(map(seen.__getitem__, questions)) if self._writes >= 0 else None
        except KeyError:
            return None
        return None if self._has_changed(questions, change) else found

    def _has_changed(self, questions: Sequence[Question], change: int) -> bool:
        """True if an answer to one of the questions was dropped after that change."""
        if change == self._change:
            return False
        changed = self._change_of
        return self._change_of_all > change or any(
            [changed.get(each.space, 0) > change for each in questions]
        )

    def _drop_all(self) -> None:
        """Note, before it is done, that anything that was seen may be dropped."""
        self._change_of_all = self._change = self._next_change()
        self._change_of.clear()

    def _completed(
        self,
        questions: Sequence[Question],
        read: Callable[[Sequence[Question]], Sequence[Answer]],
        moment: _Moment,
    ) -> Sequence[Answer]:
        """Answer questions of which some are not known, reading only these if nothing changes meanwhile."""
        seen = self._seen
        known = {each: found for each in questions if (found := seen.get(each, _UNSEEN)) is not _UNSEEN}
        others = [each for each in questions if each not in known]
        fresh = read(others)
        if not self._is_noted(questions, others, fresh, moment) and known:
            return read(questions)
        known.update(zip(others, fresh, strict=True))
        return [known[each] for each in questions]

    def _is_noted(
        self,
        questions: Sequence[Question],
        others: Sequence[Question],
        fresh: Sequence[Answer],
        moment: _Moment,
    ) -> bool:
        """Note what was read of some questions; False if it may be from another moment than what is known of the rest.

        What this process is writing was dropped before it became true, so it is not among what is known.  It is not
        noted either: it may have been read before it became true, and noted after.
        """
        lock = self._lock
        if moment.turn is None and lock.writes() != moment.writes:
            return False
        with self._mutex:
            if moment.turn is None:
                is_same = not lock.is_held and moment.writes == self._writes
            else:
                is_same = lock.is_held and self._has_begun and moment.turn == self._turns
            if not is_same or self._has_changed(questions, moment.change):
                return False
            self._make_room()
            for question, answer in zip(others, fresh, strict=True):
                if isinstance(question, _REMEMBERED) and question not in self._dropped:
                    self._seen[question] = answer
        return True

    def _note(self, questions: Sequence[Question], found: Sequence[Answer], writes: int, turns: int) -> None:
        """Note what was read after so many writes and turns, unless this process has had the lock since.

        The count alone does not tell: between the release of the lock and `end` it is still that of the turn's begin.
        """
        with self._mutex:
            if self._lock.is_held or turns != self._turns or writes < self._writes:
                return
            if writes > self._writes:
                self._seen, self._writes, self._row = {}, writes, None
            self._make_room()
            for question, answer in zip(questions, found, strict=True):
                if isinstance(question, _REMEMBERED):
                    self._seen[question] = answer

    def _make_room(self) -> None:
        """Drop everything that was seen if it is much: a process that only reads may ask for any name."""
        if len(self._seen) > _HELD_MAX:
            self._drop_all()
            self._seen = {}

    def _catch_up(self, writes: int, spaces: set[int] | None) -> None:
        """Drop what others have changed since the last count; there were so many writes before this reads.

        `spaces` are the ones that they wrote to, as the lock file has it; None: their rows are read to know.
        """
        turns, row = self._turns, self._row  # first: a writer that takes the lock after this is noticed below
        if self._lock.is_held or (spaces is None and row is None):
            return
        newest, generation, names = row, self._generation, self._names_known(spaces)
        try:
            if names is None and spaces is not None:
                names = self._read(lambda db: self._named(db, spaces))
            elif row is not None and names is None:
                generation, newest, names = self._read(lambda db: self._written_since(db, row))
        except PerdureError:
            return  # what cannot be found out is read again
        with self._mutex:
            # Rows of a write that this process has under way may come to nothing.
            if self._lock.is_held or turns != self._turns or row != self._row or writes <= self._writes:
                return
            self._drop_all()  # first
            self._seen = self._unchanged(self._seen, generation, names)
            self._row, self._generation = newest, generation
            self._writes = writes  # last

    def _written_since(self, db: Database, row: int) -> tuple[object, int, set[str] | None]:
        """Return the generation, the last row, and the names of the spaces that have rows after `row`; None: all may have."""
        generation, newest = self._rows.refresh(db), self._rows.index.catch_up(db)
        return generation, newest, self._names_from(db, row + 1)

    def _names_known(self, spaces: set[int] | None) -> set[str] | None:
        """Return the names of spaces without reading the database; None if it has to be read."""
        names = self._names
        return {names[each] for each in spaces} if spaces is not None and spaces <= names.keys() else None

    def _names_from(self, db: Database, row: int) -> set[str] | None:
        numbers = self._rows.index.spaces_from(row)
        return None if numbers is None else self._named(db, numbers)

    def _named(self, db: Database, numbers: set[int]) -> set[str]:
        """Return the names of the spaces that have these numbers."""
        names = self._names
        if len(names) > _HELD_MAX:
            self._names = names = {}  # another thread may use the old ones
        for number in numbers:
            if number not in names:
                names[number] = str(db.execute("SELECT name FROM spaces WHERE id=?", (number,)).get)
        return {names[number] for number in numbers}

    def _unchanged(
        self, seen: dict[Question, Answer], generation: object, names: set[str] | None
    ) -> dict[Question, Answer]:
        if names is None or generation != self._generation or len(seen) > _SORTED_MAX:
            return {}
        return {question: answer for question, answer in seen.items() if question.space not in names}

    # ---- by who writes

    def begin(self, writes: int) -> None:
        """Note that this process has the lock, and how many writes there were before; -1 if that is not certain."""
        with self._mutex:
            self._turns += 1
            if writes != self._writes or writes < 0 or len(self._seen) > _HELD_MAX:
                self._drop_all()
                is_behind = writes > self._writes >= 0
                names = self._names_known(self._lock.written_before(self._writes)) if is_behind else None
                if names is None:
                    self._hidden, self._seen = self._seen if is_behind else {}, {}
                else:
                    self._seen = self._unchanged(self._seen, self._generation, names)
                self._writes = writes
            self._has_begun = True

    def show(self, db: Database, generation: object) -> None:
        """In a transaction, once the index knows all rows: use again what others have not changed."""
        if self._hidden and self._row is not None:
            hidden, self._hidden = self._hidden, {}
            self._seen = self._unchanged(hidden, generation, self._names_from(db, self._row + 1))

    def unknow(self, write: Write) -> None:
        """Drop what this write changes, before it becomes true."""
        space = write.space
        changed: list[Question] = []  # not `list[Question]()`, which costs as much as all else here
        for move in write.moves:
            changed.append(HeadOf(space, move.timeline))  # noqa: PERF401 (a comprehension is a call of its own)
        if write.cells:
            changed += [CellOf(space, cell.name) for cell in write.cells]
        if write.entries:
            changed.append(LedgerOf(space))
        with self._mutex:
            self._change = self._change_of[space] = self._next_change()  # first
            self._dropped.update(changed)
            seen = self._seen  # not before: a reader may have emptied it to make room, and noted one of these
            for each in changed:
                seen.pop(each, None)

    def know(self, write: Write, holds: Sequence[Hold], receipt: Receipt) -> None:
        """Take in what this write has changed."""
        seen, space = self._seen, write.space
        for hold in holds:
            seen[HeadOf(space, hold.head.timeline)] = hold
        if write.cells:
            for cell, revision in zip(write.cells, receipt.revisions, strict=False):
                seen[CellOf(space, cell.name)] = Cell(
                    space, cell.name, revision, cell.value, receipt.position
                )
        if write.entries:
            seen[LedgerOf(space)] = LedgerRead(receipt.position, receipt.chain)

    def forget(self) -> None:
        """Drop everything, because anything may change."""
        self._drop_all()
        self._seen = {}
        self._writes = _NEVER

    def end(self, writes: int, row: int | None, generation: object) -> None:
        """Note that this process has let go of the lock, and how many writes there were; -1 if the count is not certain."""
        with self._mutex:
            self._has_begun = False
            self._hidden = {}
            self._dropped.clear()
            self._row, self._generation = row, generation
            if 0 <= self._writes == self._rows.looked_at <= writes:  # this process alone has written since
                self._rows.looked_at = writes
            self._writes = _NEVER if writes < 0 else writes
