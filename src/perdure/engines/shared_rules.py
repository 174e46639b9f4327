"""Rules that every engine applies in the same way, so that all of them store the same bytes.

Pure functions over the contract's types: how a move is recorded, where a commit stands
on its line, how the ledger is chained, what names a commit.
"""

from __future__ import annotations

from hashlib import sha256

from perdure.engines.contract import Cell, Fence, Hold, Move, Place, Write
from perdure.errors import Conflict, Corrupt, Invalid, Moved, NotFound, Sealed, StaleHead
from perdure.model.commit import Changeset, Commit, LedgerRead, MoveRecord, encode_move
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import MessageAppended
from perdure.model.head import MAIN, Head

__all__ = [
    "SEAL_BYTES",
    "SEAL_MASK",
    "cell_digest",
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
    "labels",
    "placed",
    "sealed_cell",
    "sealed_head",
    "sealed_ledger",
    "record_of",
    "unmoved",
]

ROOT = Place(depth=-1, turn=0, sequence=0)
SEAL_BYTES = 16
SEAL_MASK = (1 << 8 * SEAL_BYTES) - 1


def unmoved(timeline: str) -> Hold | None:
    """What a timeline without a recorded move is: `main` stands at version 0, others do not exist."""
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
            raise Invalid(f"a cell or entry must be UTF-8 text ({error}); nothing was written.") from error


def _check_once(what: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Invalid(f"one write {what} '{twice}' twice; nothing was written. Make it two writes.")


def check_fence(fence: Fence, revision: int) -> None:
    """Raise `Moved` unless the fenced cell is at the revision that the writer read."""
    if revision != fence.revision:
        raise Moved(fence.cell, fence.revision, revision)


def check_move(move: Move, hold: Hold | None) -> None:
    """Raise `Sealed`, `StaleHead`, `Conflict` or `NotFound` unless `hold` is where `move` read it."""
    if move.expected is None:
        if hold is not None:
            raise Conflict(
                f"timeline '{move.timeline}' exists already; nothing was written. Choose another name."
            )
        return
    if move.expected.timeline != move.timeline:
        raise Invalid(
            f"a head of '{move.expected.timeline}' cannot move '{move.timeline}'; nothing was written."
        )
    if hold is None:
        raise NotFound(f"there is no timeline '{move.timeline}'; nothing was written. Fork one first.")
    if hold.sealed:
        raise Sealed(move.timeline)
    if hold.head != move.expected:
        raise StaleHead(move.expected, hold.head)


def record_of(move: Move, hold: Hold | None, op_id: str) -> tuple[Hold, Object, MoveRecord]:
    """Where the timeline stands after `move`, and the move's own record, as an object and as it is."""
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
    )
    stored = Object.of(Kind.MOVE, encode_move(record))
    return Hold(Head(move.timeline, record.version, move.to), move.seal, stored.digest), stored, record


def check_forgettable(kind: Kind, digest: Digest) -> None:
    """Raise `Invalid` for an object that the chain is proved by."""
    if kind in (Kind.COMMIT, Kind.CHANGESET, Kind.MOVE):
        raise Invalid(f"{kind} {digest} cannot be forgotten: the chain is proved by it; nothing was changed.")


def check_standing(space: str, read: int, now: int) -> None:
    """Raise `Conflict` if the space was written to since its standing was read."""
    if read != now:
        raise Conflict(
            f"'{space}' was written to since it was looked over; nothing was forgotten. Look it over again."
        )


def check_hold(hold: Hold, record: MoveRecord) -> None:
    """Raise `Corrupt` unless the head stands where its last move left it."""
    moved = Head(record.timeline, record.version, record.to)
    if hold.head != moved or hold.sealed != record.sealed:
        raise Corrupt(
            f"the head of timeline '{hold.head.timeline}' says version {hold.head.version}, but its last recorded "
            f"move left it at version {record.version}; it was not used. Run `perdure verify`."
        )


