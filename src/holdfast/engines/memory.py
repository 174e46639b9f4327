"""The memory engine: the contract in dictionaries, the model that other engines are compared with.

Every write is made on a *draft*, whose dictionaries lie over the real ones; a refusal
drops the draft, a success pours it in.  One lock serves all memory stores of a process,
so that a fork finds none of them half written; the child then has a copy of its own.

Nothing is durable: a store is gone with the last engine that holds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, MutableMapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from threading import Lock

import msgspec

from holdfast.engines import rules
from holdfast.engines.contract import (
    GC,
    Cell,
    CellWrite,
    Entry,
    Fact,
    Fence,
    Hold,
    Instant,
    Move,
    Place,
    Receipt,
    Recorded,
    Step,
    Write,
)
from holdfast.engines.layers import over, pour
from holdfast.engines.marks import Mark, jump_of_child
from holdfast.engines.openings import Openings
from holdfast.errors import Corrupt, Forgotten, NotFound, OpReused, Unavailable, Unsupported
from holdfast.model.changeset import Changeset, decode_changeset
from holdfast.model.commit import Commit, MoveRecord, decode_commit, decode_move
from holdfast.model.digest import Digest, Kind, Object
from holdfast.model.head import Head

__all__ = ["MemoryEngine", "MemoryStore"]

_LOCK = Lock()
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


class _Tombstone(msgspec.Struct, frozen=True):
    """What is left of a forgotten object or op_id."""

    kind: str
    why: str


class _Filed(msgspec.Struct, frozen=True):
    """A cell, and whether it can be found across spaces."""

    cell: Cell
    listed: bool


class _Space:
    """One space's dictionaries."""

    def __init__(self, below: _Space | None = None) -> None:
        """Make an empty space, or a draft that lies over `below`."""
        self.objects: MutableMapping[Digest, Object | _Tombstone] = over(below and below.objects)
        self.marks: MutableMapping[Digest, Mark] = over(below and below.marks)
        self.labels: MutableMapping[str, tuple[Digest, ...]] = over(below and below.labels)
        self.holds: MutableMapping[str, Hold] = over(below and below.holds)
        self.records: MutableMapping[tuple[str, int], MoveRecord] = over(below and below.records)
        self.cells: MutableMapping[str, _Filed] = over(below and below.cells)
        self.entries: MutableMapping[int, Entry] = over(below and below.entries)
        self.ops: MutableMapping[str, Recorded | _Tombstone] = over(below and below.ops)
        self.last: Entry | None = below and below.last
        self.standing: int = below.standing + 1 if below else 0  # how many writes became true

    def take(self, draft: _Space) -> None:
        """Make true what was made on `draft`."""
        pour(draft.objects, self.objects)
        pour(draft.marks, self.marks)
        pour(draft.labels, self.labels)
        pour(draft.holds, self.holds)
        pour(draft.records, self.records)
        pour(draft.cells, self.cells)
        pour(draft.entries, self.entries)
        pour(draft.ops, self.ops)
        self.last = draft.last
        self.standing = draft.standing

    def revision(self, cell: str) -> int:
        """How often the cell was written."""
        filed = self.cells.get(cell)
        return filed.cell.revision if filed else 0

    def hold(self, timeline: str) -> Hold | None:
        """Where the timeline stands, checked against its last move."""
        hold = self.holds.get(timeline)
        if hold is None or hold.move is None:
            return rules.unmoved(timeline)
        rules.check_hold(hold, decode_move(self.object(hold.move).body))
        return hold

    def object(self, digest: Digest) -> Object:
        """The object, checked against its digest."""
        match self.objects.get(digest):
            case None:
                raise NotFound(f"there is no object {digest} in this space.")
            case _Tombstone(kind, why):
                raise Forgotten(f"{kind} {digest}", why)
            case found:
                return Object.read(found.kind, digest, found.body)

    def mark(self, commit: Digest) -> Mark:
        """What is remembered of the commit."""
        mark = self.marks.get(commit)
        if mark is None:
            raise NotFound(f"there is no commit {commit} in this space.")
        return mark

    def step(self, digest: Digest) -> Step:
        """The commit, decoded, with its changeset and place."""
        commit = decode_commit(self.object(digest).body)
        changeset = decode_changeset(self.object(commit.changeset).body)
        return Step(digest, commit, changeset, self.mark(digest).place)

    def back(self, at: Digest, enough: Callable[[Place], bool]) -> Digest | None:
        """The first commit from `at` backwards that is `enough`, if all commits before it are so too."""
        here: Digest | None = at
        while here is not None and not enough(self.mark(here).place):
            mark = self.mark(here)
            here = mark.parent if enough(self.mark(mark.jump).place) or mark.jump == here else mark.jump
        return here


