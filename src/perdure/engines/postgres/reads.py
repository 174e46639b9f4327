"""Reads: questions to the store, of which each is one statement, and what its rows say.

A `StoreQuestion` is a statement, its parameters and the function that reads the answer.  So several questions can go to the
server together (`Connection.ask_all`) and be answered from one moment.  Everything that is read is checked: a cell
against its digest, a head against its last move, a ledger entry against the chain, an object against its digest.

A row of the log is read by its whole key, in a lateral subquery with `OFFSET 0`.  As a join, the planner may read all
rows of the space for each: before the tables are analysed it expects one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Generic, TypeVar, cast

import msgspec

from perdure.engines.contract import (
    Cell,
    Hold,
    LedgerEntry,
    Place,
    Recorded,
    Step,
)
from perdure.engines.postgres.commit.write import receipt_of
from perdure.engines.postgres.connections import Connection, Parameter, Row, bytea_array, integer_array
from perdure.engines.postgres.pack import (
    RowPack,
    StateReader,
    bytes_of,
    check_intent,
    commit_in,
    decode_pack,
    digest_of_item,
    is_buried,
    key_of,
    kind_of,
    label_key,
    moves_of,
    name_of,
    op_bytes,
    op_key,
)
from perdure.engines.postgres.schema import SCHEMA_VERSION
from perdure.engines.shared_rules import (
    broken_chain,
    chained,
    check_cell,
    check_hold,
    damaged,
    event_labels,
    unmoved,
)
from perdure.errors import Corrupt, Forgotten, NotFound
from perdure.model.commit import LedgerRead, MoveRecord, decode_changeset, decode_move, encode_move
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import MessageAppended
from perdure.model.head import MAIN, Head

__all__ = [
    "CELL",
    "OF",
    "SPACE",
    "StoreQuestion",
    "cell",
    "cell_of",
    "cells",
    "cells_of",
    "commits",
    "entries",
    "facts",
    "hold",
    "holds",
    "labelled",
    "lateral_row",
    "ledger",
    "listed",
    "missing",
    "moves",
    "objects",
    "recorded",
    "spaces",
    "standing",
    "steps",
    "turn",
]

_T = TypeVar("_T")

SPACE = "(SELECT id FROM perdure.spaces WHERE tenant = $1 AND name = $2)"
OF = f"tenant = $1 AND space = {SPACE}"
_END = b"\xff"  # after every name: no text has this byte
_TURN_MAX = (1 << 31) - 1
_POSITION_MAX = (1 << 63) - 1


def lateral_row(number: str) -> str:
    """Return a subquery for the row of the log that has this number."""
    return f"LATERAL (SELECT * FROM perdure.log WHERE {OF} AND row_id = {number} OFFSET 0)"


class StoreQuestion(Generic[_T]):
    """One statement, and how its rows are read; `columns`: how many a row has, of which there is one at most."""

    __slots__ = ("columns", "parameters", "read", "sql")

    def __init__(
        self,
        sql: str,
        parameters: Sequence[Parameter],
        read: Callable[[list[Row]], _T],
        columns: int = 0,
    ) -> None:
        self.sql, self.parameters, self.read, self.columns = sql, parameters, read, columns


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise damaged("a column that must hold bytes holds none.", "row_damaged")
    return value


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _hex(value: object) -> Digest | None:
    return Digest(value.hex()) if isinstance(value, bytes) else None


# ---- writes and objects


_RECORDED = (
    "SELECT l.intent, l.pack, l.position, l.chain, l.dropped FROM perdure.keys k "
    f"CROSS JOIN {lateral_row('k.row_id')} l "
    f"WHERE k.tenant = $1 AND k.space = {SPACE} AND k.key = $3 AND l.op_id = $4 LIMIT 1"
)


def recorded(tenant: str, space: str, op_id: str) -> StoreQuestion[Recorded | None]:
    """Ask for the write of an op_id."""
    name = op_bytes(op_id)

    def read(rows: list[Row]) -> Recorded | None:
        if not rows:
            return None
        intent, stored, position, chain, dropped = rows[0]
        if dropped is not None:
            raise Forgotten(f"the write '{op_id}'", _bytes(dropped).decode("utf-8", "replace"))
        pack = decode_pack(stored)
        check_intent(pack, name, intent)
        return Recorded(Digest(_bytes(intent).hex()), receipt_of(op_id, pack, position, chain))

    return StoreQuestion(_RECORDED, (tenant, bytes_of(space), op_key(name), name), read, 5)


# The rows that hold these keys, and those that are needed to read them, without their packs.
_HOLDING = f"""
WITH hit AS MATERIALIZED (
    SELECT k.row_id, k.keys, l.pack, l.state, l.needs FROM (
        SELECT row_id, string_agg(int8send(key), '') AS keys FROM perdure.keys WHERE {OF} AND key = ANY($3) GROUP BY row_id
    ) k CROSS JOIN {lateral_row("k.row_id")} l
)
SELECT pack, keys, row_id, state FROM hit
UNION ALL
SELECT NULL, NULL, n.row_id, l.state FROM (
    SELECT perdure.numbers_in(needs) AS row_id FROM hit EXCEPT SELECT row_id FROM hit
) n CROSS JOIN {lateral_row("n.row_id")} l
ORDER BY row_id
"""


def objects(tenant: str, space: str, digests: Sequence[Digest]) -> StoreQuestion[list[Object]]:
    """Ask for objects, each checked against its digest."""
    keys = {key_of(digest) for digest in digests}

    def read(rows: list[Row]) -> list[Object]:
        wanted, found = set(digests), dict[Digest, Object]()
        gone: dict[Digest, Forgotten] = {}
        named: set[bytes] = set()
        states = StateReader()
        for _, _, row, state in rows:
            states.add(row, state)
        for pack, held, row, _ in rows:
            if held is None:  # it is only needed to read others
                continue
            named |= {_bytes(held)[at : at + 8] for at in range(0, len(_bytes(held)), 8)}
            for item in (*decode_pack(pack).items, *states.items(row)):
                digest = digest_of_item(item)
                if digest in wanted and is_buried(item):
                    gone[digest] = Forgotten(
                        f"{kind_of(item)} {digest}", item[1][32:].decode("utf-8", "replace")
                    )
                elif digest in wanted:
                    found[digest] = Object(kind_of(item), digest, item[1])
        if len(found) < len(wanted):
            _refuse_first(digests, found, gone, named)
        return [found[digest] for digest in digests]

    return StoreQuestion(_HOLDING, (tenant, bytes_of(space), integer_array(list(keys))), read)


def _refuse_first(
    digests: Sequence[Digest], found: dict[Digest, Object], gone: dict[Digest, Forgotten], named: set[bytes]
) -> None:
    """Raise what is wrong with the first object that was not found; `named` has the keys that led to a row."""
    for digest in digests:
        if digest in found:
            continue
        if digest in gone:
            raise gone[digest]
        if key_of(digest).to_bytes(8, signed=True) in named:
            raise Corrupt(
                f"the object {digest} does not match its digest; it was not returned.",
                code="digest_mismatch",
                advice="Run `perdure verify`.",
                digest=digest,
                object=digest,
            )
        raise NotFound(f"there is no object {digest} in this space.", code="object_not_found", digest=digest)


def missing(tenant: str, space: str, digests: Sequence[Digest]) -> StoreQuestion[list[Digest]]:
    """Ask which objects the space never had."""
    sql = f"SELECT DISTINCT key FROM perdure.keys WHERE {OF} AND key = ANY($3)"
    keys = [key_of(digest) for digest in digests]

    def read(rows: list[Row]) -> list[Digest]:
        there = {key for (key,) in rows}
        return [digest for digest, key in zip(digests, keys, strict=True) if key not in there]

    return StoreQuestion(sql, (tenant, bytes_of(space), integer_array(keys)), read)


# ---- history

_BACK = "SELECT row_id, digest, depth, turn, sequence, pack FROM perdure.back($1,$2,$3,$4,$5::int,$6::int)"


def steps(
    tenant: str, space: str, at: Digest, skip: int, limit: int, *, bodies: bool
) -> StoreQuestion[list[Step]]:
    """Ask for the commits from `at` backwards; with `bodies` each has those of its messages that its row holds."""

    def read(rows: list[Row]) -> list[Step]:
        _check_found(rows, at)
        found = [_step(row, bodies=bodies) for row in rows[1:]]
        for child, parent in pairwise(found):
            if child.commit.first_parent != parent.digest:
                raise damaged(
                    f"commit {parent.digest} is in the place of the parent of {child.digest}.",
                    "commit_misplaced",
                    commit=child.digest,
                )
        return found

    skipped = min(max(skip, 0), _TURN_MAX)
    return StoreQuestion(
        _BACK, (tenant, bytes_of(space), _digest(at), skipped, _TURN_MAX, max(limit, 0)), read
    )


def turn(tenant: str, space: str, at: Digest, number: int) -> StoreQuestion[Step | None]:
    """Ask for the last commit of a turn."""

    def read(rows: list[Row]) -> Step | None:
        _check_found(rows, at)
        found = _step(rows[1]) if len(rows) > 1 else None
        return found if found is not None and found.place.turn == number else None

    wanted = min(max(number, -1), _TURN_MAX)
    return StoreQuestion(_BACK, (tenant, bytes_of(space), _digest(at), 0, wanted, 1), read)


def _digest(digest: Digest) -> bytes:
    try:
        return bytes.fromhex(digest)
    except ValueError:
        return b""


def _check_found(rows: list[Row], at: Digest) -> None:
    if not rows:
        raise NotFound(
            f"there is no commit {at} in this space; nothing was returned.",
            code="commit_not_found",
            commit=at,
        )
    if rows[-1][0] == -1:
        raise damaged("a row of the log is missing; its history could not be followed.", "row_lost")


def _step(row: Row, *, bodies: bool = False) -> Step:
    _, digest, depth, turn, sequence, stored = row
    pack, place = decode_pack(stored), Place(_int(depth), _int(turn), _int(sequence))
    step = _step_of(pack, _bytes(digest), place)
    return msgspec.structs.replace(step, bodies=_bodies_of(step, pack)) if bodies else step


def _bodies_of(step: Step, pack: RowPack) -> dict[Digest, bytes]:
    """Return the bodies of the messages of a commit that are in its row: neither large nor forgotten."""
    messages = [event for event in step.changeset.events if isinstance(event, MessageAppended)]
    named = {digest for event in messages for digest in (event.body, event.vendor)}
    held = {digest_of_item(item): item[1] for item in pack.items[:-2] if not is_buried(item)}
    return {digest: body for digest, body in held.items() if digest in named}


def _step_of(pack: RowPack, digest: bytes, place: Place) -> Step:
    """Return the commit of a row, which is its last item, with its changeset, which is the one before."""
    name = Digest(digest.hex())
    if len(pack.items) < 2 or digest_of_item(pack.items[-1]) != name:
        raise Corrupt(
            f"commit {name} does not match its digest; it was not returned.",
            code="digest_mismatch",
            advice="Run `perdure verify`.",
            object=name,
        )
    commit = commit_in(pack)
    if commit is None or digest_of(Kind.CHANGESET, pack.items[-2][1]) != commit.changeset:
        raise damaged(f"the changeset of commit {name} is missing.", "object_missing", digest=name)
    return Step(name, commit, decode_changeset(pack.items[-2][1]), place)


def labelled(tenant: str, space: str, label: str) -> StoreQuestion[list[Digest]]:
    """Ask for the commits that a message id or a run id names."""
    sql = (
        "SELECT l.row_id, l.digest, l.depth, l.turn, l.sequence, l.pack, l.run IS DISTINCT FROM p.run "
        f"FROM (SELECT DISTINCT row_id FROM perdure.keys WHERE {OF} AND key = $3) k "
        f"CROSS JOIN {lateral_row('k.row_id')} l LEFT JOIN {lateral_row('l.prev')} p ON true "
        "WHERE l.depth IS NOT NULL ORDER BY l.row_id"
    )

    def read(rows: list[Row]) -> list[Digest]:
        found: list[Digest] = []
        for *row, is_first_of_run in rows:
            step = _step(tuple(row))
            if label in event_labels(step.changeset.events) or (is_first_of_run and step.commit.run == label):
                found.append(step.digest)
        return found

    return StoreQuestion(sql, (tenant, bytes_of(space), label_key(label)), read)


def commits(tenant: str, space: str, prefix: str, limit: int) -> StoreQuestion[list[Digest]]:
    """Ask for the commits whose digest starts with these hex digits."""
    sql = (
        "SELECT l.digest FROM perdure.keys k "
        f"CROSS JOIN {lateral_row('k.row_id')} l "
        f"WHERE k.tenant = $1 AND k.space = {SPACE} AND k.key BETWEEN $3 AND $4 AND l.depth IS NOT NULL "
        "AND k.key = perdure.key_of(l.digest) AND encode(l.digest, 'hex') LIKE $5 "
        "GROUP BY k.key, l.digest ORDER BY k.key, l.digest LIMIT $6"
    )
    low, high = prefix[:16].ljust(16, "0"), prefix[:16].ljust(16, "f")
    bounds = key_of(low), key_of(high)
    return StoreQuestion(
        sql,
        (tenant, bytes_of(space), *bounds, f"{prefix}%", max(limit, 0)),
        lambda rows: [Digest(_bytes(digest).hex()) for (digest,) in rows],
    )


# ---- heads

_HEAD = "h.timeline, h.version, h.commit, h.sealed, h.move, h.record"
_HOLD = f"SELECT {_HEAD} FROM perdure.heads h WHERE {OF} AND h.timeline = $3"


def hold(tenant: str, space: str, timeline: str) -> StoreQuestion[Hold | None]:
    """Ask for the head of a timeline."""
    return StoreQuestion(
        _HOLD,
        (tenant, bytes_of(space), bytes_of(timeline)),
        lambda rows: hold_of(rows[0]) if rows else unmoved(timeline),
        6,
    )


def holds(tenant: str, space: str, after: str, limit: int) -> StoreQuestion[list[Hold]]:
    """Ask for the heads of the timelines after `after`."""
    sql = f"SELECT {_HEAD} FROM perdure.heads h WHERE {OF} AND h.timeline > $3 ORDER BY h.timeline LIMIT $4"
    return StoreQuestion(
        sql,
        (tenant, bytes_of(space), bytes_of(after), max(limit, 0)),
        lambda rows: [hold_of(row) for row in rows],
    )


def hold_of(row: Row) -> Hold:
    """Return a head, checked against its last move."""
    name, version, commit, sealed, move, record = row
    timeline = name_of(name)
    if not isinstance(record, bytes) or digest_of(Kind.MOVE, record) != _hex(move):
        raise damaged(
            f"the head of timeline '{timeline}' does not match its last move; it was not used.",
            "head_damaged",
            timeline=timeline,
        )
    found = Hold(Head(timeline, _int(version), _hex(commit)), bool(sealed), _hex(move))
    check_hold(found, decode_move(record))
    return found


def moves(
    tenant: str, space: str, timeline: str, before: int | None, limit: int
) -> StoreQuestion[list[MoveRecord]]:
    """Ask for the recorded moves of a timeline, newest first."""
    sql = f"""
    WITH h AS (SELECT * FROM perdure.heads h WHERE {OF} AND h.timeline = $3)
    SELECT {_HEAD}, v.version, l.op_id, l.previous, l.pack
    FROM h CROSS JOIN LATERAL (SELECT least(h.version, $4 - 1) AS top) b
    CROSS JOIN LATERAL generate_series(b.top, greatest(b.top - $5 + 1, 0), -1) AS v(version)
    LEFT JOIN LATERAL (
        SELECT k.row_id FROM perdure.keys k
        WHERE k.tenant = $1 AND k.space = h.space AND k.key = perdure.move_key(h.timeline, v.version) OFFSET 0
    ) k ON true
    LEFT JOIN {lateral_row("k.row_id")} l ON true
    WHERE $5 > 0 ORDER BY v.version DESC
    """

    def read(rows: list[Row]) -> list[MoveRecord]:
        found: list[MoveRecord] = []
        top = hold_of(rows[0][:6]) if rows else None
        for row in rows:
            version, op_id, previous, pack = row[6:]
            stored = (
                []
                if pack is None
                else moves_of(decode_pack(pack), _bytes(op_id), cast("bytes | None", previous))
            )
            move = next(
                (each for each in stored if (each.timeline, each.version) == (timeline, version)), None
            )
            if move is not None:
                _check_linked(move, found[-1] if found else None, top)
                found.append(move)
            elif version or timeline != MAIN:
                raise damaged(
                    f"the move of timeline '{timeline}' to version {version} is missing; nothing was read.",
                    "move_lost",
                    timeline=timeline,
                    version=version,
                )
        return found

    limit = max(limit, 0)
    top = _POSITION_MAX if before is None else before
    return StoreQuestion(sql, (tenant, bytes_of(space), bytes_of(timeline), top, limit), read)


def _check_linked(move: MoveRecord, newer: MoveRecord | None, top: Hold | None) -> None:
    """Raise `Corrupt` unless the newer move, or the head, names this one."""
    if newer is not None:
        named = newer.previous
    elif top is not None and top.head.version == move.version:
        named = top.move
    else:
        return
    if digest_of(Kind.MOVE, encode_move(move)) != named:
        raise damaged(
            f"the move of timeline '{move.timeline}' to version {move.version} does not match its digest; nothing was read.",
            "move_damaged",
            timeline=move.timeline,
            version=move.version,
        )


# ---- cells and ledgers

CELL = "c.name, c.revision, c.value, c.position, c.listed, c.digest"
_CELL = f"SELECT {CELL} FROM perdure.cells c WHERE {OF} AND c.name = $3"
_LEDGER = f"SELECT position, chain FROM perdure.entries WHERE {OF} ORDER BY position DESC LIMIT 1"


def cell_of(space: str, row: Row) -> Cell:
    """Return a cell, checked against its digest."""
    name, revision, value, position, listed, digest = row
    found = Cell(space, name_of(name), _int(revision), cast("bytes | None", value), _int(position))
    return check_cell(found, digest, listed=bool(listed))


def cell(tenant: str, space: str, name: str) -> StoreQuestion[Cell | None]:
    """Ask for a cell."""
    return StoreQuestion(
        _CELL,
        (tenant, bytes_of(space), bytes_of(name)),
        lambda rows: cell_of(space, rows[0]) if rows else None,
        6,
    )


def cells(
    tenant: str, space: str, prefix: str, after: str, before: str | None, *, descending: bool, limit: int
) -> StoreQuestion[list[Cell]]:
    """Ask for the cells that are not empty, by name."""
    sql = (
        f"SELECT {CELL} FROM perdure.cells c WHERE {OF} AND c.name >= $3 AND c.name < $4 AND c.name > $5 AND c.name < $6 "
        f"AND c.value IS NOT NULL ORDER BY c.name {'DESC' if descending else 'ASC'} LIMIT $7"
    )
    start = bytes_of(prefix)
    end = _END if before is None else bytes_of(before)
    bounds = start, start + _END, bytes_of(after), end
    return StoreQuestion(
        sql,
        (tenant, bytes_of(space), *bounds, max(limit, 0)),
        lambda rows: [cell_of(space, row) for row in rows],
    )


def cells_of(tenant: str, spaces: Sequence[str], name: str) -> StoreQuestion[list[Cell]]:
    """Ask for the cells of one name in many spaces."""
    sql = (
        f"SELECT s.name, {CELL} FROM perdure.spaces s JOIN perdure.cells c ON c.tenant = s.tenant AND c.space = s.id "
        "WHERE s.tenant = $1 AND s.name = ANY($2) AND c.name = $3"
    )
    wanted = bytea_array([bytes_of(space) for space in spaces])
    return StoreQuestion(sql, (tenant, wanted, bytes_of(name)), _cells_with_space)


def _cells_with_space(rows: list[Row]) -> list[Cell]:
    return [cell_of(name_of(row[0]), row[1:]) for row in rows]


def listed(tenant: str, prefix: str, after: tuple[str, str], limit: int) -> StoreQuestion[list[Cell]]:
    """Ask for the listed cells of every space."""
    sql = (
        f"SELECT s.name, {CELL} FROM perdure.cells c JOIN perdure.spaces s ON s.tenant = c.tenant AND s.id = c.space "
        "WHERE c.tenant = $1 AND c.is_found AND c.name >= $2 AND c.name < $3 AND c.name >= $4 "
        "AND (c.name, s.name) > ($4, $5) ORDER BY c.name, s.name LIMIT $6"
    )
    start = bytes_of(prefix)
    bounds = start, start + _END, bytes_of(after[0]), bytes_of(after[1])
    return StoreQuestion(sql, (tenant, *bounds, max(limit, 0)), _cells_with_space)


def entries(
    tenant: str, space: str, after: int, before: int | None, *, descending: bool, limit: int
) -> StoreQuestion[list[LedgerEntry]]:
    """Ask for ledger entries between two positions, each checked against the chain.

    The entry below the lowest one is read too, because the chain goes through it, and so is the entry `before`:
    only its position shows that an entry right below it is missing.
    """
    top = _POSITION_MAX if before is None else before
    count = limit + 2 if descending else limit + (after > 0) + (before is not None)
    sql = (
        f"SELECT position, chain, body FROM perdure.entries WHERE {OF} AND position >= $3 AND position <= $4 "
        f"ORDER BY position {'DESC' if descending else 'ASC'} LIMIT $5"
    )

    def read(rows: list[Row]) -> list[LedgerEntry]:
        is_cut = descending and len(rows) == limit + 2  # the lowest row is only there for the chain
        found = _linked(rows[::-1] if descending else rows, after, top, is_cut=is_cut)
        return (found[::-1] if descending else found)[:limit]

    return StoreQuestion(sql, (tenant, bytes_of(space), after, top, max(count, 0)), read)


def _linked(rows: Iterable[Row], after: int, top: int, *, is_cut: bool) -> list[LedgerEntry]:
    found: list[LedgerEntry] = []
    expected, chain = 1, None
    for index, row in enumerate(rows):
        position, body = _int(row[0]), _bytes(row[2])
        entry = LedgerEntry(position, Digest(_bytes(row[1]).hex()), body)
        is_neighbour = index == 0 and (position == after or is_cut)
        is_linked = position == expected and (position == top or entry.chain == chained(chain, body))
        if not is_linked and not is_neighbour:
            raise broken_chain(position)
        expected, chain = position + 1, entry.chain
        if after < position < top:
            found.append(entry)
    return found


def ledger(tenant: str, space: str) -> StoreQuestion[LedgerRead]:
    """Ask for the end of a ledger."""
    return StoreQuestion(
        _LEDGER,
        (tenant, bytes_of(space)),
        lambda rows: LedgerRead(_int(rows[0][0]), _hex(rows[0][1])) if rows else LedgerRead(),
        2,
    )


# ---- spaces


def spaces(tenant: str, after: str, limit: int) -> StoreQuestion[list[str]]:
    """Ask for the spaces, by name."""
    compared = ">" if after else ">="  # no space has an empty name, unless it is damaged
    sql = f"SELECT name FROM perdure.spaces WHERE tenant = $1 AND name {compared} $2 ORDER BY name LIMIT $3"
    return StoreQuestion(
        sql, (tenant, bytes_of(after), max(limit, 0)), lambda rows: [_space_name(name) for (name,) in rows]
    )


def _space_name(stored: object) -> str:
    """Return the name of a space; raise `Corrupt` if it cannot be the one that was stored."""
    name = name_of(stored)
    if not name or bytes_of(name) != stored:
        raise damaged(f"the name of a space is damaged ({stored!r}); it was not used.", "name_damaged")
    return name


def standing(tenant: str, space: str) -> StoreQuestion[int]:
    """Ask how many rows the log of a space has."""
    sql = "SELECT rows FROM perdure.spaces WHERE tenant = $1 AND name = $2"
    return StoreQuestion(sql, (tenant, bytes_of(space)), lambda rows: _int(rows[0][0]) if rows else 0)


# ---- what `doctor` shows

_FACTS = """
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
    current_setting('full_page_writes'), pg_is_in_recovery(), pg_database_size(current_database()),
    (SELECT count(*) FROM perdure.spaces WHERE tenant = $1),
    (SELECT coalesce(sum(rows), 0)::bigint FROM perdure.spaces WHERE tenant = $1),
    coalesce((SELECT extract(epoch FROM max(now() - xact_start))::bigint FROM pg_stat_activity
              WHERE datname = current_database() AND pid <> pg_backend_pid()), 0),
    (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = 'perdure'),
    (SELECT coalesce(sum(n_live_tup), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = 'perdure'),
    (SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names'),
    (SELECT count(*) FROM pg_stat_activity), current_setting('max_connections')::int,
    (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user)
"""


def facts(connection: Connection, tenant: str) -> dict[str, str | int]:
    """Return what `doctor` shows of the server and the store."""
    (
        (
            version,
            fsync,
            synchronous,
            pages,
            standby,
            size,
            spaces,
            rows,
            oldest,
            dead,
            live,
            replicas,
            awaited,
            *used,
        ),
    ) = connection.ask(_FACTS, tenant)
    return {
        "server": str(version),
        "schema": SCHEMA_VERSION,
        "tenant": tenant,
        "fsync": str(fsync),
        "synchronous_commit": str(synchronous),
        "full_page_writes": str(pages),
        "is_standby": int(bool(standby)),
        "standbys": _int(replicas),
        "synchronous_standby_names": str(awaited),
        "pooler": "transaction" if connection.is_pooled() else "none",
        "connections": _int(used[0]),
        "max_connections": _int(used[1]),
        "row_security": "off" if used[2] else "on",
        "bytes": _int(size),
        "spaces": _int(spaces),
        "rows": _int(rows),
        "live_rows": _int(live),
        "dead_rows": _int(dead),
        "oldest_transaction_seconds": _int(oldest),
    }
