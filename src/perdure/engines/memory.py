"""The memory engine: the contract in dictionaries, the model that other engines are compared with.

Every write is made on a *draft*, whose dictionaries are layered over the real ones; a refusal
drops the draft, a success merges it in.  One lock serves all memory stores of a process,
so that a fork finds none of them half written; the child then has a copy of its own.

Nothing is durable: a store is gone with the last engine that has it open.
"""

from __future__ import annotations

import os
import weakref
from collections import ChainMap
from collections.abc import Callable, Generator, Iterable, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from threading import Event, Lock
from typing import TypeVar, cast

import msgspec

from perdure.engines import shared_rules
from perdure.engines.contract import (
    GC,
    Answer,
    Buried,
    Cell,
    CellOf,
    CellWrite,
    Fact,
    Fence,
    HeadOf,
    Hold,
    Instant,
    LabelOf,
    Labels,
    LedgerEntry,
    LedgerOf,
    Move,
    OpOf,
    Place,
    Question,
    Rebuilt,
    Receipt,
    Recorded,
    Replay,
    Step,
    Write,
    Written,
)
from perdure.engines.holders import Openings
from perdure.engines.news import Waiters
from perdure.engines.shared_rules import Mark, damaged, jump_of_child
from perdure.errors import Corrupt, Forgotten, NotFound, OpReused, Unavailable, Unsupported
from perdure.model.commit import (
    NO_LEDGER,
    Changeset,
    Commit,
    CommitEvents,
    LedgerRead,
    MoveRecord,
    decode_changeset,
    decode_commit,
    decode_move,
)
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import MessageAppended
from perdure.model.head import Head

__all__ = ["MemoryEngine", "MemoryStore", "Filed", "SpaceState"]


_K = TypeVar("_K")
_V = TypeVar("_V")


def over(below: MutableMapping[_K, _V] | None) -> MutableMapping[_K, _V]:
    """Return an empty dictionary, or one that is layered over `below` and leaves `below` unchanged."""
    return {} if below is None else ChainMap({}, below)


class Tombstone(msgspec.Struct, frozen=True):
    """What is left of a forgotten object or op_id."""

    kind: str
    why: str


class Filed(msgspec.Struct, frozen=True):
    """A cell, and whether it can be found across spaces."""

    cell: Cell
    listed: bool
    digest: bytes

    @classmethod
    def of(cls, cell: Cell, *, listed: bool) -> Filed:
        """File a cell under its digest."""
        return cls(cell, listed, shared_rules.cell_digest(cell, listed=listed))

    def checked(self) -> Cell:
        """Return the cell, checked against its digest."""
        return shared_rules.check_cell(self.cell, self.digest, listed=self.listed)


