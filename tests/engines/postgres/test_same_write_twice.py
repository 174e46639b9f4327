"""The same write over two connections at once is made once, and both callers get its receipt."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import pytest

from perdure.engines.contract import Engine, Receipt, Write
from perdure.testing.engines.builders import SPACE, START, Made, made, moved, write
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import new_url

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

ROUNDS = 1_000

# What one statement sees: the row that it waited for as it is now, and everything else as it was before the wait.
_ONE_SNAPSHOT = """
WITH locked AS (SELECT id FROM perdure.spaces WHERE tenant = $1 AND name = $2 FOR UPDATE)
SELECT (SELECT count(*) FROM perdure.log l, locked WHERE l.tenant = $1 AND l.space = locked.id AND l.op_id = $3),
       (SELECT rows FROM perdure.spaces s, locked WHERE s.tenant = $1 AND s.name = $2)
"""


def test_two_connections_make_the_same_write_once(open_engine: Opener) -> None:
    """Of 1,000 writes each is sent twice at once, and the head moves on as soon as one of the two has its receipt."""
    engines = open_engine(), open_engine()
    engines[0].apply(write("begin"))
    barrier, tip, head = Barrier(2), None, START
    with ThreadPoolExecutor(2) as pool:
        for number in range(ROUNDS // 2):
            new = made(f"{number}", tip)
            then = made(f"{number} then", new)
            same = write(f"same {number}", new, moved(head, new), b'"%d"' % number)

            send = partial(_send_both, barrier, same, f"then {number}", then)
            one, two = pool.map(send, engines)
            assert one == two
            tip, head = then, one[1].heads[0]

    assert head.version == ROUNDS
    assert len(engines[0].commits(SPACE, "", limit=2 * ROUNDS)) == ROUNDS
    assert engines[0].ledger(SPACE).position == ROUNDS // 2


def _send_both(
    barrier: Barrier, same: Write, op_id: str, then: Made, engine: Engine
) -> tuple[Receipt, Receipt]:
    """Send a write that the other sends too; the first to come back moves the head on while the other may still wait."""
    barrier.wait()
    receipt = engine.apply(same)
    return receipt, engine.apply(write(op_id, then, moved(receipt.heads[0], then)))


def test_one_snapshot_takes_a_duplicate_for_a_stale_head(postgres: Server, open_engine: Opener) -> None:
    """Control: a statement that waits and looks in one snapshot does not see the write that it waited for."""
    import psycopg

    tenant = "snapshot"
    url = f"{new_url().partition('&tenant=')[0]}&tenant={tenant}&application_name=snapshot"
    engine, other = open_engine(url), open_engine(url)
    engine.apply(write("begin"))
    first = made("milk")
    same = write("op", first, moved(START, first))
    with psycopg.connect(postgres.url()) as holder, ThreadPoolExecutor(2) as pool:
        holder.execute("SELECT 1 FROM perdure.spaces WHERE tenant = %s FOR UPDATE", (tenant,))
        made_first = pool.submit(engine.apply, same)
        _wait_for_waiters(postgres, 1)
        with other._pool.connection() as connection:
            looked = pool.submit(connection.ask, _ONE_SNAPSHOT, tenant, SPACE.encode(), b"op")
            _wait_for_waiters(postgres, 2)
            holder.rollback()
            receipt = made_first.result()
            ((recorded, _),) = looked.result()

    assert recorded == 0  # so it would have been refused as stale
    assert other.apply(same) == receipt


def _wait_for_waiters(server: Server, count: int) -> None:
    sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'snapshot'"
    while server.sql(sql) != [(count,)]:
        pass