class MemoryStore:
    """What a memory engine keeps; two engines on one of these are two openings of one store."""

    def __init__(self, place: str = "memory:") -> None:
        """Begin an empty store; `place` is how people call it."""
        self.place = place
        self.spaces: dict[str, _Space] = {}
        self.openings = Openings()


class MemoryEngine:
    """An `Engine` whose store lives as long as this process at the most."""

    def __init__(self, store: MemoryStore | None = None, *, read_only: bool = False) -> None:
        """Open `store`; None is a new one of this engine's own."""
        self._store = store or MemoryStore()
        self._read_only = read_only
        self._closed = False
        self._names: dict[int, str] = {}  # of this opening, by process: a forked child has its own

    def apply(self, write: Write) -> Receipt:
        """Make `write` true, all of it or none of it."""
        rules.check_write(write)
        with self._opened(writing=True) as spaces:
            space = spaces.get(write.space) or _Space()
            earlier = self._earlier(space, write)
            if earlier is not None:
                return earlier
            draft = _Space(space)
            receipt = _make(draft, write)
            space.take(draft)
            spaces[write.space] = space
            return receipt

    def _earlier(self, space: _Space, write: Write) -> Receipt | None:
        """The receipt of this very write, if it became true before; `OpReused` if another did under its op_id."""
        match space.ops.get(write.op_id):
            case None:
                return None
            case _Tombstone(kind, why):
                raise Forgotten(f"{kind} '{write.op_id}'", why)
            case found if found.intent != write.intent:
                raise OpReused(write.op_id)
            case found:
                return found.receipt

    def recorded(self, space: str, op_id: str) -> Recorded | None:
        """The write of that op_id, or None if it never became true."""
        with self._reading(space) as found:
            match found.ops.get(op_id):
                case _Tombstone(kind, why):
                    raise Forgotten(f"{kind} '{op_id}'", why)
                case recorded:
                    return recorded

    def objects(self, space: str, digests: Sequence[Digest]) -> Sequence[Object]:
        """The objects of these digests, in order."""
        with self._reading(space) as found:
            return [found.object(digest) for digest in digests]

    def missing(self, space: str, digests: Sequence[Digest]) -> Sequence[Digest]:
        """Those of `digests` that the space never had."""
        with self._reading(space) as found:
            return [digest for digest in digests if digest not in found.objects]

    def steps(self, space: str, at: Digest, *, skip: int = 0, limit: int) -> Sequence[Step]:
        """Commits from `at` backwards along first parents, newest first."""
        with self._reading(space) as found:
            depth = found.mark(at).place.depth - skip
            here = found.back(at, lambda place: place.depth <= depth)
            steps: list[Step] = []
            while here is not None and len(steps) < limit:
                steps.append(found.step(here))
                here = found.mark(here).parent
            return steps

    def turn(self, space: str, at: Digest, turn: int) -> Step | None:
        """The last commit of that turn on the line that ends at `at`."""
        with self._reading(space) as found:
            last = found.back(at, lambda place: place.turn <= turn)
            return found.step(last) if last is not None and found.mark(last).place.turn == turn else None

    def labelled(self, space: str, label: str) -> Sequence[Digest]:
        """The commits that a message id or a run id names, oldest first."""
        with self._reading(space) as found:
            return found.labels.get(label, ())

    def commits(self, space: str, prefix: str, *, limit: int) -> Sequence[Digest]:
        """Commits of the space whose digest starts with `prefix`, sorted."""
        with self._reading(space) as found:
            return sorted(digest for digest in found.marks if digest.startswith(prefix))[:limit]

    def hold(self, space: str, timeline: str) -> Hold | None:
        """Where the timeline stands; None if there is no such timeline."""
        with self._reading(space) as found:
            return found.hold(timeline)

    def holds(self, space: str, *, after: str = "", limit: int) -> Sequence[Hold]:
        """Timelines by name, those after `after`."""
        with self._reading(space) as found:
            names = sorted(name for name in found.holds if name > after)[:limit]
            return [hold for name in names if (hold := found.hold(name)) is not None]

    def moves(
        self, space: str, timeline: str, *, before: int | None = None, limit: int
    ) -> Sequence[MoveRecord]:
        """Recorded moves, newest first, with versions below `before`."""
        with self._reading(space) as found:
            hold = found.hold(timeline)
            top = hold.head.version if hold else -1
            versions = range(top if before is None else min(top, before - 1), -1, -1)
            records = (found.records.get((timeline, version)) for version in versions)
            return list(islice((record for record in records if record is not None), limit))

    def cell(self, space: str, name: str) -> Cell | None:
        """The cell, or None if it was never written."""
        with self._reading(space) as found:
            filed = found.cells.get(name)
            return filed.cell if filed else None

    def cells(self, space: str, *, prefix: str = "", after: str = "", limit: int) -> Sequence[Cell]:
        """Cells that are not empty, by name, those after `after`."""
        with self._reading(space) as found:
            full = [filed.cell for filed in found.cells.values() if filed.cell.value is not None]
        wanted = [cell for cell in full if cell.name.startswith(prefix) and cell.name > after]
        return sorted(wanted, key=lambda cell: cell.name)[:limit]

    def listed(self, *, prefix: str, after: tuple[str, str] = ("", ""), limit: int) -> Sequence[Cell]:
        """Listed, not empty cells of every space, by (name, space), those after `after`."""
        with self._opened() as spaces:
            filed = [filed for space in spaces.values() for filed in space.cells.values()]
        full = [each.cell for each in filed if each.listed and each.cell.value is not None]
        wanted = [cell for cell in full if cell.name.startswith(prefix) and (cell.name, cell.space) > after]
        return sorted(wanted, key=lambda cell: (cell.name, cell.space))[:limit]

    def entries(self, space: str, *, after: int = 0, limit: int) -> Sequence[Entry]:
        """The ledger from the position after `after`, each checked against the chain."""
        with self._reading(space) as found:
            positions = range(after + 1, min(after + limit, len(found.entries)) + 1)
            return [_checked(found, position) for position in positions]

    def spaces(self, *, after: str = "", limit: int) -> Sequence[str]:
        """Spaces that were ever written, by name."""
        with self._opened() as spaces:
            return sorted(name for name in spaces if name > after)[:limit]

    def scan(self, space: str, *, after: int = 0, limit: int) -> tuple[Sequence[Fact], int | None]:
        """Everything stored for a space, in storage order, and the cursor to go on with."""
        with self._reading(space) as found:
            page = list(islice(found.objects.items(), after, after + limit))
            end = after + len(page)
            facts = [_fact(digest, stored) for digest, stored in page]
            return facts, end if end < len(found.objects) else None

    def standing(self, space: str) -> int:
        """A number that grows with every write that becomes true in the space."""
        with self._reading(space) as found:
            return found.standing

    def forget(self, space: str, digests: Sequence[Digest], *, why: str, standing: int) -> int:
        """Replace the bytes of these objects by tombstones; the number of bytes set free."""
        with self._opened(writing=True) as spaces:
            found = spaces.get(space) or _Space()
            rules.check_standing(space, standing, found.standing)
            known = {digest: found.objects.get(digest) for digest in digests}
            stored = [each for each in known.values() if isinstance(each, Object)]
            for each in stored:
                rules.check_forgettable(each.kind, each.digest)
            if stored:
                _add_cell(found, space, CellWrite(name=GC, expected=found.revision(GC), value=None))
            found.objects.update({each.digest: _Tombstone(each.kind, why) for each in stored})
            return sum(len(each.body) for each in stored)

    def drop(self, space: str, *, why: str) -> int:
        """Forget a whole space, except that its op_ids stay as tombstones and its cells go on counting."""
        with self._opened(writing=True) as spaces:
            if space not in spaces:
                return 0
            old, new = spaces[space], _Space()
            new.standing = old.standing
            new.ops.update({op_id: _tombstone(op, why) for op_id, op in old.ops.items()})
            new.cells.update({name: _emptied(filed.cell) for name, filed in old.cells.items()})
            spaces[space] = new
            return _size(old)

    def instant(self) -> Instant:
        """Now, on this process's monotonic clock."""
        with self._opened():
            return self._store.openings.instant()

    def holder(self) -> str:
        """The name of this opening of the store."""
        with self._opened(writing=True):
            if os.getpid() not in self._names:
                self._names[os.getpid()] = self._store.openings.enter()
            return self._names[os.getpid()]

    def gone(self, holder: str) -> bool:
        """Whether the opening of that name is over."""
        with self._opened():
            return self._store.openings.gone(holder)

    def backup(self, path: Path) -> None:
        """Raise `Unsupported`: there is no file to copy."""
        raise Unsupported(f"a memory store has no file to copy; nothing was written to '{path}'.")

    def facts(self) -> dict[str, str | int]:
        """What `doctor` shows."""
        with self._opened() as spaces:
            return {
                "engine": "memory",
                "path": self._store.place,
                "read_only": int(self._read_only),
                "spaces": len(spaces),
                "objects": sum(len(space.objects) for space in spaces.values()),
                "bytes": sum(_size(space) for space in spaces.values()),
            }

    def close(self) -> None:
        """Let go of the store.  Others who hold it keep it."""
        with _LOCK:
            self._closed = True
            self._store.openings.leave(self._names.get(os.getpid(), ""))

    @contextmanager
    def _opened(self, *, writing: bool = False) -> Generator[dict[str, _Space]]:
        """All spaces, for as long as nobody else may touch them."""
        if self._closed:
            raise Unavailable("this memory store was closed; nothing was done. Open it again.")
        if writing and self._read_only:
            raise Unavailable("this memory store was opened read-only; nothing was written.")
        with _LOCK:
            yield self._store.spaces

    @contextmanager
    def _reading(self, space: str) -> Generator[_Space]:
        """One space; an empty one if it was never written."""
        with self._opened() as spaces:
            yield spaces.get(space) or _Space()