class SpaceState:
    """The dictionaries that a memory store has for one space."""

    def __init__(self, below: SpaceState | None = None) -> None:
        """Make an empty space, or a draft that is layered over `below`."""
        self.objects: MutableMapping[Digest, Object | Tombstone] = over(below and below.objects)
        self.marks: MutableMapping[Digest, Mark] = over(below and below.marks)
        self.labels: MutableMapping[str, tuple[Digest, ...]] = over(below and below.labels)
        self.holds: MutableMapping[str, Hold] = over(below and below.holds)
        self.records: MutableMapping[tuple[str, int], MoveRecord] = over(below and below.records)
        self.cells: MutableMapping[str, Filed] = over(below and below.cells)
        self.entries: MutableMapping[int, LedgerEntry] = over(below and below.entries)
        self.ops: MutableMapping[str, Recorded | Tombstone] = over(below and below.ops)
        self.last: LedgerEntry | None = below and below.last
        self.standing: int = below.standing + 1 if below else 0  # how many writes became true
        self.sizes: list[int] = []  # how many objects there were after each write
        self.seal: int = below.seal if below else 0  # what `sum` must return

    def take(self, draft: SpaceState) -> None:
        """Take over what was made on `draft`."""
        layered: dict[str, object] = vars(draft)
        for name, made in layered.items():
            if isinstance(made, ChainMap):
                vars(self)[name].update(cast("ChainMap[object, object]", made).maps[0])
        self.last = draft.last
        self.standing = draft.standing
        self.sizes.append(len(self.objects))
        self.seal = draft.seal

    def revision(self, cell: str) -> int:
        """Return how often the cell was written."""
        filed = self.cells.get(cell)
        return filed.checked().revision if filed else 0

    def ledger_left(self) -> LedgerRead:
        """Return where the newest write that added to the ledger left it."""
        receipts = [op.receipt for op in self.ops.values() if isinstance(op, Recorded)]
        newest = max(receipts, key=lambda receipt: receipt.position, default=None)
        return LedgerRead(newest.position, newest.chain) if newest else LedgerRead()

    def ledger_stored(self) -> LedgerRead:
        """Return where the ledger ends."""
        last = self.entries.get(max(self.entries, default=0))
        return LedgerRead(last.position, last.chain) if last else LedgerRead()

    def sum(self) -> int:
        """Return the sum over everything in the space that can change."""
        ledger = self.entries.get(len(self.entries))
        total = 0 if ledger is None else shared_rules.sealed_ledger(ledger.position, ledger.chain)
        total += sum(shared_rules.sealed_cell(name, filed.digest) for name, filed in self.cells.items())
        return (
            total + sum(shared_rules.sealed_head(name, hold.move) for name, hold in self.holds.items())
        ) & shared_rules.SEAL_MASK

    def hold(self, timeline: str) -> Hold | None:
        """Return the head of a timeline, checked against its last move."""
        hold = self.holds.get(timeline)
        if hold is None or hold.move is None:
            return shared_rules.unmoved(timeline)
        shared_rules.check_hold(hold, decode_move(self._named(hold.move).body))
        return hold

    def object(self, digest: Digest) -> Object:
        """Return the object, checked against its digest."""
        match self.objects.get(digest):
            case None:
                raise NotFound(
                    f"there is no object {digest} in this space.", code="object_not_found", digest=digest
                )
            case Tombstone(kind, why):
                raise Forgotten(f"{kind} {digest}", why)
            case found:
                return Object.read(found.kind, digest, found.body)

    def _named(self, digest: Digest) -> Object:
        """Return an object that a head or a commit names; raise `Corrupt` if it is not there."""
        if digest not in self.objects:
            raise damaged(f"{digest} is named in this space and missing.", "object_missing", digest=digest)
        return self.object(digest)

    def mark(self, commit: Digest) -> Mark:
        """Return what the store keeps of the commit; raise `NotFound` if there is none."""
        mark = self.marks.get(commit)
        if mark is None:
            raise NotFound(
                f"there is no commit {commit} in this space.", code="commit_not_found", commit=commit
            )
        return mark

    def step(self, digest: Digest) -> Step:
        """Return the commit, decoded, with its changeset and place."""
        commit = decode_commit(self.object(digest).body)
        changeset = decode_changeset(self._named(commit.changeset).body)
        return Step(digest, commit, changeset, self.mark(digest).place)

    def bodies_of(self, step: Step) -> dict[Digest, bytes]:
        """Return the bodies of the messages of a commit, without those that were forgotten."""
        messages = [event for event in step.changeset.events if isinstance(event, MessageAppended)]
        named = [digest for event in messages for digest in (event.body, event.vendor)]
        return {
            digest: self.object(digest).body
            for digest in named
            if digest is not None and isinstance(self.objects.get(digest), Object)
        }

    def back(self, at: Digest, enough: Callable[[Place], bool]) -> Digest | None:
        """Return the first commit from `at` backwards that is `enough`, if all commits before it are so too."""
        here: Digest | None = at
        while here is not None and not enough(self.mark(here).place):
            mark = self.mark(here)
            here = mark.parent if enough(self.mark(mark.jump).place) or mark.jump == here else mark.jump
        return here


