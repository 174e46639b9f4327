"""A commit on a timeline whose end this process knows: one plain statement in place of the general function.

Most writes are one commit on top of the head that the same process moved last.  What the server would have to look up
for it is then known here: the last row, the seal, the move before, the place of the parent.  So the client computes
all of the new rows, and the server only compares and stores.

The comparison is with the seal of the space, a sum over everything in it that can change, and with its number of
rows.  Each write changes both, so a space that is still as this process left it has no later write: no other move of
the head, no other use of the op_id.  If it is not, the statement changes nothing, and the write is sent in full.

What the statement sees is as of its own moment.  A writer that has the space then is waited for, and one that commits
between that moment and the lock leaves another seal: the server compares it in the newest version of the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from itertools import product
from typing import NamedTuple

import msgspec

from perdure.engines.contract import Replay, Write
from perdure.engines.postgres.commit.write import (
    PreparedWrite,
    RecentObjects,
    SpaceMark,
    one_commit,
    row_fields,
)
from perdure.engines.postgres.connections import Numeric, Parameter, Row, Short, integer_array
from perdure.engines.postgres.pack import (
    PackedOp,
    bytes_of,
    intent_checksum,
    key_of,
    label_key,
    link_after,
    move_key,
    op_bytes,
    op_key,
    packed_move,
)
from perdure.model.commit import MoveRecord, encode_move
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.fork_safety import ThreadLock

__all__ = ["NEXT", "KnownEnds", "KnownEnd", "end_after", "next_answer", "prepare_next"]

_FENCES_MAX = 2
_SPACES_MAX, _TIMELINES_MAX = 64, 16
_RESTS = 16  # writes to a space in full after others wrote to it

_NO_CELL = "AND NOT EXISTS (SELECT FROM perdure.cells c WHERE c.tenant = $1 AND c.space = s.id AND c.name = {name} OFFSET 0)"
_CELL_AT = """AND {revision} = (
    SELECT CASE WHEN c.digest = perdure.cell_digest($2, c.name, c.revision, c.value, c.position, c.listed) THEN c.revision END
    FROM perdure.cells c WHERE c.tenant = $1 AND c.space = s.id AND c.name = {name} OFFSET 0)"""

# Where the space is not as it was left, nothing is changed and no row is returned.  Each look-up is a subquery of its own
# (`OFFSET 0`) by all columns of its key: as a join, a planner without statistics reads the heads of all spaces.  How long
# another writer is waited for is set for the session.
_STATEMENT = """
WITH s AS (
    UPDATE perdure.spaces s SET rows = $7::int, seal = $8::numeric, link = $9
    WHERE s.tenant = $1 AND s.name = $2 AND s.rows = $3::int AND s.generation = $4 AND s.seal = $5::numeric AND s.link = $6
      AND EXISTS (SELECT FROM perdure.heads h WHERE h.tenant = $1 AND h.space = s.id AND h.timeline = $10
                  AND h.version = $11 AND h.commit = $12 AND h.move = $13 AND h.record = $14 AND h.row_id = $15::int
                  AND NOT h.sealed OFFSET 0)
      AND NOT EXISTS (SELECT FROM perdure.keys k WHERE k.tenant = $1 AND k.space = s.id AND k.key IN ($33, $34) OFFSET 0) {fences}
    RETURNING s.id, s.followed_until, s.follower
), h AS (
    UPDATE perdure.heads h SET version = $16, commit = $17, move = $18, record = $19, row_id = $7::int
    WHERE h.tenant = $1 AND h.space = (SELECT s.id FROM s) AND h.timeline = $10
), l AS (
    INSERT INTO perdure.log (tenant, space, row_id, digest, prev, jump, depth, turn, sequence, events, unnumbered, run,
        op_id, intent, previous, pack, state, needs, link)
    SELECT $1, s.id, $7::int, $17, $15::int, $20::int, $21::int, $22::int, $23, $24::int, $25::int, $26::bigint,
        $27, $28, $29, $30, $31::bytea, $32::bytea, $9 FROM s
), k AS (
    INSERT INTO perdure.keys (tenant, space, key, row_id) SELECT $1, s.id, unnest($35::bigint[]), $7::int FROM s
)
SELECT clock_timestamp(), s.followed_until, s.follower, pg_walfile_name(pg_current_wal_insert_lsn()),
    CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END
