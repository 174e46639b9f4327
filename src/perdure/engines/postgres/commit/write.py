"""Turns a write into the parameters of one call to the server, and the answer into a receipt or a refusal.

All packing, hashing and compressing is done here, before the call: the server holds the lock of the space while it
runs.  What only the server knows under that lock (the move before, the end of the ledger, the place of a parent) it
adds itself.  An error in the objects of a write is raised in its turn, after the refusals that the contract puts
first: the server is asked to check as far as that object and to write nothing.
"""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from perdure.engines.contract import Buried, Fence, Hold, Move, Receipt, Replay, Write
from perdure.engines.postgres.connections import Parameter, Row, bytea_array, integer_array
from perdure.engines.postgres.pack import (
    PackedItem,
    PackedMove,
    PackedOp,
    RowPack,
    StoredFields,
    buried,
    bytes_of,
    check_intent,
    decode_pack,
    encode_pack,
    encode_state,
    heads_of,
    intent_checksum,
    is_against,
    key_of,
    label_key,
    linked_revisions,
    move_key,
    op_bytes,
    op_key,
    packed_item,
    packed_move,
    stored_against,
    stored_item,
)
from perdure.engines.shared_rules import check_fence, check_move, damaged, event_labels, record_of
from perdure.errors import Corrupt, Forgotten, Invalid, NotFound, OpReused, PerdureError, Unsupported
from perdure.model.commit import Changeset, Commit, MoveRecord, decode_changeset, decode_commit, encode_move
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import Event
from perdure.model.fork_safety import ThreadLock
from perdure.model.head import Head

if TYPE_CHECKING:
    from perdure.engines.postgres.commit.next_commit import KnownEnd

__all__ = [
    "APPLY",
    "CALL_TOGETHER",
    "FINAL",
    "WriteRow",
    "RecentObjects",
    "PreparedWrite",
    "SpaceMark",
    "answered",
    "head_after",
    "lost_space",
    "one_commit",
    "prepare_write",
    "receipt_of",
    "row_fields",
]

APPLY = (
    "SELECT code, at, number, one, two, now_us, generation, follower, clock, place, moved "
    "FROM perdure.apply($1,$2,$3,$4,$5,$6,$7,$8)"
)
# What a writer sends if others wait for its space: it then shares a commit with them.
CALL_TOGETHER = "CALL perdure.apply_together($1,$2,$3,$4,$5,$6,$7,$8,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)"

# Refusals that stay true: a version or a revision that has passed does not come back.
FINAL = frozenset({"done", "again", "dropped", "reused", "moved", "sealed", "stale"})

_CHECK_SEAL, _CHECK_ONLY, _ORDINARY, _NO_WAIT, _REVISIONS, _LINK = 1, 2, 4, 8, 16, 32
_PLAIN, _COMMIT, _LARGE = 0, 1, 2
_OWN_ROW_FROM_BYTES = 4_096  # so that reading a small object never unpacks much else
_ROW_BYTES_MAX = 32 * 1024
_STATE = frozenset({Kind.VALUE, Kind.NODE, Kind.LIST})
_ENDS_ROW = frozenset({Kind.CHANGESET, Kind.COMMIT})
_CHAIN_MAX = 16  # rows that are read to read one object
_BASES_MAX, _SPACES_MAX = 512, 64
_GENERATION_BITS = 31
_NO_BASES: tuple[int, dict[Digest, RecentObject]] = (-1, {})
_NO_MOVE = Digest("0" * 64)
_SPLIT = b'"previous":"' + _NO_MOVE.encode() + b'",'


class WriteRow:
    """One row of the log, as far as it is known before the call."""

    __slots__ = ("commit", "digest", "events", "kind", "objects")

    def __init__(self, kind: int, objects: list[Object]) -> None:
        self.kind, self.objects = kind, objects
        self.commit: Commit | None = None
        self.digest: Digest | None = None
        self.events: tuple[Event, ...] = ()

    def keys(self) -> list[int]:
        """Return the keys of what the row holds, each once: one that led to its row twice could be moved without a trace."""
        found = [key_of(each.digest) for each in self.objects]
        found += [label_key(label) for label in event_labels(self.events)]
        return list(dict.fromkeys(found))


class RecentObject(msgspec.Struct, frozen=True, gc=False):
    """An object that later ones may be stored against."""

    row: int
    item: int
    chain: tuple[int, ...]  # the rows that are needed to read it, its own the last
    body: bytes