_LOCK = Lock()
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


class MemoryStore:
    """The content of a memory store; two engines on one of these are two openings of one store."""

    def __init__(self, place: str = "memory:") -> None:
        """Begin an empty store; `place` is its name for people."""
        self.place = place
        self.spaces: dict[str, SpaceState] = {}
        self.openings = Openings()
        self.waiters: weakref.WeakSet[Waiters] = weakref.WeakSet()  # of all openings


class MemoryEngine:
    """An `Engine` whose store lives no longer than this process; the contract says what each method promises."""

    def __init__(self, store: MemoryStore | None = None, *, read_only: bool = False) -> None:
        """Open `store`; None makes a new one for this engine alone."""
        self._store = store or MemoryStore()
        self._read_only = read_only
        self._closed = False
        self._compared: set[str] = set()  # spaces that were as their newest write left them
        self._names: dict[int, str] = {}  # of this opening, by process: a forked child has its own
        self._waiters = Waiters(self._standings, closed=_closed_error)
        with _LOCK:
            self._store.waiters.add(self._waiters)

    def apply(self, write: Write) -> Receipt:
        shared_rules.check_write(write)
        with self._opened(writing=True) as spaces:
            space = spaces.get(write.space) or SpaceState()
            self._compare(write.space, space)
            earlier = self._earlier(space, write)
            if earlier is not None:
                return earlier
            draft = SpaceState(space)
            receipt = _make(draft, write)
            space.take(draft)
            spaces[write.space] = space
            waiters = list(self._store.waiters)
        for each in waiters:
            if write.space in each.spaces:
                each.written(write.space, draft.standing)
        return receipt

    def _earlier(self, space: SpaceState, write: Write) -> Receipt | None:
        """Return the receipt of this same write if it became true before; raise `OpReused` if another did under its op_id."""
        match space.ops.get(write.op_id):
            case None:
                return None
            case Tombstone(kind, why):
                raise Forgotten(f"{kind} '{write.op_id}'", why)
            case found if found.intent != write.intent:
                raise OpReused(write.op_id)
            case found:
                return found.receipt

    def recorded(self, space: str, op_id: str) -> Recorded | None:
        return self.answers((OpOf(space, op_id),))[0]

    def answers(self, questions: Sequence[Question], *, fresh: bool = True) -> Sequence[Answer]:
        with self._opened() as spaces:
            return [_answer(spaces.get(each.space) or SpaceState(), each) for each in questions]

    def objects(self, space: str, digests: Sequence[Digest]) -> Sequence[Object]:
        with self._reading(space) as found:
            return [found.object(digest) for digest in digests]

    def missing(self, space: str, digests: Sequence[Digest]) -> Sequence[Digest]:
        with self._reading(space) as found:
            return [digest for digest in digests if digest not in found.objects]

    def steps(
        self, space: str, at: Digest, *, skip: int = 0, limit: int, bodies: bool = False, labels: Labels = ()
    ) -> Sequence[Step]:
        with self._reading(space) as found:
            depth = found.mark(at).place.depth - skip
            here = found.back(at, lambda place: place.depth <= depth)
            steps: list[Step] = []
            while here is not None and len(steps) < limit:
                step = found.step(here)
                steps.append(msgspec.structs.replace(step, bodies=found.bodies_of(step)) if bodies else step)
                here = found.mark(here).parent
            return steps if not labels else shared_rules.newest_labelled(steps, labels)

    def events(self, space: str, at: Digest, *, limit: int, bodies: bool = False) -> Sequence[CommitEvents]:
        return [step.as_events() for step in self.steps(space, at, limit=limit, bodies=bodies)]

    def turn(self, space: str, at: Digest, turn: int) -> Step | None:
        with self._reading(space) as found:
            last = found.back(at, lambda place: place.turn <= turn)
            return found.step(last) if last is not None and found.mark(last).place.turn == turn else None

    def labelled(self, space: str, label: str) -> Sequence[Digest]:
        return self.answers((LabelOf(space, label),))[0]

    def commits(self, space: str, prefix: str, *, limit: int) -> Sequence[Digest]:
        with self._reading(space) as found:
            return sorted(digest for digest in found.marks if digest.startswith(prefix))[:limit]

    def hold(self, space: str, timeline: str) -> Hold | None:
        return self.answers((HeadOf(space, timeline),))[0]

    def holds(self, space: str, *, after: str = "", limit: int) -> Sequence[Hold]:
        with self._reading(space) as found:
            names = sorted(name for name in found.holds if name > after)[:limit]
            return [hold for name in names if (hold := found.hold(name)) is not None]

    def moves(
        self, space: str, timeline: str, *, before: int | None = None, limit: int
    ) -> Sequence[MoveRecord]:
        with self._reading(space) as found:
            hold = found.hold(timeline)
            top = hold.head.version if hold else -1
            versions = range(top if before is None else min(top, before - 1), -1, -1)
            records = (found.records.get((timeline, version)) for version in versions)
            return list(islice((record for record in records if record is not None), limit))

    def cell(self, space: str, name: str) -> Cell | None:
        return self.answers((CellOf(space, name),))[0]

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
        with self._reading(space) as found:
            full = {name: filed for name, filed in found.cells.items() if filed.cell.value is not None}
        matching = [
            filed
            for name, filed in full.items()
            if name.startswith(prefix) and name > after and (before is None or name < before)
        ]
        matching.sort(key=lambda filed: filed.cell.name, reverse=descending)
        return [filed.checked() for filed in matching[:limit]]

    def cells_of(self, spaces: Sequence[str], name: str) -> Sequence[Cell]:
        with self._opened() as found:
            filed = [found[space].cells.get(name) for space in spaces if space in found]
            return [each.checked() for each in filed if each is not None]

    def listed(self, *, prefix: str, after: tuple[str, str] = ("", ""), limit: int) -> Sequence[Cell]:
        with self._opened() as spaces:
            filed = [filed for space in spaces.values() for filed in space.cells.values()]
        full = {(it.cell.name, it.cell.space): it for it in filed if it.listed and it.cell.value is not None}
        wanted = sorted(key for key in full if key > after and key[0].startswith(prefix))
        return [full[key].checked() for key in wanted[:limit]]

    def entries(
        self, space: str, *, after: int = 0, before: int | None = None, descending: bool = False, limit: int
    ) -> Sequence[LedgerEntry]:
        with self._reading(space) as found:
            end = max(found.entries, default=0) + 1
            positions = range(after + 1, end if before is None else min(before, end))
            ordered = reversed(positions) if descending else positions
            return [_checked(found, position) for position in islice(ordered, limit)]

    def ledger(self, space: str) -> LedgerRead:
        return self.answers((LedgerOf(space),))[0]

    def check(self, space: str, *, again: bool = False) -> None:
        with self._reading(space) as found:
            if again:
                self._compared.discard(space)
                for filed in found.cells.values():
                    filed.checked()
            self._compare(space, found)

    def _compare(self, name: str, space: SpaceState) -> None:
        if name not in self._compared:
            shared_rules.check_seal(name, space.sum(), space.seal)
            self._compared.add(name)

    def reseal(self, space: str, cells: Sequence[Rebuilt] = ()) -> None:
        with self._opened(writing=True) as spaces:
            found = spaces.get(space)
            if found is not None:
                shared_rules.check_ledger_end(space, found.ledger_left(), found.ledger_stored())
                for each in cells:
                    before = found.cells.get(each.name)
                    revision = each.revision or (before.cell.revision + 1 if before else 1)
                    cell = Cell(space, each.name, revision, each.value, each.position)
                    found.cells[each.name] = Filed.of(cell, listed=each.listed)
                found.cells.update(
                    {name: Filed.of(filed.cell, listed=filed.listed) for name, filed in found.cells.items()}
                )
                found.seal = found.sum()

    def spaces(self, *, after: str = "", limit: int) -> Sequence[str]:
        with self._opened() as spaces:
            return sorted(name for name in spaces if name > after)[:limit]

    def scan(self, space: str, *, after: int = 0, limit: int) -> tuple[Sequence[Fact], int | None]:
        found, cursor = self.writes(space, after=after, limit=limit)
        return [fact for each in found for fact in each.facts], cursor

    def writes(self, space: str, *, after: int = 0, limit: int) -> tuple[Sequence[Written], int | None]:
        """Return writes in order; a cursor counts them, and an object belongs to the first write that stored it."""
        with self._reading(space) as found:
            sizes = [0, *found.sizes]
            ends = range(after + 1, len(sizes) - 1)
            cursor = next((at for at in ends if sizes[at] - sizes[after] >= limit), None)
            last = len(sizes) - 1 if cursor is None else cursor
            stored = (
                iter(islice(found.objects.items(), sizes[after], sizes[last])) if after < last else iter(())
            )
            ops = islice(found.ops.items(), after, last)
            counts = [sizes[at + 1] - sizes[at] for at in range(after, last)]
            return [_written(*op, islice(stored, size)) for op, size in zip(ops, counts, strict=True)], cursor

    def stored_cells(self, space: str, *, after: str = "", limit: int) -> Sequence[Rebuilt]:
        with self._reading(space) as found:
            filed = [found.cells[name] for name in sorted(found.cells) if name > after][:limit]
            return [shared_rules.rebuilt(each.checked(), listed=each.listed) for each in filed]

    def standing(self, space: str) -> int:
        with self._reading(space) as found:
            return found.standing

    def wait(
        self, seen: Mapping[str, int], seconds: float, *, woken: Event | None = None
    ) -> Mapping[str, int]:
        return self._waiters.wait(seen, seconds, woken)

    def _standings(self, names: Iterable[str]) -> dict[str, int]:
        with self._opened() as spaces:
            return {name: spaces[name].standing if name in spaces else 0 for name in names}

    def forget(self, space: str, digests: Sequence[Digest], *, why: str, standing: int) -> int:
        with self._opened(writing=True) as spaces:
            found = spaces.get(space) or SpaceState()
            shared_rules.check_standing(space, standing, found.standing)
            known = {digest: found.objects.get(digest) for digest in digests}
            stored = [each for each in known.values() if isinstance(each, Object)]
            for each in stored:
                shared_rules.check_forgettable(each.kind, each.digest)
            if stored:
                _add_cell(found, space, CellWrite(name=GC, expected=found.revision(GC), value=None), 0)
            found.objects.update({each.digest: Tombstone(each.kind, why) for each in stored})
            return sum(len(each.body) for each in stored)

    def drop(self, space: str, *, why: str) -> int:
        """Forget a whole space, except that its op_ids stay as tombstones and its cells go on counting."""
        with self._opened(writing=True) as spaces:
            if space not in spaces:
                return 0
            old, new = spaces[space], SpaceState()
            new.standing, new.sizes = old.standing, [0] * len(old.sizes)
            tombstone = Tombstone("write", why)
            new.ops.update({id: op if isinstance(op, Tombstone) else tombstone for id, op in old.ops.items()})
            new.cells.update({name: _emptied(filed.cell) for name, filed in old.cells.items()})
            new.seal = new.sum()
            spaces[space] = new
            return _size(old)

    def instant(self) -> Instant:
        """Return the time now, on this process's monotonic clock."""
        with self._opened():
            return self._store.openings.instant()

    def holder(self) -> str:
        with self._opened(writing=True):
            self._names[os.getpid()] = self._names.get(os.getpid()) or self._store.openings.enter()
            return self._names[os.getpid()]

    def gone(self, holder: str) -> bool:
        with self._opened():
            return self._store.openings.gone(holder)

    def backup(self, path: Path) -> None:
        text = f"a memory store has no file to copy; nothing was written to '{path}'."
        raise Unsupported(text, code="file_missing", path=str(path))

    def counters(self) -> dict[str, int]:
        return {}

    def facts(self) -> dict[str, str | int]:
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
        with _LOCK:
            self._closed = True
            self._store.openings.leave(self._names.get(os.getpid(), ""))
        self._waiters.close()

    @contextmanager
    def _opened(self, *, writing: bool = False) -> Generator[dict[str, SpaceState]]:
        """Return all spaces, under the lock."""
        if self._closed:
            raise _closed_error()
        if writing and self._read_only:
            raise Unavailable(
                "this memory store was opened read-only; nothing was written.", code="opened_read_only"
            )
        with _LOCK:
            yield self._store.spaces

    @contextmanager
    def _reading(self, space: str) -> Generator[SpaceState]:
        """Return one space; an empty one if it was never written."""
        with self._opened() as spaces:
            yield spaces.get(space) or SpaceState()


