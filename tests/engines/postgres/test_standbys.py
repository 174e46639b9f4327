"""A commit that waits for its standbys is no receipt, however the wait ends, until a standby has it."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

import pytest

import perdure
from perdure.errors import InDoubt
from perdure.testing.engines.builders import SPACE, Pen, made, moved, write
from tests.coded import raises
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.server import MISSING, Server, place, served

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres.connections import Connection, Parameter, Row, parse_address
    from perdure.engines.postgres.engine import PostgresEngine
    from perdure.engines.postgres.errors import ConnectionLost, StatementFailed

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

POLL_SECONDS = 0.1  # each look is a new connection
SETTINGS = ["", "-c client_min_messages=error", "-c synchronous_commit=off"]


class Primary:
    """A server whose standby can be lost and found again."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def lose_standby(self) -> None:
        """Let commits wait for a standby that does not exist."""
        self._set("SET synchronous_standby_names = 'missing'", "waits")

    def find_standby(self) -> None:
        """Let commits wait for none; those that wait are let go as if a standby had them."""
        self._set("RESET synchronous_standby_names", "")

    def _set(self, setting: str, expected: str) -> None:
        self.server.sql(f"ALTER SYSTEM {setting}", "SELECT pg_reload_conf()")
        deadline = time.monotonic() + 20
        while bool(self.server.sql("SHOW synchronous_standby_names")[0][0]) != bool(expected):
            assert time.monotonic() < deadline
            time.sleep(POLL_SECONDS)
        time.sleep(0.3)  # the checkpointer tells the others, and nothing says when it has

    def end_wait(self, of: str, waiting: Future[Any], *, by: str = "pg_cancel_backend") -> None:
        """End the wait of the client of this name once it waits for the standby."""
        deadline = time.monotonic() + 20
        while not self.server.sql(
            f"SELECT {by}(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = '{of}'"
        ):
            assert not waiting.done(), waiting.result()
            assert time.monotonic() < deadline
            time.sleep(POLL_SECONDS)

    def end_waits(self, of: Mapping[str, Future[Any]]) -> None:
        """End each wait for the standby of the clients of these names, until all of them have their answers."""
        deadline = time.monotonic() + 60
        names = ", ".join([f"'{name}'" for name in of])
        while not all(waiting.done() for waiting in of.values()):
            self.server.sql(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
                f"WHERE wait_event = 'SyncRep' AND application_name IN ({names})"
            )
            assert time.monotonic() < deadline
            time.sleep(POLL_SECONDS)

    def wait_for(self, event: str, of: str, *events: str) -> None:
        """Wait until a client waits for `event`, or one of the other `events`."""
        deadline = time.monotonic() + 20
        named = ", ".join([f"'{each}'" for each in (event, *events)])
        while not self.server.sql(
            f"SELECT 1 FROM pg_stat_activity WHERE wait_event IN ({named}) AND application_name = '{of}'"
        ):
            assert time.monotonic() < deadline
            time.sleep(POLL_SECONDS)

    def open(self, name: str, options: str = "") -> PostgresEngine:
        """Open the store as a client of this name."""
        url = f"{self.server.url()}&application_name={name}&options={quote(options)}"
        return PostgresEngine(parse_address(url, read_only=False))


@pytest.fixture(scope="module")
def server(postgres: Server) -> Generator[Server]:
    """A server of its own; the shared one skips where none can be started."""
    with served(place() / f"perdure-{uuid4().hex[:12]}") as started:
        yield started


@pytest.fixture
def primary(server: Server) -> Iterator[Primary]:
    """A server with a store, whose standby is there."""
    found = Primary(server)
    yield found
    found.find_standby()


@pytest.mark.parametrize("options", SETTINGS)
def test_a_cancelled_wait_is_in_doubt_until_a_standby_has_the_write(primary: Primary, options: str) -> None:
    """The server ends the wait as a success with a warning; the write, sent again, waits in its place."""
    wanted = write(f"op {options}", b'"paid"')
    with closing(primary.open("one", options)) as engine, ThreadPoolExecutor(1) as pool:
        engine.apply(write("begin"))
        primary.lose_standby()
        for _ in range(2):  # the write itself, and the look at its outcome
            waiting = pool.submit(engine.apply, wanted)
            primary.end_wait("one", waiting)
            with raises(InDoubt, "in_doubt", op_id=wanted.op_id):
                waiting.result(20)
        again = pool.submit(engine.apply, wanted)
        primary.wait_for("SyncRep", "one")
        assert not again.done()
        primary.find_standby()

        assert again.result(20).position == engine.ledger(SPACE).position


