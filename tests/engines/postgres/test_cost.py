"""What a write and a read cost does not grow with the history, also before the server has analysed its tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import perdure
from perdure import Store
from perdure.engines.postgres import reads
from tests.engines.postgres.server import MISSING, Server
from tests.store.copies import engine_of

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

_BLOCKS = "SELECT sum(idx_blks_hit + heap_blks_hit + idx_blks_read + heap_blks_read)::bigint FROM pg_statio_user_tables"
_UNANALYSED = "ALTER TABLE perdure.{} SET (autovacuum_enabled = off)"
EARLY, LATE, SAMPLE = 20, 400, 20


@pytest.fixture
def store(postgres: Server, database: str) -> Store:
    """A store in a database of its own, whose tables are never analysed."""
    perdure.open(postgres.url(database)).close()
    postgres.sql(
        *[_UNANALYSED.format(name) for name in ("log", "keys", "heads", "spaces")], database=database
    )
    return perdure.open(postgres.url(database))


def blocks(store: Store, work: Callable[[], object]) -> float:
    """How many blocks the server reads for some work, in the one session that the engine has."""

    def counted() -> int:
        def ask(db: reads.Connection) -> int:
            db.ask("SELECT pg_stat_force_next_flush()")
            return int(str(db.ask(_BLOCKS)[0][0]))

        return engine_of(store)._read(ask)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]

    before = counted()
    for _ in range(SAMPLE):
        work()
    return (counted() - before) / SAMPLE


def test_a_long_history_costs_no_more_than_a_short_one(store: Store) -> None:
    """Writes, recorded writes, commits, their labels and moves."""
    with store:
        thread, engine = store.thread("t", agent="planner"), engine_of(store)
        space, written = thread._record.space, 0

        def put() -> None:
            nonlocal written
            written += 1
            thread.put(f"/{written % 5}.json", written, op_id=f"op {written}")

        def look() -> None:
            head = thread.head.commit
            assert head is not None
            assert engine.recorded(space, f"op {written}") is not None
            assert engine.steps(space, head, skip=written // 2, limit=3)
            assert engine.moves(space, "main", limit=3)
            assert engine.commits(space, head[:8], limit=3)
            assert engine.writes(space, after=engine.standing(space) - 3, limit=9)[0]

        found: list[tuple[float, float]] = []
        for end in (EARLY, LATE):
            while written < end:
                put()
            found.append((blocks(store, put), blocks(store, look)))

    (early_put, early_look), (late_put, late_look) = found
    assert late_put < 2 * early_put
    assert late_look < 2 * early_look