def _closed_error() -> Unavailable:
    said = "this memory store was closed; nothing was done."
    return Unavailable(said, code="store_closed", advice="Open it again.")


def _answer(found: SpaceState, question: Question) -> Answer:
    """Answer one question about its space."""
    match question:
        case HeadOf(_, timeline):
            return found.hold(timeline)
        case CellOf(_, name):
            filed = found.cells.get(name)
            return filed.checked() if filed else None
        case LedgerOf():
            return LedgerRead(found.last.position, found.last.chain) if found.last else NO_LEDGER
        case LabelOf(_, label):
            return found.labels.get(label, ())
        case OpOf(_, op_id):
            recorded = found.ops.get(op_id)
            if isinstance(recorded, Tombstone):
                raise Forgotten(f"{recorded.kind} '{op_id}'", recorded.why)
            return recorded


def _make(draft: SpaceState, write: Write) -> Receipt:
    """Check `write` in the contract's order and make it true on `draft`."""
    for fence in write.fences:
        shared_rules.check_fence(fence, draft.revision(fence.cell))
    for cell in write.cells:
        shared_rules.check_fence(Fence(cell.name, cell.expected), draft.revision(cell.name))
    for move in write.moves:
        shared_rules.check_move(move, draft.hold(move.timeline))
    _add_objects(draft, write.objects)
    heads = tuple(_add_move(draft, move, write.op_id) for move in write.moves)
    last = _add_entries(draft, write.entries)
    position = last.position if last else 0
    revisions = tuple(_add_cell(draft, write.space, cell, position) for cell in write.cells)
    if isinstance(write, Replay):
        revisions = write.revisions
    receipt = Receipt(
        op_id=write.op_id,
        heads=heads,
        revisions=revisions,
        position=position,
        chain=last.chain if last else None,
    )
    draft.ops[write.op_id] = Recorded(write.intent, receipt)
    return receipt


