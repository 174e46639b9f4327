"""The dictionaries that a memory store keeps for one space."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

import msgspec

from perdure.engines import rules
from perdure.engines.contract import Cell, Entry, Hold, Place, Recorded, Step
from perdure.engines.layers import over, pour
from perdure.engines.marks import Mark
from perdure.errors import Corrupt, Forgotten, NotFound
from perdure.model.changeset import decode_changeset
from perdure.model.commit import LedgerRead, MoveRecord, decode_commit, decode_move
from perdure.model.digest import Digest, Object

__all__ = ["Filed", "SpaceState", "Tombstone"]


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
        return cls(cell, listed, rules.cell_digest(cell, listed=listed))

    def checked(self) -> Cell:
        """The cell, checked against its digest."""
        return rules.check_cell(self.cell, self.digest, listed=self.listed)


class SpaceState:
    """One space's dictionaries."""

    def __init__(self, below: SpaceState | None = None) -> None:
        """Make an empty space, or a draft that lies over `below`."""
        self.objects: MutableMapping[Digest, Object | Tombstone] = over(below and below.objects)
        self.marks: MutableMapping[Digest, Mark] = over(below and below.marks)
        self.labels: MutableMapping[str, tuple[Digest, ...]] = over(below and below.labels)
        self.holds: MutableMapping[str, Hold] = over(below and below.holds)
        self.records: MutableMapping[tuple[str, int], MoveRecord] = over(below and below.records)
        self.cells: MutableMapping[str, Filed] = over(below and below.cells)
        self.entries: MutableMapping[int, Entry] = over(below and below.entries)
        self.ops: MutableMapping[str, Recorded | Tombstone] = over(below and below.ops)
        self.last: Entry | None = below and below.last
        self.standing: int = below.standing + 1 if below else 0  # how many writes became true
        self.seal: int = below.seal if below else 0  # what `sum` must give

    def take(self, draft: SpaceState) -> None:
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
        self.seal = draft.seal

    def revision(self, cell: str) -> int:
        """How often the cell was written."""
        filed = self.cells.get(cell)
        return filed.checked().revision if filed else 0

    def ledger_left(self) -> LedgerRead:
        """Where the newest write that added to the ledger left it."""
        receipts = [op.receipt for op in self.ops.values() if isinstance(op, Recorded)]
        newest = max(receipts, key=lambda receipt: receipt.position, default=None)
        return LedgerRead(newest.position, newest.chain) if newest else LedgerRead()

    def ledger_stored(self) -> LedgerRead:
        """Where the ledger ends."""
        last = self.entries.get(max(self.entries, default=0))
        return LedgerRead(last.position, last.chain) if last else LedgerRead()

    def sum(self) -> int:
        """The sum over everything in the space that can change."""
        ledger = self.entries.get(len(self.entries))
        total = 0 if ledger is None else rules.sealed_ledger(ledger.position, ledger.chain)
        total += sum(rules.sealed_cell(name, filed.digest) for name, filed in self.cells.items())
        return (
            total + sum(rules.sealed_head(name, hold.move) for name, hold in self.holds.items())
        ) & rules.SEAL_MASK

    def hold(self, timeline: str) -> Hold | None:
        """Where the timeline stands, checked against its last move."""
        hold = self.holds.get(timeline)
        if hold is None or hold.move is None:
            return rules.unmoved(timeline)
        rules.check_hold(hold, decode_move(self._named(hold.move).body))
        return hold

    def object(self, digest: Digest) -> Object:
        """The object, checked against its digest."""
        match self.objects.get(digest):
            case None:
                raise NotFound(f"there is no object {digest} in this space.")
            case Tombstone(kind, why):
                raise Forgotten(f"{kind} {digest}", why)
            case found:
                return Object.read(found.kind, digest, found.body)

    def _named(self, digest: Digest) -> Object:
        """An object that a head or a commit names; raises `Corrupt` if it is not there."""
        if digest not in self.objects:
            raise Corrupt(f"{digest} is named in this space and missing.", digest=digest)
        return self.object(digest)

    def mark(self, commit: Digest) -> Mark:
        """What is remembered of the commit."""
        mark = self.marks.get(commit)
        if mark is None:
            raise NotFound(f"there is no commit {commit} in this space.")
        return mark

    def step(self, digest: Digest) -> Step:
        """The commit, decoded, with its changeset and place."""
        commit = decode_commit(self.object(digest).body)
        changeset = decode_changeset(self._named(commit.changeset).body)
        return Step(digest, commit, changeset, self.mark(digest).place)

    def back(self, at: Digest, enough: Callable[[Place], bool]) -> Digest | None:
        """The first commit from `at` backwards that is `enough`, if all commits before it are so too."""
        here: Digest | None = at
        while here is not None and not enough(self.mark(here).place):
            mark = self.mark(here)
            here = mark.parent if enough(self.mark(mark.jump).place) or mark.jump == here else mark.jump
        return here
