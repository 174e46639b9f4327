"""Writers that wait for the same space share a commit; each has its own answer, and nothing is made twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from perdure.engines.contract import CellWrite, Fence, Receipt
from perdure.errors import Moved
from perdure.testing.engines.builders import SPACE, write
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import new_url

if TYPE_CHECKING or not MISSING:
    import psycopg

    from perdure.engines.postgres.connections import Connection, Parameter, Row
    from perdure.engines.postgres.engine import PostgresEngine

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

WRITERS = 6
_WAITING = "SELECT count(*) FROM perdure.requests WHERE tenant = %s"
_AGAIN = """
INSERT INTO perdure.requests (tenant, space, left_at, op, intent, n, f, keys, places)
SELECT tenant, space, now() - %s::interval, 'another', intent, CASE WHEN %s THEN '{}' ELSE n END, f, keys, places
FROM perdure.requests WHERE tenant = %s LIMIT 1
"""


class Queue:
    """Writers of one space that wait, because another session has the turn."""

    def __init__(self, url: str, engine: PostgresEngine, pool: ThreadPoolExecutor) -> None:
        self.engine, self._pool = engine, pool
        self.tenant = engine._tenant
        self.db: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self._turn: psycopg.Connection[Any] = psycopg.connect(url)
        for lock in ("turn_of", "gate_of"):
            taken = f"SELECT pg_advisory_xact_lock(perdure.{lock}(%s, %s))"
            self._turn.execute(taken.encode(), (self.tenant, SPACE.encode()))

    def add(self, *writes: Any) -> list[Future[Receipt]]:
        """Start writers, and return when all of them wait."""
        before = self.waiting()
        futures = [self._pool.submit(self.engine.apply, each) for each in writes]
        while self.waiting() < before + len(writes):
            time.sleep(0.01)
        return futures

    def waiting(self) -> int:
        return self.db.execute(_WAITING, (self.tenant,)).fetchall()[0][0]

    def open(self) -> None:
        self._turn.rollback()

    def close(self) -> None:
        self._turn.close()
        self.db.close()


@contextmanager
def queued(server: Server, engine: PostgresEngine, database: str = "postgres") -> Generator[Queue]:
    """Return a queue in which every writer waits."""
    engine.apply(write("first", b"{}"))
    with ThreadPoolExecutor(WRITERS) as pool, ExitStack() as stack:
        queue = Queue(server.url(database), engine, pool)
        stack.callback(queue.close)
        yield queue


def test_writers_that_wait_share_a_commit(
    postgres: Server, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first in the queue makes the writes of all, and each writer learns its own receipt."""
    codes, call = list[object](), Connection.call

    def noted(connection: Connection, sql: str, *parameters: Parameter) -> list[Row]:
        rows = call(connection, sql, *parameters)
        codes.extend([rows[0][0]] if sql.startswith("CALL") else [])
        return rows

    monkeypatch.setattr(Connection, "call", noted)
    engine = open_engine()
    with queued(postgres, engine) as queue:
        writes = [
            write(f"op {number}", CellWrite(name=f"c{number}", expected=0, value=b"1"), b'"%d"' % number)
            for number in range(WRITERS)
        ]
        waiting = queue.add(*writes)
        queue.open()
        receipts = [each.result(20) for each in waiting]

    assert sorted(map(str, codes)) == ["again"] * (WRITERS - 1) + ["done"]
    assert sorted(receipt.position for receipt in receipts) == list(range(2, WRITERS + 2))
    assert [engine.recorded(SPACE, each.op_id).receipt for each in writes] == receipts  # pyright: ignore[reportOptionalMemberAccess]
    assert len(engine.entries(SPACE, limit=99)) == WRITERS + 1
    engine.check(SPACE, again=True)


_ASLEEP = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'asleep' AND wait_event = 'advisory'"
)


@pytest.mark.parametrize("left", [0, 1], ids=["the first gate is left late", "the second is"])
def test_writers_that_wait_are_asleep(left: int, postgres: Server, open_engine: Opener) -> None:
    """Those who went through a gate together have it until each of them runs again; the others wait at the other gate."""
    engine = open_engine(f"{new_url()}&application_name=asleep")
    with _passed(postgres, engine, gates=(left,)) as waiting:
        _until(lambda: _count(postgres, _ASLEEP) == WRITERS)
        time.sleep(0.1)
        asleep = [_count(postgres, _ASLEEP) for _ in range(20)]

    assert asleep == [WRITERS] * 20
    assert sorted(each.result(20).position for each in waiting) == list(range(2, WRITERS + 2))