def _add_objects(draft: SpaceState, objects: Sequence[Object]) -> None:
    for new in objects:
        found = draft.objects.get(new.digest)
        if isinstance(new, Buried):
            draft.objects[new.digest] = found or Tombstone(new.kind, new.why)
            continue
        if isinstance(found, Object) and (found.kind, found.body) != (new.kind, new.body):
            raise Corrupt(
                f"two different objects have the digest {new.digest}; nothing was written.",
                code="digest_collision",
                digest=new.digest,
            )
        draft.objects[new.digest] = found if isinstance(found, Object) else new
    changesets = {new.digest: new.body for new in objects if new.kind is Kind.CHANGESET}
    for new in objects:
        if new.kind is Kind.COMMIT:
            commit = decode_commit(new.body)
            if commit.changeset not in changesets:
                raise NotFound(
                    f"commit {new.digest} comes without its changeset; nothing was written.",
                    code="changeset_missing",
                    commit=new.digest,
                )
            _add_commit(draft, new.digest, commit, decode_changeset(changesets[commit.changeset]))


def _add_commit(draft: SpaceState, digest: Digest, commit: Commit, changeset: Changeset) -> None:
    if digest in draft.marks:
        return
    for parent in commit.parents:
        draft.mark(parent)
    first = commit.first_parent
    mark = draft.mark(first) if first else None
    place = shared_rules.placed(commit, (mark.place, mark.run) if mark else None, mark.events if mark else 0)
    jump = jump_of_child(draft.marks, first) if first else digest
    draft.marks[digest] = Mark(place, commit.run, len(changeset.events), first, jump)
    for label in shared_rules.labels(commit, changeset, mark.run if mark else None):
        draft.labels[label] = (*draft.labels.get(label, ()), digest)