class StoredState(msgspec.Struct, frozen=True, gc=False):
    """The values and nodes of one row of a write, each with the rows that are needed to read it."""

    objects: tuple[Object, ...]
    chains: tuple[tuple[int, ...], ...]


class RecentObjects:
    """Values and nodes that this process wrote, by space.

    They are good until something of their space is forgotten, and only on the timeline of the write-ahead log that they
    were written on: a server that takes over may lack the newest rows, and give their numbers to others.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self._wal_timeline = ""
        self._spaces: dict[str, tuple[int, dict[Digest, RecentObject]]] = {}
        self._lock = ThreadLock()

    def of(self, space: str) -> tuple[int, str, dict[Digest, RecentObject]]:
        """Return the generation of a space, the timeline that its objects were written on, and these by digest."""
        with self._lock:
            generation, found = self._spaces.get(space, _NO_BASES)
            return generation, self._wal_timeline, found

    @staticmethod
    def numbered(generation: int, wal_timeline: str) -> int:
        """Return a generation of a space and a timeline of the write-ahead log as one number, for the server to compare."""
        return generation + (int(wal_timeline, 16) << _GENERATION_BITS)

    def forget(self, space: str) -> None:
        """Drop what is known of a space."""
        with self._lock:
            self._spaces.pop(space, None)

    def learn(self, wal_timeline: str) -> None:
        """Note the timeline of the write-ahead log of the server that has answered; drop what was written on another."""
        if wal_timeline != self._wal_timeline:
            with self._lock:
                self._wal_timeline, self._spaces = wal_timeline, {}

    def note(self, prepared: PreparedWrite, last_row: int, generation: int, wal_timeline: str) -> None:
        """Remember what a write has stored; the last of its rows is `last_row`."""
        space = prepared.write.space
        first = last_row - len(prepared.states) + 1
        with self._lock:
            if wal_timeline != self._wal_timeline:
                return
            known, found = self._spaces.pop(space, _NO_BASES)
            if known != generation:
                found = {}
            for row, state in enumerate(prepared.states, first):
                for item, each in enumerate(state.objects):
                    if isinstance(each, Buried):
                        continue
                    found[each.digest] = RecentObject(row, item, (*state.chains[item], row), each.body)
                    if each.base is not None:
                        found.pop(each.base, None)  # what comes next resembles the newer one
            while len(found) > _BASES_MAX:
                found.pop(next(iter(found)))
            self._spaces[space] = generation, found
            while len(self._spaces) > _SPACES_MAX:
                self._spaces.pop(next(iter(self._spaces)))


class SpaceMark(NamedTuple):
    """What every change of a space changes: a space that has its mark still is as it was."""

    rows: int
    generation: int
    seal: int
    link: bytes


class PreparedWrite(msgspec.Struct, frozen=True):
    """A write, ready to be sent."""

    write: Write
    parameters: tuple[Parameter, ...]
    depths: tuple[int, ...]  # of the commits of its rows; 0 for a row without one
    states: tuple[StoredState, ...]  # of its rows; what later writes may be stored against
    error: PerdureError | None  # what is wrong with its objects; it is then only checked
    row: WriteRow | None = None  # of an ordinary write
    end: KnownEnd | None = None  # of the space, if the write goes by `next_commit`
    before: SpaceMark | None = None  # and its mark before


def prepare_write(tenant: str, write: Write, bases: RecentObjects, *, checks_seal: bool) -> PreparedWrite:
    """Return `write` as parameters; `checks_seal` asks the server to compare the whole space first."""
    generation, wal_timeline, known = bases.of(write.space)
    crossed = next((move for move in write.moves if _is_crossed(move)), None)
    rows, error = _laid_out(write.objects)
    if crossed is not None:  # what comes before it is checked first
        rows, error = [WriteRow(_PLAIN, [])], _crossed_error(crossed)
        write = msgspec.structs.replace(write, moves=write.moves[: write.moves.index(crossed)], entries=())
    op_id = op_bytes(write.op_id)
    keys, places = [op_key(op_id)], [len(rows)]
    flags = (
        _NO_WAIT | _REVISIONS | _LINK | (_CHECK_SEAL if checks_seal else 0) | (_CHECK_ONLY if error else 0)
    )
    if error is None and _is_ordinary(write, rows):
        flags |= _ORDINARY
    counts = len(write.fences), len(write.cells), len(write.moves), len(write.entries), len(rows)
    n = [flags, *counts, keys[0], -1]
    f: list[bytes | None] = []
    for fence in write.fences:
        n.append(fence.revision)
        f.append(bytes_of(fence.cell))
    for cell in write.cells:
        n += cell.expected, cell.listed
        f += bytes_of(cell.name), cell.value
    last = rows[-1]
    parent = None if last.commit is None else last.commit.first_parent
    moves: list[PackedMove] = []
    for move in write.moves:
        record, parts = _recorded_move(move, write.op_id)
        timeline = bytes_of(move.timeline)
        n += -1 if move.expected is None else move.expected.version, move.seal
        expected = None if move.expected is None else move.expected.commit
        f += timeline, _raw(expected), _raw(move.to), *parts, _raw(move.previous)
        moves.append(packed_move(record, last.digest if last.kind == _COMMIT else None, parent))
        keys.append(move_key(timeline, record.version))
        places.append(len(rows))
    states: list[StoredState] = []
    intent = bytes.fromhex(write.intent)
    op = PackedOp(tuple(moves), _revisions(write), len(write.entries), intent_checksum(op_id, intent))
    for place, row in enumerate(rows, 1):
        numbers, fields, state = row_fields(row, op if row is last else None, known)
        n += numbers
        f += fields
        states.append(state)
        if any(state.chains):
            n[7] = bases.numbered(generation, wal_timeline)
        named = row.keys()
        keys += named
        places += [place] * len(named)
    f += *write.entries, linked_revisions(op.revisions)
    arrays = integer_array(n), bytea_array(f), integer_array(keys), integer_array(places, short=True)
    depths = tuple([0 if row.commit is None else row.commit.depth for row in rows])
    if any(row.kind == _LARGE for row in rows):
        states = []  # the server may leave a row out, so where the others go is not known
    parameters = (tenant, bytes_of(write.space), op_id, intent, *arrays)
    return PreparedWrite(write, parameters, depths, tuple(states), error, last if flags & _ORDINARY else None)


def row_fields(
    row: WriteRow, op: PackedOp | None, known: dict[Digest, RecentObject]
) -> tuple[tuple[int, int, int, int, int], tuple[bytes | None, ...], StoredState]:
    """Return the numbers and the fields of one row, and its values and nodes; `op` is in the row that completes a write."""
    commit = row.commit
    run = label_key(commit.run) if commit is not None and commit.run is not None else 0
    numbers = (row.kind, 0, 0, 0, 0)
    if commit is not None:
        numbers = row.kind, commit.depth, len(row.events), run, commit.unnumbered
    state = tuple([each for each in row.objects if each.kind in _STATE])
    items = [_item(each) for each in row.objects if each.kind not in _STATE]
    stored, chains = _stored_state(state, known)
    needs = set[int]().union(*chains)
    fields = (
        _raw(row.digest),
        b"".join([bytes.fromhex(each) for each in commit.parents]) if commit else b"",
        encode_pack(items, op, len(state)),
        stored,
        pack(f">{len(needs)}I", *sorted(needs)) if needs else None,
    )
    return numbers, fields, StoredState(state, chains)


def _stored_state(
    state: tuple[Object, ...], known: dict[Digest, RecentObject]
) -> tuple[bytes | None, tuple[tuple[int, ...], ...]]:
    """Return the values and nodes of a row as they are stored, and for each the earlier rows that it needs."""
    if not state:
        return None, ()
    items = [_item(each) for each in state]
    stored: list[StoredFields] = []
    chains: list[tuple[int, ...]] = []
    for item, each in zip(items, state, strict=True):
        base = None if each.base is None else known.get(each.base)
        if base is None or len(base.chain) >= _CHAIN_MAX:
            stored.append(stored_item(item))
            chains.append(())
        else:
            stored.append(stored_against(item, base.row, base.item, base.body, each.shared))
            chains.append(base.chain if is_against(stored[-1]) else ())
    return encode_state(items, stored), tuple(chains)


def _item(found: Object) -> PackedItem:
    if isinstance(found, Buried):
        return buried(packed_item(found), found.digest, found.why)
    return packed_item(found)


def _revisions(write: Write) -> tuple[int, ...]:
    if isinstance(write, Replay):
        return write.revisions
    return tuple([cell.expected + 1 for cell in write.cells])


def _is_ordinary(write: Write, rows: list[WriteRow]) -> bool:
    """True if the write is one commit on top of the head that it moves; the server then reads all it needs at once."""
    commit = rows[0].commit
    if len(rows) != 1 or commit is None or len(write.moves) != 1:
        return False
    move = write.moves[0]
    return (
        move.expected is not None
        and move.expected.commit is not None
        and commit.parents == (move.expected.commit,)
        and move.to == rows[0].digest
    )


def _is_crossed(move: Move) -> bool:
    return move.expected is not None and move.expected.timeline != move.timeline


def _crossed_error(move: Move) -> PerdureError | None:
    try:
        check_move(move, None)
    except PerdureError as error:
        return error
    return None


def one_commit(objects: tuple[Object, ...]) -> WriteRow | None:
    """Return the row of one commit with its changeset and the small objects before them; None if they are anything else.

    Most writes are such a commit.  Its objects were named by their digests a moment ago, in this process, and are not
    hashed again.
    """
    size = 0
    for found in objects[:-2]:
        length = len(found.body)
        if type(found) is not Object or found.kind in _ENDS_ROW or length >= _OWN_ROW_FROM_BYTES:
            return None
        size += length
    if len(objects) < 2 or size >= _ROW_BYTES_MAX:
        return None
    changeset, commit = objects[-2], objects[-1]
    is_one = changeset.kind is Kind.CHANGESET and commit.kind is Kind.COMMIT
    if not is_one or type(changeset) is not Object or type(commit) is not Object:
        return None
    try:
        return _commit_row(commit, list(objects[:-2]), {changeset.digest: changeset})
    except PerdureError:  # it is raised in its turn, after what the server has against the write
        return None


def _laid_out(objects: tuple[Object, ...]) -> tuple[list[WriteRow], PerdureError | None]:
    """Return the rows of a write, and what is wrong with the first object that is wrong.

    A commit ends a row, with its changeset before it.  A large object has a row of its own.  The last row completes
    the write, so it is never a large object, which the server leaves out if the space has it.
    """
    large: list[WriteRow] = []
    rows: list[WriteRow] = []
    pending: list[Object] = []
    size, error = 0, None
    changesets = {
        each.digest: each for each in objects if each.kind is Kind.CHANGESET and not isinstance(each, Buried)
    }
    used: set[Digest] = set()
    try:
        for found in objects:
            if isinstance(found, Buried):
                pending.append(found)
                continue
            if digest_of(found.kind, found.body) != found.digest:
                raise Corrupt(
                    f"the bytes of {found.kind} {found.digest} have another digest; nothing was written.",
                    code="digest_collision",
                    digest=found.digest,
                )
            if found.kind is Kind.CHANGESET:
                continue
            if found.kind is Kind.COMMIT:
                rows.append(_commit_row(found, pending, changesets))
                used.add(rows[-1].objects[-2].digest)
                pending, size = [], 0
            elif len(found.body) >= _OWN_ROW_FROM_BYTES:
                large.append(WriteRow(_LARGE, [found]))
                large[-1].digest = found.digest
            else:
                pending.append(found)
                size += len(found.body)
                if size >= _ROW_BYTES_MAX:
                    rows.append(WriteRow(_PLAIN, pending))
                    pending, size = [], 0
    except PerdureError as wrong:
        error = wrong
    pending += [each for digest, each in changesets.items() if digest not in used]
    if pending or not rows:
        rows.append(WriteRow(_PLAIN, pending))
    return large + rows, error


def _commit_row(found: Object, before: list[Object], changesets: dict[Digest, Object]) -> WriteRow:
    commit = found.record if isinstance(found.record, Commit) else decode_commit(found.body)
    stored = changesets.get(commit.changeset)
    if stored is None:
        raise NotFound(
            f"commit {found.digest} comes without its changeset; nothing was written.",
            code="changeset_missing",
            commit=found.digest,
        )
    changeset = stored.record if isinstance(stored.record, Changeset) else decode_changeset(stored.body)
    row = WriteRow(_COMMIT, [*before, stored, found])
    row.commit, row.digest, row.events = commit, found.digest, changeset.events
    return row


def _recorded_move(move: Move, op_id: str) -> tuple[MoveRecord, tuple[bytes, bytes]]:
    """Return the record of a move if it is made, and its bytes before and after the digest of the move before it."""
    before = None if move.expected is None else Hold(move.expected, move=_NO_MOVE)
    if before is None:
        before = Hold(Head(move.timeline, -1, None), move=_NO_MOVE)
    _, _, record = record_of(move, before, op_id)
    head, _, tail = encode_move(record).partition(_SPLIT)
    return record, (head, tail)


def _raw(digest: Digest | None) -> bytes | None:
    return None if digest is None else bytes.fromhex(digest)


# ---- the answer


def answered(prepared: PreparedWrite, answer: Row) -> Receipt:
    """Return the receipt of a write; raise what the server, or the write's own objects, say against it."""
    code, at, number, one, two, *_ = answer
    write = prepared.write
    if code == "done" and prepared.end is not None:  # one commit, and nothing else
        return Receipt(op_id=write.op_id, heads=(head_after(write.moves[0]),))
    where = at - 1 if isinstance(at, int) else 0
    count = number if isinstance(number, int) else 0
    blob = one if isinstance(one, bytes) else None
    match code:
        case "done":
            return Receipt(
                op_id=write.op_id,
                heads=tuple([head_after(move) for move in write.moves]),
                revisions=_revisions(write),
                position=count,
                chain=Digest(two.hex()) if isinstance(two, bytes) else None,
            )
        case "again":
            return receipt_of(write.op_id, decode_pack(blob), count, two)
        case "checked" if prepared.error is not None:
            raise prepared.error
        case "reused":
            check_intent(decode_pack(blob), op_bytes(write.op_id), two)
            raise OpReused(write.op_id)
        case "dropped":
            raise Forgotten(f"the write '{write.op_id}'", (blob or b"").decode("utf-8", "replace"))
        case "moved" | "cell_damaged":
            _refuse_cell(write, where, count, is_damaged=code == "cell_damaged")
        case "exists" | "no_timeline" | "sealed" | "stale":
            _refuse_move(write.moves[where], str(code), count, blob)
        case _:
            raise _refused(prepared, str(code), where, count, blob)
    raise AssertionError(code)