@pytest.mark.parametrize("options", SETTINGS)
def test_a_commit_on_a_known_end_is_in_doubt_too(primary: Primary, options: str) -> None:
    """The short statement sets what the wait needs, as the general function does."""
    space = f"short {options}"
    with closing(primary.open("short", options)) as engine, ThreadPoolExecutor(1) as pool:
        pen = Pen(engine, space=space)
        for text in ("milk", "eggs", "tea"):
            pen.commit(text)
        third = made("bread", pen.tip)
        wanted = write("bread", third, moved(pen.head, third), space=space)
        primary.lose_standby()
        waiting = pool.submit(engine.apply, wanted)
        primary.end_wait("short", waiting)
        with raises(InDoubt, "in_doubt", op_id="bread"):
            waiting.result(20)
        again = pool.submit(engine.apply, wanted)
        primary.wait_for("SyncRep", "short")
        assert not again.done()
        primary.find_standby()

        assert again.result(20).heads[0].commit == third.digest


def test_a_program_gets_no_receipt_for_what_no_standby_has(primary: Primary) -> None:
    """A program's write that is in doubt is looked up, and what is found here says nothing about the standbys."""
    with (
        perdure.open(f"{primary.server.url()}&application_name=program") as store,
        ThreadPoolExecutor(1) as pool,
    ):
        thread = store.thread("trip", agent="planner")
        thread.put("/n.json", 0)
        primary.lose_standby()
        waiting = pool.submit(thread.put, "/n.json", 1)
        primary.end_waits({"program": waiting})  # of the write, and of the look at its outcome
        with raises(InDoubt, "in_doubt"):
            waiting.result(20)
        primary.find_standby()

        assert thread.get("/n.json") == 1


def test_a_writer_whose_session_ends_in_the_wait_goes_on_waiting(primary: Primary) -> None:
    """The engine connects again and finds its write committed here, which says nothing about the standbys."""
    wanted = write("ended", b'"ended"')
    with closing(primary.open("ended")) as engine, ThreadPoolExecutor(1) as pool:
        engine.apply(write("begin"))
        primary.lose_standby()
        waiting = pool.submit(engine.apply, wanted)
        primary.end_wait("ended", waiting, by="pg_terminate_backend")
        primary.wait_for("SyncRep", "ended")
        assert not waiting.done()
        primary.find_standby()

        assert waiting.result(20).position == engine.ledger(SPACE).position


@pytest.mark.parametrize("options", SETTINGS)
def test_a_write_that_another_writer_made_waits_too(primary: Primary, options: str) -> None:
    """The other's wait is cancelled; its transaction had both writes, and each of them is in doubt."""
    with (
        closing(primary.open("first")) as first,
        closing(primary.open("maker")) as maker,
        closing(primary.open("other", options)) as other,
        ThreadPoolExecutor(3) as pool,
    ):
        first.apply(write("begin"))
        primary.lose_standby()
        one = pool.submit(first.apply, write(f"one {options}", b'"one"'))
        primary.wait_for("SyncRep", "first")
        two = pool.submit(maker.apply, write(f"two {options}", b'"two"'))
        primary.wait_for("advisory", "maker", "SyncRep")  # its request may wait for the standby too
        three = pool.submit(other.apply, write(f"three {options}", b'"three"'))
        primary.wait_for("advisory", "other", "SyncRep")
        primary.end_wait("first", one)
        with raises(InDoubt, "in_doubt"):
            one.result(20)
        primary.end_waits(
            {"maker": two, "other": three}
        )  # one makes both writes, the other finds its own made
        for ended in (two, three):
            with raises(InDoubt, "in_doubt"):
                ended.result(20)


@pytest.mark.parametrize("state", ["25006", "53100", "42501"])
def test_a_write_that_was_lost_and_then_refused_by_the_server_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch, open_engine: Opener, state: str
) -> None:
    """The second server may be a standby, or full: that says nothing about what the first one did."""
    engine, answers = open_engine(), [ConnectionLost("cut"), StatementFailed(state, "refused")]

    def call(connection: Connection, sql: str, *parameters: Parameter) -> list[Row]:
        raise answers.pop(0)

    monkeypatch.setattr(Connection, "call", call)

    with raises(InDoubt, "in_doubt", op_id="op"):
        engine.apply(write("op", b"{}"))