def _add_move(draft: SpaceState, move: Move, op_id: str) -> Head:
    if move.to is not None:
        draft.mark(move.to)
    hold, stored, record = shared_rules.record_of(move, draft.hold(move.timeline), op_id)
    draft.objects[stored.digest] = stored
    draft.records[move.timeline, hold.head.version] = record
    before = draft.holds.get(move.timeline)
    draft.seal += shared_rules.sealed_head(move.timeline, hold.move)
    draft.seal -= shared_rules.sealed_head(move.timeline, before.move if before else None)
    draft.holds[move.timeline] = hold
    return hold.head


def _add_cell(draft: SpaceState, space: str, wanted: CellWrite, position: int) -> int:
    cell = Cell(space, wanted.name, wanted.expected + 1, wanted.value, position)
    before, filed = draft.cells.get(wanted.name), Filed.of(cell, listed=wanted.listed)
    draft.seal += shared_rules.sealed_cell(wanted.name, filed.digest)
    draft.seal -= shared_rules.sealed_cell(wanted.name, before.digest) if before else 0
    draft.cells[wanted.name] = filed
    return cell.revision


def _add_entries(draft: SpaceState, bodies: Iterable[bytes]) -> LedgerEntry | None:
    """Add to the ledger; return the last entry added, None if there was none."""
    added, before = None, draft.last
    for body in bodies:
        position, chain = (draft.last.position, draft.last.chain) if draft.last else (0, None)
        added = draft.last = LedgerEntry(position + 1, shared_rules.chained(chain, body), body)
        draft.entries[added.position] = added
    if added is not None:
        draft.seal += shared_rules.sealed_ledger(added.position, added.chain)
        draft.seal -= shared_rules.sealed_ledger(before.position, before.chain) if before else 0
    return added