def head_after(move: Move) -> Head:
    """Return the head that a move leaves."""
    return Head(move.timeline, 0 if move.expected is None else move.expected.version + 1, move.to)


def receipt_of(op_id: str, stored: RowPack, position: object, chain: object) -> Receipt:
    """Return the receipt that a row of the log has recorded."""
    return Receipt(
        op_id=op_id,
        heads=heads_of(stored),
        revisions=stored.op.revisions if stored.op is not None else (),
        position=position if isinstance(position, int) else 0,
        chain=Digest(chain.hex()) if isinstance(chain, bytes) else None,
    )


def lost_space(space: str) -> Corrupt:
    """Return the error for a space that was written to and has lost its row, so that it looks new."""
    return damaged(
        f"'{space}' was written to, but its row is missing in the table `spaces`; nothing was used or written.",
        "space_lost",
        space=space,
    )


def _refuse_cell(write: Write, at: int, actual: int, *, is_damaged: bool) -> None:
    fences = (*write.fences, *[Fence(cell.name, cell.expected) for cell in write.cells])
    if is_damaged:
        raise damaged(
            f"cell '{fences[at].cell}' in '{write.space}' does not match its digest; it was not used.",
            "cell_damaged",
            cell=fences[at].cell,
        )
    check_fence(fences[at], actual)


