"""Transactions that the server ends, because of others (40001, 40P01) or of a person: tried again where that is safe, else a typed error."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, islice, product, repeat
from threading import Event
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

import perdure
from perdure.errors import PerdureError, Unavailable, Unsupported
from perdure.testing import Script, say, use
from perdure.testing.engines.builders import SPACE, Pen, made, moved, write
from tests.coded import raises
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import new_url
from tests.selection import some

if TYPE_CHECKING or not MISSING:
    import psycopg

    from perdure.engines.postgres import connections, errors, presence

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

WAIT_SECONDS = 60.0
DEADLOCK, SERIALIZATION = "40P01", "40001"


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The SQLSTATE of each statement that the server refuses."""
    found: list[str] = []
    begin = errors.StatementFailed.__init__

    def noted(self: Any, sqlstate: str, message: str) -> None:
        found.append(sqlstate)
        begin(self, sqlstate, message)

    monkeypatch.setattr(errors.StatementFailed, "__init__", noted)
    return found


@pytest.fixture
def role(postgres: Server) -> Iterator[str]:
    """A role whose settings a test changes."""
    name = f"settings_{uuid4().hex[:12]}"
    # Of two that wait for each other the one that looks first is ended.
    postgres.sql(f"CREATE ROLE {name} LOGIN SUPERUSER", f"ALTER ROLE {name} SET deadlock_timeout = '3s'")
    yield name
    postgres.sql(f"DROP ROLE {name}")


@contextmanager
def deadlocked(postgres: Server, role: str, url: str) -> Generator[ThreadPoolExecutor]:
    """Let the first write of `role` in this block wait for one who waits for it; the server ends the write."""
    tenant = (url.rpartition("=")[2],)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(postgres.url()) as other:
        other.execute("SET deadlock_timeout = '60s'")
        other.execute("SELECT 1 FROM perdure.heads WHERE tenant = %s FOR UPDATE", tenant)
        yield pool
        _until_waiting(postgres, role)
        other.execute("SELECT 1 FROM perdure.spaces WHERE tenant = %s FOR UPDATE", tenant)
        other.rollback()


def _until_waiting(postgres: Server, role: str) -> None:
    """Wait until a session of the role waits for a lock."""
    waiting = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}' AND wait_event_type = 'Lock'"
    end = time.monotonic() + WAIT_SECONDS
    while postgres.sql(waiting) != [(1,)]:
        assert time.monotonic() < end
        time.sleep(0.01)


class TestDeadlock:
    """A write and a transaction of another client wait for each other."""

    def test_the_write_is_made_once_when_it_is_tried_again(
        self, postgres: Server, role: str, open_engine: Opener, states: list[str]
    ) -> None:
        """The server has undone the first attempt, so the engine repeats it, and its caller notices nothing."""
        url = new_url()
        pen = Pen(open_engine(url))
        bread = made("bread", pen.commit("milk"))
        engine = open_engine(url.replace("postgres@", f"{role}@"))

        with deadlocked(postgres, role, url) as pool:
            receipt = pool.submit(engine.apply, write("op", bread, moved(pen.head, bread)))
        done = receipt.result(WAIT_SECONDS)

        assert states == [DEADLOCK]
        assert engine.counters()["retries"] == 1
        assert len(engine.steps(SPACE, bread.digest, limit=9)) == 2
        assert done == engine.apply(write("op", bread, moved(pen.head, bread)))
        engine.close()

    def test_a_write_without_time_for_a_second_attempt_is_refused(
        self, postgres: Server, role: str, open_engine: Opener, states: list[str]
    ) -> None:
        """The error names the cause, nothing is in doubt, and nothing is written."""
        url = new_url()
        pen = Pen(open_engine(url))
        bread = made("bread", pen.commit("milk"))
        engine = open_engine(url.replace("postgres@", f"{role}@"), wait_seconds=0.01)

        with deadlocked(postgres, role, url) as pool:
            refused = pool.submit(engine.apply, write("op", bread, moved(pen.head, bread)))
        with raises(Unavailable, "transaction_aborted") as error:
            refused.result(WAIT_SECONDS)

        assert states == [DEADLOCK]
        assert error.value.facts["sqlstate"] == DEADLOCK
        assert engine.recorded(SPACE, "op") is None
        engine.close()


ENDED = """
    import sys
    from perdure.engines.postgres.connections import parse_address
    from perdure.engines.postgres.engine import PostgresEngine

    engine = PostgresEngine(parse_address(sys.argv[1], read_only=False))
    print(engine.holder(), flush=True)
    sys.stdin.readline()
"""