def _checked(space: SpaceState, position: int) -> LedgerEntry:
    entry, before = space.entries.get(position), space.entries.get(position - 1)
    if entry is None or entry.chain != shared_rules.chained(before.chain if before else None, entry.body):
        raise shared_rules.broken_chain(position)
    return entry


def _written(
    op_id: str, op: Recorded | Tombstone, stored: Iterable[tuple[Digest, Object | Tombstone]]
) -> Written:
    facts = tuple(_fact(digest, found) for digest, found in stored)
    return Written(op_id, None, facts, op.why) if isinstance(op, Tombstone) else Written(op_id, op, facts)


def _fact(digest: Digest, stored: Object | Tombstone) -> Fact:
    if isinstance(stored, Tombstone):
        return Fact(stored.kind, digest, None, forgotten=stored.why)
    try:
        return Fact(stored.kind, digest, Object.read(stored.kind, digest, stored.body))
    except Corrupt as fault:
        return Fact(stored.kind, digest, None, fault=fault.message)


def _emptied(cell: Cell) -> Filed:
    return Filed.of(Cell(cell.space, cell.name, cell.revision + (cell.value is not None), None), listed=False)


def _size(space: SpaceState) -> int:
    """Return the bytes of objects, cells and entries."""
    objects = sum(len(stored.body) for stored in space.objects.values() if isinstance(stored, Object))
    cells = sum(len(filed.cell.value or b"") for filed in space.cells.values())
    return objects + cells + sum(len(entry.body) for entry in space.entries.values())