def _refuse_move(move: Move, code: str, version: int, commit: bytes | None) -> None:
    head = Head(move.timeline, version, None if commit is None else Digest(commit.hex()))
    match code:
        case "exists":
            check_move(move, Hold(head))
        case "sealed":
            check_move(move, Hold(head, sealed=True))
        case "stale":
            check_move(move, Hold(head))
        case _:
            check_move(move, None)


def _refused(prepared: PreparedWrite, code: str, at: int, number: int, blob: bytes | None) -> PerdureError:
    write = prepared.write
    match code:
        case "no_commit":
            commit = Digest((blob or b"").hex())
            return NotFound(
                f"there is no commit {commit} in this space; nothing was written.",
                code="commit_not_found",
                commit=commit,
            )
        case "depth":
            wrong = prepared.depths[at]
            return Invalid(
                f"a commit names depth {wrong} after depth {number}; nothing was written.",
                code="depth_wrong",
                depth=wrong,
            )
        case "head_damaged":
            timeline = write.moves[at].timeline
            return damaged(
                f"the head of timeline '{timeline}' does not match its last move; it was not used.",
                "head_damaged",
                timeline=timeline,
            )
        case "seal_broken":
            return damaged(
                f"the cells, heads or ledger of '{write.space}' are not as its newest write left them: something was edited, removed or put back to an older version; nothing was used or written.",
                "seal_broken",
                space=write.space,
            )
        case "space_lost":
            return lost_space(write.space)
        case "isolation":
            return Unsupported(
                "the database runs transactions at another isolation level than 'read committed'; nothing was written.",
                code="isolation_unsupported",
                advice="Set default_transaction_isolation to 'read committed' for this role.",
            )
        case _:
            return Unsupported(
                f"the server answered '{code}'; nothing was written.",
                code="answer_unknown",
                advice="Upgrade Perdure.",
            )
