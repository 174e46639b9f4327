"""Rules that every engine applies in the same way, so that all of them store the same bytes.

Pure functions over the contract's types: how a move is recorded, which place a commit has
on its line, how the ledger is chained, which ids name a commit, in what two nodes differ.  `EngineCounters` counts
what an opening has done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from struct import unpack
from typing import TypeAlias

import msgspec

from perdure.engines.contract import Cell, Fence, Hold, Move, Place, Rebuilt, Step, Write
from perdure.errors import Conflict, Corrupt, InDoubt, Invalid, Moved, NotFound, Sealed, StaleHead
from perdure.model.commit import Changeset, Commit, LedgerRead, MoveRecord, encode_move
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import Event, MessageAppended, MessageRetracted, MomentNamed
from perdure.model.fork_safety import ThreadLock
from perdure.model.head import MAIN, Head
from perdure.model.names import moment_label, retraction_label

__all__ = [
    "FAILURES",
    "SEAL_BYTES",
    "SEAL_MASK",
    "EngineCounters",
    "Mark",
    "SealedAtBy",
    "cell_digest",
    "broken_chain",
    "chained",
    "check_cell",
    "check_fence",
    "check_forgettable",
    "check_hold",
    "check_ledger_end",
    "check_move",
    "check_seal",
    "check_standing",
    "check_write",
    "damaged",
    "difference",
    "event_labels",
    "jump_of_child",
    "labels",
    "newest_labelled",
    "placed",
    "read_sealed_at_by",
    "rebuilt",
    "sealed_at_by",
    "sealed_cell",
    "sealed_cells",
    "sealed_head",
    "sealed_ledger",
    "sealed_parts",
    "record_of",
    "unmoved",
]

ROOT = Place(depth=-1, turn=0, sequence=0)
SEAL_BYTES = 16
SEAL_MASK = (1 << 8 * SEAL_BYTES) - 1


def damaged(
    message: str, code: str, *, cell: str | None = None, digest: str | None = None, **facts: object
) -> Corrupt:
    """Return the error for stored data that is not what was written; it advises to run `perdure verify`."""
    return Corrupt(message, code=code, advice="Run `perdure verify`.", cell=cell, digest=digest, **facts)


def unmoved(timeline: str) -> Hold | None:
    """Return the state of a timeline without a recorded move: `main` is at version 0, others do not exist."""
    return Hold(Head(MAIN, 0, None)) if timeline == MAIN else None


def check_write(write: Write) -> None:
    """Raise `Invalid` if `write` moves one timeline or writes one cell twice, or holds what is not text."""
    if len(write.moves) > 1:
        _check_once("moves timeline", [move.timeline for move in write.moves])
    if len(write.cells) > 1:
        _check_once("writes cell", [cell.name for cell in write.cells])
    if not write.cells and not write.entries:
        return
    for body in (*(cell.value or b"" for cell in write.cells), *write.entries):
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise Invalid(
                f"a cell or entry must be UTF-8 text ({error}); nothing was written.", code="not_utf8"
            ) from error


def _check_once(what: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Invalid(
            f"one write {what} '{twice}' twice; nothing was written.",
            code="written_twice",
            advice="Make it two writes.",
            name=twice,
        )


def check_fence(fence: Fence, revision: int) -> None:
    """Raise `Moved` unless the fenced cell is at the revision that the writer read."""
    if revision != fence.revision:
        raise Moved(fence.cell, fence.revision, revision)


def check_move(move: Move, hold: Hold | None) -> None:
    """Raise `Sealed`, `StaleHead`, `Conflict` or `NotFound` unless `hold` is where `move` read it."""
    if move.expected is None:
        if hold is not None:
            raise Conflict(
                f"timeline '{move.timeline}' exists already; nothing was written.",
                code="timeline_exists",
                advice="Choose another name.",
                timeline=move.timeline,
            )
        return
    if move.expected.timeline != move.timeline:
        raise Invalid(
            f"a head of '{move.expected.timeline}' cannot move '{move.timeline}'; nothing was written.",
            code="head_of_another_timeline",
            timeline=move.timeline,
        )
    if hold is None:
        raise NotFound(
            f"there is no timeline '{move.timeline}'; nothing was written.",
            code="timeline_not_found",
            advice="Fork one first.",
            timeline=move.timeline,
        )
    if hold.sealed:
        raise Sealed(move.timeline)
    if hold.head != move.expected:
        raise StaleHead(move.expected, hold.head)
    if move.previous not in (None, hold.move):
        raise StaleHead(move.expected, hold.head, "it came there by another move than the writer read")


def record_of(move: Move, hold: Hold | None, op_id: str) -> tuple[Hold, Object, MoveRecord]:
    """Return the timeline after `move`, and the record of the move, as an object and decoded."""
    before = hold or Hold(Head(move.timeline, -1, None))
    record = MoveRecord(
        timeline=move.timeline,
        version=before.head.version + 1,
        act=move.act,
        op_id=op_id,
        from_=before.head.commit,
        to=move.to,
        previous=before.move,
        sealed=move.seal,
        at=move.at,
        author=move.author,
    )
    stored = Object.of(Kind.MOVE, encode_move(record))
    return Hold(Head(move.timeline, record.version, move.to), move.seal, stored.digest), stored, record


SealedAtBy: TypeAlias = bool | tuple[bool, int | None, str | None]


def sealed_at_by(move: MoveRecord) -> SealedAtBy:
    """Return whether a move seals its timeline, when it was made and by whom, as engines store it."""
    if move.at is None and move.author is None:
        return move.sealed
    return move.sealed, move.at, move.author


def read_sealed_at_by(stored: SealedAtBy) -> tuple[bool, int | None, str | None]:
    """Return what `sealed_at_by` made, part by part."""
    return (stored, None, None) if isinstance(stored, bool) else stored


def check_forgettable(kind: Kind, digest: Digest) -> None:
    """Raise `Invalid` for an object that proves the chain."""
    if kind in (Kind.COMMIT, Kind.CHANGESET, Kind.MOVE):
        raise Invalid(
            f"{kind} {digest} cannot be forgotten: the chain is proved by it; nothing was changed.",
            code="not_forgettable",
            digest=digest,
        )


def check_standing(space: str, read: int, now: int) -> None:
    """Raise `Conflict` if another writer wrote to the space after its standing was read."""
    if read != now:
        raise Conflict(
            f"another writer wrote to '{space}' after it was read; nothing was forgotten.",
            code="written_since",
            advice="Read it again and decide again.",
            space=space,
        )


def check_hold(hold: Hold, record: MoveRecord) -> None:
    """Raise `Corrupt` unless the head is where its last move left it."""
    moved = Head(record.timeline, record.version, record.to)
    if hold.head != moved or hold.sealed != record.sealed:
        raise damaged(
            f"the head of timeline '{hold.head.timeline}' is at version {hold.head.version}, but its last recorded move left it at version {record.version}; it was not used.",
            "head_damaged",
            timeline=hold.head.timeline,
        )


def placed(commit: Commit, parent: tuple[Place, str | None] | None, before: int) -> Place:
    """Return the place of `commit`, given its first parent's place and run, and the parent's number of events.

    A commit of the same run as its parent belongs to the same turn; any other begins one.
    """
    place, run = parent or (ROOT, None)
    if commit.depth != place.depth + 1:
        raise Invalid(
            f"a commit names depth {commit.depth} after depth {place.depth}; nothing was written.",
            code="depth_wrong",
            depth=commit.depth,
        )
    same = commit.run is not None and commit.run == run
    return Place(commit.depth, place.turn + (not same), place.sequence + before)


def labels(commit: Commit, changeset: Changeset, parent_run: str | None) -> set[str]:
    """Return the labels of this commit: those that its events give it, and the id of the run that it begins."""
    names = set(event_labels(changeset.events))
    if commit.run is not None and commit.run != parent_run:
        names.add(commit.run)
    return names


def event_labels(events: Iterable[Event]) -> dict[str, None]:
    """Return the labels that its events give a commit, each once: of its messages, retractions and names."""
    found: dict[str, None] = {}
    for event in events:
        if isinstance(event, MessageAppended):
            found[event.id] = None
        elif isinstance(event, MomentNamed):
            found[moment_label(event.name)] = None
        elif isinstance(event, MessageRetracted):
            found[retraction_label(event.message)] = None
    return found


def difference(old: bytes, new: bytes) -> tuple[int, int, bytes]:
    """Return how many bytes `new` shares with the start and end of `old`, and what is between.

    As numbers the two differ in the bits between; looking at each byte in turn would cost many times that.
    """
    most = min(len(old), len(new))
    mixed = int.from_bytes(old[:most], "big") ^ int.from_bytes(new[:most], "big")
    head = most - (mixed.bit_length() + 7) // 8
    if len(old) != len(new):
        mixed = int.from_bytes(old[len(old) - most :], "big") ^ int.from_bytes(new[len(new) - most :], "big")
    low = (mixed & -mixed).bit_length() - 1 if mixed else 8 * most
    tail = min(low // 8, most - head)
    return head, tail, new[head : len(new) - tail]


def newest_labelled(steps: Iterable[Step], labels: Collection[str]) -> list[Step]:
    """Return the first of `steps`, newest first, for each label: it has the label, or is of the run of that id."""
    left, found = set(labels), list[Step]()
    for step in steps if left else ():
        named = left.intersection((step.commit.run or "", *event_labels(step.changeset.events)))
        if named:
            found.append(step)
            left -= named
            if not left:
                break
    return found


class Mark(msgspec.Struct, frozen=True):
    """What an engine in memory keeps of a commit besides its bytes: its place, and two ways back from it."""

    place: Place
    run: str | None
    events: int
    parent: Digest | None  # the first one
    jump: Digest  # an ancestor such that any other is O(log n) jumps and parents away; the first: itself


def jump_of_child(marks: Mapping[Digest, Mark], parent: Digest) -> Digest:
    """Return where a child of `parent` jumps to: two equal jumps are joined into one (skew binary numbers)."""
    once = marks[parent].jump
    twice = marks[once].jump
    here, middle, there = (marks[each].place.depth for each in (parent, once, twice))
    return twice if here - middle == middle - there else parent


def rebuilt(cell: Cell, *, listed: int) -> Rebuilt:
    """Return a cell as `reseal` writes it."""
    return Rebuilt(
        name=cell.name,
        value=cell.value,
        position=cell.position,
        listed=bool(listed),
        revision=cell.revision,
    )


def chained(chain: Digest | None, body: bytes) -> Digest:
    """Return the ledger's chain digest after an entry: over the chain before it and the entry's own bytes."""
    return digest_of(Kind.ENTRY, (chain or "").encode() + b"\n" + body)


def broken_chain(position: int) -> Corrupt:
    """Return the error for a ledger entry that does not follow the one before it."""
    return damaged(
        f"ledger entry {position} does not follow the one before it.",
        "ledger_chain_broken",
        position=position,
    )


def cell_digest(cell: Cell, *, listed: int) -> bytes:
    """Return the digest that is stored beside a cell, so that a change to any part of it is found."""
    space, name = cell.space.encode("utf-8", "surrogatepass"), cell.name.encode("utf-8", "surrogatepass")
    size = -1 if cell.value is None else len(cell.value)
    header = b"perdure/1\0cell\0%d %d %d %d %d %d " % (
        len(space),
        len(name),
        cell.revision,
        cell.position,
        listed,
        size,
    )
    return sha256(header + space + name + (cell.value or b"")).digest()


def check_cell(cell: Cell, digest: object, *, listed: int) -> Cell:
    """Return the cell if `digest` is the one that it was stored with; raise `Corrupt`, naming it, if not."""
    try:
        is_whole = cell_digest(cell, listed=listed) == digest
    except (TypeError, ValueError, AttributeError):  # a column holds a value of another type
        is_whole = False
    if not is_whole:
        raise damaged(
            f"cell '{cell.name}' in '{cell.space}' does not match its digest; it was not used.",
            "cell_damaged",
            cell=cell.name,
            space=cell.space,
        )
    return cell


def sealed_cell(name: str, digest: bytes) -> int:
    """Return what a cell of this name and digest adds to the seal of its space."""
    return _part(b"cell\0", name, digest)


def sealed_cells(cells: Iterable[tuple[str, bytes]]) -> int:
    """Return what cells of these names and digests add together."""
    return sealed_parts(
        [b"cell\0" + name.encode("utf-8", "surrogatepass") + b"\0" + digest for name, digest in cells]
    )


def sealed_parts(parts: Sequence[bytes]) -> int:
    """Return what these parts add together, each as it is hashed: there are many, so each costs no call of its own."""
    numbers = unpack(f">{2 * len(parts)}Q", b"".join([sha256(part).digest()[:SEAL_BYTES] for part in parts]))
    return (sum(numbers[::2]) << 64) + sum(numbers[1::2])


def sealed_head(timeline: str, move: Digest | None) -> int:
    """Return what a timeline whose last move has this digest adds to the seal of its space."""
    if move is None:
        return 0
    part = b"head\0" + timeline.encode("utf-8", "surrogatepass") + b"\0" + bytes.fromhex(move)
    return int.from_bytes(sha256(part).digest()[:SEAL_BYTES])  # as `_part`, without its call


def sealed_ledger(position: int, chain: Digest | None) -> int:
    """Return what a ledger that ends at this entry adds to the seal of its space."""
    return 0 if chain is None else _part(b"ledger\0", str(position), bytes.fromhex(chain))


def _part(kind: bytes, name: str, digest: bytes) -> int:
    part = kind + name.encode("utf-8", "surrogatepass") + b"\0" + digest
    return int.from_bytes(sha256(part).digest()[:SEAL_BYTES])


def check_ledger_end(space: str, left: LedgerRead, stored: LedgerRead) -> None:
    """Raise `Corrupt` unless the ledger ends where the newest write that added to it left it."""
    if left != stored:
        raise Corrupt(
            f"the ledger of '{space}' ends at entry {stored.position}, but its newest write left it at entry {left.position}; nothing was changed.",
            code="ledger_cut",
            advice="Restore a backup.",
            space=space,
        )


def check_seal(space: str, found: int, seal: int | None) -> None:
    """Raise `Corrupt` unless what the space holds sums up to the seal of its newest write."""
    if seal is None or found & SEAL_MASK != seal & SEAL_MASK:
        raise damaged(
            f"the cells, heads or ledger of '{space}' are not as its newest write left them: something was edited, removed or put back to an older version; nothing was used or written.",
            "seal_broken",
            space=space,
        )


FAILURES = ("conflicts", "in_doubt")  # what every engine with writers in other processes counts


class EngineCounters:
    """What one opening of a store has done, by name.  Thread-safe; the numbers only grow."""

    def __init__(self, names: Iterable[str]) -> None:
        """Begin with 0 for each name."""
        self._counts: dict[str, int] = dict.fromkeys(names, 0)
        self._lock = ThreadLock()

    def add(self, name: str) -> None:
        """Count one more."""
        with self._lock:
            self._counts[name] += 1

    def add_failure(self, error: Exception | None) -> None:
        """Count a write that was refused, or whose outcome is not known; other errors are not counted."""
        if isinstance(error, InDoubt | Conflict):
            self.add("in_doubt" if isinstance(error, InDoubt) else "conflicts")

    def read(self) -> dict[str, int]:
        """Return the numbers."""
        with self._lock:
            return dict(self._counts)