def placed(commit: Commit, parent: tuple[Place, str | None] | None, before: int) -> Place:
    """Where `commit` stands, given its first parent's place and run, and the parent's number of events.

    A commit of the same run as its parent belongs to the same turn; any other begins one.
    """
    place, run = parent or (ROOT, None)
    if commit.depth != place.depth + 1:
        raise Invalid(f"commit says depth {commit.depth} after depth {place.depth}; nothing was written.")
    same = commit.run is not None and commit.run == run
    return Place(commit.depth, place.turn + (not same), place.sequence + before)


def labels(commit: Commit, changeset: Changeset, parent_run: str | None) -> set[str]:
    """The ids that name this commit: of the messages it appends, and of the run that it begins."""
    names = {event.id for event in changeset.events if isinstance(event, MessageAppended)}
    if commit.run is not None and commit.run != parent_run:
        names.add(commit.run)
    return names


def chained(chain: Digest | None, body: bytes) -> Digest:
    """The ledger's chain digest after an entry: over the chain before it and the entry's own bytes."""
    return digest_of(Kind.ENTRY, (chain or "").encode() + b"\n" + body)


def cell_digest(cell: Cell, *, listed: int) -> bytes:
    """What is stored beside a cell, so that a change to any part of it is found."""
    space, name = cell.space.encode("utf-8", "surrogatepass"), cell.name.encode("utf-8", "surrogatepass")
    size = -1 if cell.value is None else len(cell.value)
    told = b"perdure/1\0cell\0%d %d %d %d %d %d " % (
        len(space),
        len(name),
        cell.revision,
        cell.position,
        listed,
        size,
    )
    return sha256(told + space + name + (cell.value or b"")).digest()


def check_cell(cell: Cell, digest: object, *, listed: int) -> Cell:
    """The cell, if `digest` is the one that it was stored with; raises `Corrupt`, naming it, if not."""
    try:
        is_whole = cell_digest(cell, listed=listed) == digest
    except (TypeError, ValueError, AttributeError):  # a column holds what is no number or no text
        is_whole = False
    if not is_whole:
        raise Corrupt(
            f"cell '{cell.name}' in '{cell.space}' does not match its digest; it was not used. "
            "Run `perdure verify`.",
            cell=cell.name,
        )
    return cell


def sealed_cell(name: str, digest: bytes) -> int:
    """What a cell of this name and digest adds to the seal of its space."""
    return _part(b"cell\0", name, digest)


def sealed_head(timeline: str, move: Digest | None) -> int:
    """What a timeline that stands after this move adds to the seal of its space."""
    return 0 if move is None else _part(b"head\0", timeline, bytes.fromhex(move))


def sealed_ledger(position: int, chain: Digest | None) -> int:
    """What a ledger that ends at this entry adds to the seal of its space."""
    return 0 if chain is None else _part(b"ledger\0", str(position), bytes.fromhex(chain))


def _part(kind: bytes, name: str, digest: bytes) -> int:
    told = kind + name.encode("utf-8", "surrogatepass") + b"\0" + digest
    return int.from_bytes(sha256(told).digest()[:SEAL_BYTES])


def check_ledger_end(space: str, left: LedgerRead, stored: LedgerRead) -> None:
    """Raise `Corrupt` unless the ledger ends where the newest write that added to it left it."""
    if left != stored:
        raise Corrupt(
            f"the ledger of '{space}' ends at entry {stored.position}, but its newest write left it at entry "
            f"{left.position}; nothing was changed. Restore a backup."
        )


def check_seal(space: str, found: int, seal: int | None) -> None:
    """Raise `Corrupt` unless what the space holds sums up to the seal of its newest write."""
    if seal is None or found & SEAL_MASK != seal & SEAL_MASK:
        raise Corrupt(
            f"the cells, heads or ledger of '{space}' are not as its newest write left them: something was edited, "
            "removed or put back to an older version; nothing was used or written. Run `perdure verify`."
        )
