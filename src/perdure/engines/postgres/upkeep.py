"""Upkeep of a space: what a repair, a garbage collection and a removal change, each in one transaction.

Each transaction takes the lock of the space first, as every writer does, and sends several statements, because what it
writes follows from what it reads.  A process that stops in the middle loses its session within seconds and with it the
lock; nothing of what it did is left.  Each of them may be repeated: the second time it finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perdure.engines.contract import GC, Rebuilt
from perdure.engines.postgres import reads
from perdure.engines.postgres.connections import Connection, bytea_array, integer_array
from perdure.engines.postgres.pack import (
    StateReader,
    buried,
    bytes_of,
    decode_pack,
    digest_of_item,
    encode_pack,
    encode_state,
    is_buried,
    kind_of,
)
from perdure.engines.shared_rules import check_forgettable, check_ledger_end, check_standing
from perdure.model.commit import LedgerRead
from perdure.model.digest import Digest

__all__ = ["drop", "forget", "reseal"]

_LOCK = "SELECT id, rows, position, chain FROM perdure.spaces WHERE tenant = $1 AND name = $2 FOR UPDATE"
_PUT = (
    "INSERT INTO perdure.cells AS c (tenant, space, name, revision, value, position, listed, is_found, digest) "
    "SELECT $1, $2, n.name, n.revision, n.value, n.position, n.listed = 1, n.listed = 1 AND n.value IS NOT NULL, "
    "perdure.cell_digest($3, n.name, n.revision, n.value, n.position, n.listed = 1) FROM ("
    "SELECT u.name, coalesce(nullif(u.revision, 0), o.revision + 1, 1) AS revision, u.value, u.position, u.listed "
    "FROM unnest($4::bytea[], $5::bytea[], $6::bigint[], $7::bigint[], $8::bigint[]) "
    "AS u(name, value, position, listed, revision) "
    "LEFT JOIN perdure.cells o ON o.tenant = $1 AND o.space = $2 AND o.name = u.name) n "
    "ON CONFLICT (tenant, space, name) DO UPDATE SET revision = excluded.revision, value = excluded.value, "
    "position = excluded.position, listed = excluded.listed, is_found = excluded.is_found, digest = excluded.digest"
)
_SEAL = (
    "WITH c AS (UPDATE perdure.cells SET is_found = listed AND value IS NOT NULL, "
    "digest = perdure.cell_digest($3, name, revision, value, position, listed) WHERE tenant = $1 AND space = $2 AND "
    "(digest <> perdure.cell_digest($3, name, revision, value, position, listed) "
    "OR is_found <> (listed AND value IS NOT NULL))) SELECT 1"
)
_SUM = "UPDATE perdure.spaces SET seal = perdure.sum_of($1, $2) WHERE tenant = $1 AND id = $2"


def reseal(db: Connection, tenant: str, space: str, cells: Sequence[Rebuilt]) -> None:
    """Write `cells` and accept the rest of the space as it is stored."""
    with db.transaction():
        locked = db.ask(_LOCK, tenant, bytes_of(space))
        if not locked:
            return
        number, _, position, chain = locked[0]
        left = LedgerRead(int(str(position)), Digest(chain.hex()) if isinstance(chain, bytes) else None)
        question = reads.ledger(tenant, space)
        check_ledger_end(space, left, question.read(db.ask(question.sql, *question.parameters)))
        _put(db, tenant, int(str(number)), space, cells)
        db.ask(_SEAL, tenant, int(str(number)), bytes_of(space))
        db.ask(_SUM, tenant, int(str(number)))


def _put(db: Connection, tenant: str, number: int, space: str, cells: Sequence[Rebuilt]) -> None:
    """Write cells with their digests, whatever is stored under their names."""
    db.ask(
        _PUT,
        tenant,
        number,
        bytes_of(space),
        bytea_array([bytes_of(each.name) for each in cells]),
        bytea_array([each.value for each in cells]),
        integer_array([each.position for each in cells]),
        integer_array([each.listed for each in cells]),
        integer_array([each.revision for each in cells]),
    )


def forget(
    db: Connection, tenant: str, space: str, digests: Sequence[Digest], why: str, standing: int
) -> int:
    """Replace the bytes of objects by tombstones; return the number of bytes set free."""
    with db.transaction():
        locked = db.ask(_LOCK, tenant, bytes_of(space))
        number, rows = (int(str(locked[0][0])), int(str(locked[0][1]))) if locked else (0, 0)
        check_standing(space, standing, rows)
        wanted, freed = set(digests), 0
        question = reads.objects(tenant, space, digests)
        states, changed = StateReader(), list[ChangedRow]()
        answer = db.ask(question.sql, *question.parameters) if locked and digests else []
        for _, _, row, state in answer:
            states.add(row, state)
        for pack, held, row, _ in answer:
            if held is None:
                continue
            stored, kept = decode_pack(pack), states.items(row)
            items, buried_items = _buried(stored.items, wanted, why)
            state_items, buried_state = _buried(kept, wanted, why)
            freed += buried_items + buried_state
            if items != stored.items or state_items != kept:
                new = encode_state(state_items) if kept else None
                changed.append(ChangedRow(int(str(row)), encode_pack(items, stored.op, stored.states), new))
        if changed:
            changed += _stored_whole(db, tenant, number, [each.row for each in changed])
            _bury(db, tenant, space, number, changed)
        return freed


class ChangedRow(NamedTuple):
    """What a row of the log holds after something was forgotten; None leaves the pack as it is, or there is no state."""

    row: int
    pack: bytes | None
    state: bytes | None


def _buried(
    items: tuple[tuple[int, bytes], ...], wanted: set[Digest], why: str
) -> tuple[tuple[tuple[int, bytes], ...], int]:
    """Return the items with tombstones for the wanted ones, and the number of bytes set free."""
    freed, left = 0, list(items)
    for at, item in enumerate(items):
        digest = digest_of_item(item)
        if digest in wanted and not is_buried(item):
            check_forgettable(kind_of(item), digest)
            left[at] = buried(item, digest, why)
            freed += len(item[1])
    return tuple(left), freed


def _stored_whole(db: Connection, tenant: str, number: int, rows: list[int]) -> list[ChangedRow]:
    """Return the rows that cannot be read without `rows`, stored whole: what they are stored against will be gone."""
    found = db.ask(
        "WITH hit AS MATERIALIZED (SELECT row_id, state, needs FROM perdure.log WHERE tenant = $1 AND space = $2 "
        "AND EXISTS (SELECT FROM perdure.numbers_in(needs) n(row_id) WHERE n.row_id = ANY($3))) SELECT row_id, state, true FROM hit UNION ALL "
        "SELECT l.row_id, l.state, false FROM (SELECT perdure.numbers_in(needs) AS row_id FROM hit EXCEPT SELECT row_id FROM hit) n "
        "CROSS JOIN LATERAL (SELECT * FROM perdure.log x WHERE x.tenant = $1 AND x.space = $2 AND x.row_id = n.row_id OFFSET 0) l",
        tenant,
        number,
        integer_array(rows),
    )
    states = StateReader()
    for row, state, _ in found:
        states.add(row, state)
    others = [row for row, _, is_dependent in found if is_dependent and row not in rows]
    return [ChangedRow(int(str(row)), None, encode_state(states.items(row))) for row in others]


def _bury(db: Connection, tenant: str, space: str, number: int, changed: list[ChangedRow]) -> None:
    """Replace the packs of these rows, and raise the revision of the cell that counts what was forgotten."""
    db.ask(
        "UPDATE perdure.log l SET pack = coalesce(c.pack, l.pack), state = c.state, needs = NULL, "
        "digest = CASE WHEN l.depth IS NOT NULL OR c.pack IS NULL THEN l.digest END "
        "FROM unnest($3::bigint[], $4::bytea[], $5::bytea[]) AS c(row_id, pack, state) "
        "WHERE l.tenant = $1 AND l.space = $2 AND l.row_id = c.row_id",
        tenant,
        number,
        integer_array([each.row for each in changed]),
        bytea_array([each.pack for each in changed]),
        bytea_array([each.state for each in changed]),
    )
    db.ask(
        "UPDATE perdure.spaces SET generation = generation + 1 WHERE tenant = $1 AND id = $2", tenant, number
    )
    name = bytes_of(GC)
    question = reads.cell(tenant, space, GC)
    question.read(db.ask(question.sql, *question.parameters))  # a damaged one is not written over
    old = "SELECT coalesce(sum(perdure.part('cell', name, digest)), 0) FROM perdure.cells WHERE tenant = $1 AND space = $2 AND name = $3"
    db.ask(
        f"UPDATE perdure.spaces SET seal = seal - ({old}) WHERE tenant = $1 AND id = $2", tenant, number, name
    )
    _put(db, tenant, number, space, [Rebuilt(name=GC, value=None)])
    db.ask(
        f"UPDATE perdure.spaces SET seal = seal + ({old}) WHERE tenant = $1 AND id = $2", tenant, number, name
    )


def drop(db: Connection, tenant: str, space: str, why: str) -> int:
    """Forget a whole space; its op_ids stay as tombstones."""
    ((freed,),) = db.call("SELECT perdure.drop_space($1, $2, $3)", tenant, bytes_of(space), bytes_of(why))
    return int(str(freed))