def _make(draft: _Space, write: Write) -> Receipt:
    """Check `write` in the contract's order and make it true on `draft`."""
    for fence in write.fences:
        rules.check_fence(fence, draft.revision(fence.cell))
    for cell in write.cells:
        rules.check_fence(Fence(cell.name, cell.expected), draft.revision(cell.name))
    for move in write.moves:
        rules.check_move(move, draft.hold(move.timeline))
    _add_objects(draft, write.objects)
    heads = tuple(_add_move(draft, move, write.op_id) for move in write.moves)
    revisions = tuple(_add_cell(draft, write.space, cell) for cell in write.cells)
    last = _add_entries(draft, write.entries)
    receipt = Receipt(
        op_id=write.op_id,
        heads=heads,
        revisions=revisions,
        position=last.position if last else 0,
        chain=last.chain if last else None,
    )
    draft.ops[write.op_id] = Recorded(write.intent, receipt)
    return receipt


def _add_objects(draft: _Space, objects: Sequence[Object]) -> None:
    for new in objects:
        found = draft.objects.get(new.digest)
        if isinstance(found, Object) and (found.kind, found.body) != (new.kind, new.body):
            raise Corrupt(f"{new.kind} {new.digest} is already here with other bytes; nothing was written.")
        draft.objects[new.digest] = found if isinstance(found, Object) else new
    changesets = {new.digest: new.body for new in objects if new.kind is Kind.CHANGESET}
    for new in objects:
        if new.kind is Kind.COMMIT:
            commit = decode_commit(new.body)
            if commit.changeset not in changesets:
                raise NotFound(f"commit {new.digest} comes without its changeset; nothing was written.")
            _add_commit(draft, new.digest, commit, decode_changeset(changesets[commit.changeset]))