FROM s
"""


def _statement(revisions: tuple[bool, ...]) -> str:
    """Return the statement for a write with such fences; of each, whether its cell has a revision or is not there."""
    found, at = "", 36
    for has_revision in revisions:
        found += (_CELL_AT if has_revision else _NO_CELL).format(name=f"${at}", revision=f"${at + 1}")
        at += 1 + has_revision
    return _STATEMENT.format(fences=found)


# By the fences of a write: each is looked up, and a statement without them, or for a cell that is not there, is shorter.
NEXT = {
    revisions: _statement(revisions)
    for count in range(_FENCES_MAX + 1)
    for revisions in product((False, True), repeat=count)
}


class CommitRow(NamedTuple):
    """The row of a commit, and the one that its jump leads to."""

    row: int
    depth: int
    jump: CommitRow | None  # None: not known; the first commit jumps to itself

    def jumped(self) -> CommitRow | None:
        """Return the row at the other end of the jump; None: it is not known."""
        return self if self.depth == 0 else self.jump


class TimelineEnd(msgspec.Struct, frozen=True, gc=False):
    """The end of a timeline."""

    version: int
    commit: Digest
    move: Digest  # its last one
    record: bytes  # of that move
    part: int  # of the seal
    at: CommitRow
    turn: int
    sequence: int  # of the next event
    run: int  # the key of the run; 0: none


class KnownEnd(msgspec.Struct, frozen=True, gc=False):
    """A space as this process left it."""

    generation: int
    rows: int
    seal: int
    link: bytes
    tips: Mapping[str, TimelineEnd]  # by timeline

    @property
    def mark(self) -> SpaceMark:
        """What the next write to the space changes."""
        return SpaceMark(self.rows, self.generation, self.seal, self.link)


class KnownEnds:
    """The spaces that this process wrote to last, as it left them.  What is here may have become untrue."""

    def __init__(self) -> None:
        """Begin empty."""
        self._spaces: dict[str, KnownEnd] = {}
        self._rests: dict[str, int] = {}  # spaces that others write to, and writes that are sent in full
        self._lock = ThreadLock()

    def of(self, space: str) -> KnownEnd | None:
        """Return the end of a space; None: it is not known."""
        return self._spaces.get(space)

    def learn(self, space: str, end: KnownEnd) -> None:
        """Note the end of a space after a write."""
        with self._lock:
            left = self._rests.get(space, 0)
            if left:
                self._rests[space] = left - 1
                return
            self._rests.pop(space, None)
            known = self._spaces.get(space)
            if known is not None and (known.generation, known.rows) > (end.generation, end.rows):
                return  # another thread has written since
            if known is not None:
                del self._spaces[space]
                tips = {**known.tips, **end.tips}
                while len(tips) > _TIMELINES_MAX:
                    tips.pop(next(iter(tips)))
                end = KnownEnd(end.generation, end.rows, end.seal, end.link, tips)
            self._spaces[space] = end
            while len(self._spaces) > _SPACES_MAX:
                self._spaces.pop(next(iter(self._spaces)))

    def forget(self, space: str, *, rests: bool = False) -> None:
        """Drop what is known of a space; `rests` learns nothing of it for some writes, since others write there."""
        with self._lock:
            self._spaces.pop(space, None)
            if rests:
                self._rests[space] = _RESTS
            while len(self._rests) > _SPACES_MAX:
                self._rests.pop(next(iter(self._rests)))


def _followed(write: Write, end: KnownEnd) -> TimelineEnd | None:
    """Return the end of the timeline that a write moves on from; None if that is not known, or it does anything else."""
    if len(write.moves) != 1 or write.cells or write.entries or isinstance(write, Replay):
        return None
    move = write.moves[0]
    tip, expected = end.tips.get(move.timeline), move.expected
    if tip is None or expected is None or move.seal or len(write.fences) > _FENCES_MAX:
        return None
    is_known = expected.commit == tip.commit and expected.version == tip.version
    is_known = is_known and expected.timeline == move.timeline and move.previous in (None, tip.move)
    return tip if is_known else None


def prepare_next(tenant: str, write: Write, bases: RecentObjects, end: KnownEnd) -> PreparedWrite | None:
    """Return a write as the parameters of `NEXT`; None if it is not one commit on a known end."""
    tip = _followed(write, end)
    row = None if tip is None else one_commit(write.objects)
    generation, _, known = bases.of(write.space)
    if tip is None or row is None or row.commit is None or generation not in (-1, end.generation):
        return None
    move, commit, digest, jump = write.moves[0], row.commit, write.objects[-1].digest, _next_jump(tip.at)
    is_next = commit.parents == (tip.commit,) and commit.depth == tip.at.depth + 1 and move.to == digest
    if not is_next or jump is None:
        return None
    op_id, intent, timeline = op_bytes(write.op_id), bytes.fromhex(write.intent), bytes_of(move.timeline)
    record = _record(write, tip)
    body = encode_move(record)
    op = PackedOp((packed_move(record, digest, tip.commit),), (), 0, intent_checksum(op_id, intent))
    (_, depth, events, run, unnumbered), (raw, _, *packed), state = row_fields(row, op, known)
    if any(chain and chain[-1] > end.rows for chain in state.chains):
        return None  # another thread wrote it since; only the general function asks if the server has it
    is_same = run != 0 and run == tip.run
    moved = digest_of(Kind.MOVE, body)
    raw_moved, raw_move = bytes.fromhex(moved), bytes.fromhex(tip.move)
    part = _seal_part(timeline, raw_moved)
    at = CommitRow(end.rows + 1, depth, jump)
    turn = tip.turn if is_same else tip.turn + 1
    after = TimelineEnd(record.version, digest, moved, body, part, at, turn, tip.sequence + events, run)
    link, seal = link_after(end.link, op_id, intent, at.row), end.seal + part - tip.part
    left = KnownEnd(end.generation, at.row, seal, link, {record.timeline: after})
    keys = [op_key(op_id), move_key(timeline, record.version), *row.keys()]
    if run and not is_same:
        keys.append(run)
    parameters: tuple[Parameter, ...] = (
        *(tenant, bytes_of(write.space), Short(end.rows), end.generation, Numeric(end.seal), end.link),
        *(Short(at.row), Numeric(seal), link),
        *(timeline, tip.version, bytes.fromhex(tip.commit), raw_move, tip.record, Short(tip.at.row)),
        *(record.version, raw, raw_moved, body),
        *(Short(jump.row), Short(depth), Short(turn), tip.sequence, Short(events)),
        *(Short(unnumbered) if unnumbered else None, run or None),
        *(op_id, intent, b"\x01" + raw_move, *packed),
        *(keys[0], key_of(digest), integer_array(list(dict.fromkeys(keys)))),
        *_fences(write),
    )
    return PreparedWrite(write, parameters, (depth,), (state,), None, row, left, end.mark)


def _record(write: Write, tip: TimelineEnd) -> MoveRecord:
    move = write.moves[0]
    return MoveRecord(
        timeline=move.timeline,
        version=tip.version + 1,
        act=move.act,
        op_id=write.op_id,
        from_=tip.commit,
        to=move.to,
        previous=tip.move,
        at=move.at,
        author=move.author,
    )


def _fences(write: Write) -> list[Parameter]:
    given: list[Parameter] = []
    for fence in write.fences:
        given.append(bytes_of(fence.cell))
        if fence.revision:
            given.append(fence.revision)
    return given


def _next_jump(before: CommitRow) -> CommitRow | None:
    """Return where the jump of the commit after `before` leads; two equal jumps are joined into one."""
    first = before.jumped()
    second = None if first is None else first.jumped()
    if first is None or second is None:
        return None
    return second if before.depth - first.depth == first.depth - second.depth else before


def _seal_part(timeline: bytes, move: bytes) -> int:
    """Return what a head adds to the seal of its space; the server computes the same."""
    hashed = sha256(b"head\0" + timeline + b"\0" + move).digest()
    return (int.from_bytes(hashed[:8], signed=True) << 64) + int.from_bytes(hashed[8:16], signed=True)


def next_answer(end: KnownEnd, rows: list[Row]) -> Row:
    """Return the answer to `NEXT` in the form of an answer to the general function; without a row nothing was changed."""
    if not rows:
        return ("missed",)
    now_us, followed_until, follower, file, _ = rows[0]
    is_followed = int(str(followed_until)) > int(str(now_us))
    clock = str(file)[:8].lower()
    return (
        "done",
        end.rows,
        0,
        None,
        None,
        now_us,
        end.generation,
        follower if is_followed else None,
        clock,
        None,
        None,
    )


def end_after(prepared: PreparedWrite, answer: Row) -> KnownEnd | None:
    """Return the end of a space after a write that the general function made; None if it does not say."""
    _, last, _, _, _, _, generation, _, _, place, record = answer
    if not isinstance(place, str):
        return None
    seal, link, *places = place.split(" ")
    tips: dict[str, TimelineEnd] = {}
    row, moves = prepared.row, prepared.write.moves
    if row is not None and row.commit is not None and isinstance(record, bytes) and not moves[0].seal:
        turn, sequence, parent, parent_depth, first, first_depth, second, second_depth = map(int, places)
        jump = CommitRow(first, first_depth, CommitRow(second, second_depth, None))
        at = CommitRow(int(str(last)), row.commit.depth, _next_jump(CommitRow(parent, parent_depth, jump)))
        name, move = moves[0].timeline, digest_of(Kind.MOVE, record)
        tips[name] = TimelineEnd(
            version=1 + (moves[0].expected.version if moves[0].expected else -1),
            commit=Digest(row.digest or ""),
            move=move,
            record=record,
            part=_seal_part(bytes_of(name), bytes.fromhex(move)),
            at=at,
            turn=turn,
            sequence=sequence + len(row.events),
            run=0 if row.commit.run is None else label_key(row.commit.run),
        )
    return KnownEnd(int(str(generation)), int(str(last)), int(seal), bytes.fromhex(link), tips)