def killed_holder(url: str) -> str:
    """Return the name of a process that has used the store and was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(ENDED), url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    process.kill()
    process.communicate()
    return name


@contextmanager
def noted_meanwhile(postgres: Server, role: str, url: str, holder: str) -> Generator[ThreadPoolExecutor]:
    """Let another process note that a holder has ended, while a session of `role` is about to do so."""
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(postgres.url(), cursor_factory=psycopg.RawCursor) as other,
    ):
        other.execute(presence._NOTE, (url.rpartition("=")[2], holder))  # pyright: ignore[reportPrivateUsage]
        yield pool
        _until_waiting(postgres, role)


class TestSerializationFailure:
    """Two processes note the same thing at once in a database that runs transactions at `repeatable read`."""

    @pytest.fixture
    def url(self, postgres: Server, role: str) -> str:
        """The address of a store for that role."""
        postgres.sql(f"ALTER ROLE {role} SET default_transaction_isolation = 'repeatable read'")
        return new_url()

    def test_what_may_be_repeated_is_repeated(
        self, postgres: Server, role: str, url: str, open_engine: Opener, states: list[str]
    ) -> None:
        """The second attempt finds what the other process has noted."""
        holder, engine = killed_holder(url), open_engine(url.replace("postgres@", f"{role}@"))

        with noted_meanwhile(postgres, role, url, holder) as pool:
            gone = pool.submit(engine.gone, holder)

        assert gone.result(WAIT_SECONDS)
        assert states == [SERIALIZATION]
        assert engine.counters()["retries"] == 1
        engine.close()

    def test_without_time_for_a_second_attempt_it_is_a_typed_error(
        self, postgres: Server, role: str, url: str, open_engine: Opener, states: list[str]
    ) -> None:
        """The error has the server's code as a fact."""
        holder = killed_holder(url)
        engine = open_engine(url.replace("postgres@", f"{role}@"), wait_seconds=0.01)

        with noted_meanwhile(postgres, role, url, holder) as pool:
            gone = pool.submit(engine.gone, holder)
        with raises(Unavailable, "transaction_aborted") as error:
            gone.result(WAIT_SECONDS)

        assert states == [SERIALIZATION]
        assert error.value.facts["sqlstate"] == SERIALIZATION
        engine.close()

    def test_a_write_is_refused_before_it_could_fail_so(
        self, role: str, url: str, open_engine: Opener, states: list[str]
    ) -> None:
        """The function of a write compares newer rows than its snapshot has, which that level does not show."""
        engine = open_engine(url.replace("postgres@", f"{role}@"))

        with raises(Unsupported, "isolation_unsupported"):
            engine.apply(write("op", b"{}"))

        assert states == []
        engine.close()


class Interrupted:
    """Payments by runs of which one write is held up in its middle, at a table, and then ended by an administrator."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._url, self._patch = url, monkeypatch
        self.paid: list[str] = []
        self.ended = 0

    def run(self, *, of: str, by: str, write: int, threads: Iterator[str]) -> None:
        """Ask for a payment until a run succeeds, in the next thread each time; the first run is interrupted."""

        @perdure.tool(effect="external_write")
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(f"{amount}")
            return "paid"

        def agent() -> perdure.Agent:
            return perdure.Agent("clerk", backend=Script(use("pay", amount=3), say("Done.")), tools=[pay])

        with perdure.open(self._url) as store, self._interrupted(of, by, write):
            for each in islice(threads, 9):
                try:
                    if store.thread(each, agent=agent()).run("Pay 3", id="m-1").status == "succeeded":
                        return
                except PerdureError:
                    continue
        raise AssertionError

    @contextmanager
    def _interrupted(self, table: str, by: str, write: int) -> Generator[None]:
        import psycopg

        begun = count()
        call, ask = connections.Connection.call, connections.Connection.ask

        def held_up(asked: Any) -> Any:
            def asking(connection: connections.Connection, sql: str, *parameters: Any) -> Any:
                is_write = "perdure.apply" in sql or "UPDATE perdure.spaces s SET rows" in sql
                if not is_write or next(begun) != write:
                    return asked(connection, sql, *parameters)
                with psycopg.connect(self._url) as lock, ThreadPoolExecutor(1) as pool:
                    lock.execute(f"LOCK TABLE perdure.{table} IN SHARE MODE".encode())
                    answered = Event()
                    ended = pool.submit(self._end, lock, by, answered)
                    try:
                        return asked(connection, sql, *parameters)
                    finally:
                        answered.set()
                        ended.result()

            return asking

        with self._patch.context() as patch:
            patch.setattr(connections.Connection, "call", held_up(call))
            patch.setattr(connections.Connection, "ask", held_up(ask))
            yield

    def _end(self, lock: psycopg.Connection[Any], by: str, answered: Event) -> None:
        """End the write when it waits for a table; one that has no need of it is answered first."""
        waiting = (
            f"SELECT {by}(pid) FROM pg_locks WHERE NOT granted AND locktype = 'relation' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        while not self.ended and not answered.wait(0.002):
            self.ended += len(lock.execute(waiting.encode()).fetchall())
        lock.rollback()


_ENDINGS = product(("cells", "entries", "log"), range(6), ("pg_cancel_backend", "pg_terminate_backend"))


@pytest.mark.parametrize(("of", "write", "by"), some(_ENDINGS, one_of=5))
def test_a_write_that_is_ended_in_its_middle_pays_once(
    of: str, write: int, by: str, postgres: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it begins the run, grants the gate, or has the result: the same input, sent again, comes to one payment."""
    runs = Interrupted(postgres.url(database), monkeypatch)

    runs.run(of=of, by=by, write=write, threads=repeat("t"))

    assert runs.paid == ["3"]
    with perdure.open(postgres.url(database)) as store:
        assert [call.state for call in store.thread("t").calls()] == ["succeeded"]
        assert store.verify().ok


def test_another_thread_after_an_ended_write_pays_again(
    postgres: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the same look finds a caller that asks elsewhere in place of asking again."""
    runs = Interrupted(postgres.url(database), monkeypatch)

    runs.run(of="log", by="pg_cancel_backend", write=4, threads=map(str, count()))

    assert (runs.ended, runs.paid) == (1, ["3", "3"])