def _add_commit(draft: _Space, digest: Digest, commit: Commit, changeset: Changeset) -> None:
    if digest in draft.marks:
        return
    for parent in commit.parents:
        draft.mark(parent)
    first = commit.first_parent
    mark = draft.mark(first) if first else None
    place = rules.placed(commit, (mark.place, mark.run) if mark else None, mark.events if mark else 0)
    jump = jump_of_child(draft.marks, first) if first else digest
    draft.marks[digest] = Mark(place, commit.run, len(changeset.events), first, jump)
    for label in rules.labels(commit, changeset, mark.run if mark else None):
        draft.labels[label] = (*draft.labels.get(label, ()), digest)


def _add_move(draft: _Space, move: Move, op_id: str) -> Head:
    if move.to is not None:
        draft.mark(move.to)
    hold, stored, record = rules.record_of(move, draft.hold(move.timeline), op_id)
    draft.objects[stored.digest] = stored
    draft.records[move.timeline, hold.head.version] = record
    draft.holds[move.timeline] = hold
    return hold.head


def _add_cell(draft: _Space, space: str, wanted: CellWrite) -> int:
    cell = Cell(space, wanted.name, wanted.expected + 1, wanted.value)
    draft.cells[wanted.name] = _Filed(cell, wanted.listed)
    return cell.revision