def test_writers_without_a_gate_ask_again_and_again(postgres: Server, open_engine: Opener) -> None:
    """The control: if both gates are left late, the writers look every millisecond."""
    engine = open_engine(f"{new_url()}&application_name=asleep")
    with _passed(postgres, engine, gates=(0, 1)) as waiting:
        _until(lambda: _count(postgres, _WAITING_ALL) == WRITERS)
        asleep = [_count(postgres, _ASLEEP) for _ in range(20)]

    assert asleep != [WRITERS] * 20
    assert len({each.result(20).position for each in waiting}) == WRITERS


_WAITING_ALL = "SELECT count(*) FROM perdure.requests"


def _count(server: Server, sql: str) -> int:
    return int(str(server.sql(sql)[0][0]))


def _until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def _passed(
    server: Server, engine: PostgresEngine, *, gates: tuple[int, ...]
) -> Generator[list[Future[Receipt]]]:
    """Let writers wait for a space whose turn is taken, while a session that went through its gates has not left them."""
    engine.apply(write("first", b"{}"))
    names = (engine._tenant, SPACE.encode())
    with ThreadPoolExecutor(WRITERS) as pool, psycopg.connect(server.url()) as other:
        other.execute("SELECT pg_advisory_xact_lock(perdure.turn_of(%s, %s))", names)
        for gate in gates:
            other.execute("SELECT pg_advisory_xact_lock_shared(perdure.gate_of(%s, %s) # %s)", (*names, gate))
        waiting = [pool.submit(engine.apply, write(f"op {at}", b"{}")) for at in range(WRITERS)]
        yield waiting
        other.rollback()


def test_a_refused_writer_holds_up_no_other(postgres: Server, open_engine: Opener) -> None:
    """It is refused in its turn, with its own error, and the others' writes are made."""
    engine = open_engine()
    with queued(postgres, engine) as queue:
        good, bad, late = queue.add(
            write("good", CellWrite(name="c", expected=0, value=b"1")),
            write("bad", Fence("never", 7), b'"bad"'),
            write("late", b'"late"'),
        )
        queue.open()
        with pytest.raises(Moved):
            bad.result(20)
        assert good.result(20).revisions == (1,)
        assert late.result(20).position == 2

    assert engine.recorded(SPACE, "bad") is None
    assert queue.engine.standing(SPACE) == 3


def test_a_writer_whose_connection_is_lost_in_the_queue_writes_once(
    postgres: Server, open_engine: Opener
) -> None:
    """It sends its write again, and the writer that makes the one that it left finds the same op_id."""
    engine = open_engine(f"{new_url()}&application_name=lost")
    with queued(postgres, engine) as queue:
        (lost,) = queue.add(write("lost", b'"lost"'))
        ended = queue.db.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE application_name = 'lost' AND wait_event = 'advisory'"
        )
        assert ended.fetchall() == [(1,)]
        while queue.waiting() < 2:
            time.sleep(0.01)
        queue.open()
        assert lost.result(20).position == 2

    assert [entry.body for entry in engine.entries(SPACE, limit=9)] == [b"{}", b'"lost"']


@pytest.mark.parametrize(
    ("age", "is_broken", "made"), [("0 s", False, 3), ("1 minute", False, 2), ("0 s", True, 2)]
)
def test_an_old_or_broken_request_is_not_made(
    age: str, is_broken: bool, made: int, postgres: Server, open_engine: Opener
) -> None:
    """What a writer left that went away is made soon or never; one that fails harms no other."""
    engine = open_engine()
    with queued(postgres, engine) as queue:
        (mine,) = queue.add(write("mine", b'"mine"'))
        queue.db.execute(_AGAIN, (age, is_broken, queue.tenant))
        queue.open()
        assert mine.result(20).position == 2
        assert queue.waiting() == 0

    assert len(engine.entries(SPACE, limit=9)) == made


_TRIGGER = """
CREATE TABLE public.seen (durability text);
CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER see AFTER INSERT ON perdure.entries DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION public.see();
"""


def test_a_shared_commit_is_flushed_whatever_is_refused_in_it(
    postgres: Server, open_engine: Opener, database: str
) -> None:
    """A refusal needs no flush; when the transaction of several writes ends, the setting is what it was."""
    engine = open_engine(postgres.url(database))
    with queued(postgres, engine, database) as queue:
        postgres.sql(_TRIGGER, database=database)
        (good,) = queue.add(write("good", b'"good"'))
        (bad,) = queue.add(write("bad", Fence("never", 7)))
        queue.open()
        with pytest.raises(Moved):
            bad.result(20)
        assert good.result(20).position == 2
        engine.apply(write("alone", b'"alone"'))

    assert postgres.sql("SELECT durability FROM public.seen", database=database) == [("on",), ("on",)]