def _add_entries(draft: _Space, bodies: Iterable[bytes]) -> Entry | None:
    """Add to the ledger; the last entry added, None if there was none."""
    added: Entry | None = None
    for body in bodies:
        position, chain = (draft.last.position, draft.last.chain) if draft.last else (0, None)
        added = draft.last = Entry(position + 1, rules.chained(chain, body), body)
        draft.entries[added.position] = added
    return added


def _checked(space: _Space, position: int) -> Entry:
    entry, before = space.entries[position], space.entries.get(position - 1)
    if entry.chain != rules.chained(before.chain if before else None, entry.body):
        raise Corrupt(f"entry {position} of the ledger does not fit the chain; it was not returned.")
    return entry


def _fact(digest: Digest, stored: Object | _Tombstone) -> Fact:
    if isinstance(stored, _Tombstone):
        return Fact(stored.kind, digest, None, forgotten=stored.why)
    try:
        return Fact(stored.kind, digest, Object.read(stored.kind, digest, stored.body))
    except Corrupt as fault:
        return Fact(stored.kind, digest, None, fault=str(fault))


def _tombstone(op: Recorded | _Tombstone, why: str) -> _Tombstone:
    return op if isinstance(op, _Tombstone) else _Tombstone("write", why)


def _emptied(cell: Cell) -> _Filed:
    revision = cell.revision + (cell.value is not None)
    return _Filed(Cell(cell.space, cell.name, revision, None), listed=False)


def _size(space: _Space) -> int:
    """The bytes of objects, cells and entries."""
    objects = sum(len(stored.body) for stored in space.objects.values() if isinstance(stored, Object))
    cells = sum(len(filed.cell.value or b"") for filed in space.cells.values())
    return objects + cells + sum(len(entry.body) for entry in space.entries.values())
