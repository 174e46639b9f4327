"""Another server takes the writes: a client whose address names both leaves the old one, without a restart.

Each test has two real servers, of which the second follows the first until it is promoted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from threading import Barrier
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import perdure
from perdure.errors import Corrupt, PerdureError, Unavailable
from perdure.runtime.events import Happened
from perdure.runtime.streaming import cursor_at
from perdure.testing import Script, say, use
from perdure.testing.engines.builders import SPACE, Pen, write
from tests.coded import raises
from tests.engines.postgres.proxy import proxy_to
from tests.engines.postgres.server import MISSING, Server, place
from tests.selection import some

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres import connections, errors
    from perdure.engines.postgres.commit.write import RecentObjects
    from perdure.engines.postgres.connections import Pool, parse_address
    from perdure.engines.postgres.engine import PostgresEngine

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

SESSIONS = 4
_MARKED = "SELECT count(*) FROM perdure.spaces WHERE followed_until > perdure.now_us()"


class Pair:
    """A server that takes writes, and a standby that follows it."""

    def __init__(self, old: Server, new: Server) -> None:
        self.old, self.new = old, new

    @property
    def url(self) -> str:
        """The address of both, the old one first."""
        hosts = f"{self.old.directory},{self.new.directory}"
        return f"postgresql://postgres@/postgres?host={hosts}&port=5432,5432"

    def wait_for_standby(self, name: str) -> None:
        """Let the old server acknowledge what the standby of this name has confirmed; `*`: the one that there is."""
        self.old.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'", "SELECT pg_reload_conf()")
        self.wait_for(lambda: self.old.sql("SHOW synchronous_standby_names") == [(name,)])

    def catch_up(self) -> None:
        """Wait until the standby has everything that the old server has."""
        ((end,),) = self.old.sql("SELECT pg_current_wal_flush_lsn()")
        self.wait_for(lambda: self.new.sql(f"SELECT pg_last_wal_replay_lsn() >= '{end}'") == [(True,)])

    def replace(self, *, keeps_sessions: bool) -> None:
        """Let the other server take the writes; the old one only reads from then on, or ends and comes back as its standby."""
        self.catch_up()
        if keeps_sessions:
            self.old.sql("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
            self.wait_for(lambda: self.old.sql("SHOW default_transaction_read_only") == [("on",)])
            self.catch_up()
            self.new.promote()
        else:
            self.old.kill()
            self.new.promote()
            self.old.remove()
            self.old.create_standby(self.new)
            self.old.start()

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + 30
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture(scope="module")
def stopped(postgres: Server) -> Generator[Pair]:
    """Two servers with the schema of a store, which do not run: a copy of them is there sooner than new ones."""
    with removed_at_end(*(Server(place() / f"perdure-{uuid4().hex[:12]}") for _ in range(2))) as (old, new):
        old.create()
        old.start()
        perdure.open(old.url()).close()
        new.create_standby(old)
        old.stop()
        yield Pair(old, new)


@pytest.fixture
def pair(stopped: Pair) -> Generator[Pair]:
    """Two servers."""
    with removed_at_end(*(Server(place() / f"perdure-{uuid4().hex[:12]}") for _ in range(2))) as (old, new):
        old.create_copy(stopped.old)
        new.create_copy(stopped.new)
        settings = new.data / "postgresql.auto.conf"
        text = settings.read_text(encoding="utf-8")
        settings.write_text(text.replace(str(stopped.old.directory), str(old.directory)), encoding="utf-8")
        old.start()
        new.start()
        yield Pair(old, new)


@contextmanager
def removed_at_end(*servers: Server) -> Generator[tuple[Server, ...]]:
    """Remove those of the servers that have been made."""
    try:
        yield servers
    finally:
        for server in servers:
            if server.directory.exists():
                server.remove()


@pytest.fixture
def engines(pair: Pair) -> Iterator[Callable[..., PostgresEngine]]:
    """Opens engines with the address of both servers."""
    with ExitStack() as stack:

        def open_one(wait_seconds: float = 30.0) -> PostgresEngine:
            address = parse_address(pair.url, read_only=False)
            return stack.enter_context(closing(PostgresEngine(address, wait_seconds=wait_seconds)))

        yield open_one


def on_every_session(engine: PostgresEngine, ask: str) -> list[object]:
    """Ask on several sessions of the pool at once."""
    together = Barrier(SESSIONS)

    def one(_: int) -> object:
        with engine._pool.connection() as connection:
            together.wait(30)
            ((answer,),) = connection.ask(ask)
            return answer

    with ThreadPoolExecutor(SESSIONS) as pool:
        return list(pool.map(one, range(SESSIONS)))


def check_left(pair: Pair, engine: PostgresEngine, other: PostgresEngine, *, keeps_sessions: bool) -> None:
    """Replace the server under two clients; check that both write to the new one, and read what either has written."""
    pen = Pen(engine)
    pen.commit("milk")
    for each in (engine, other):
        on_every_session(each, "SELECT 1")
    seen = other.wait({SPACE: -1}, 5)
    pair.replace(keeps_sessions=keeps_sessions)

    tip = pen.commit("eggs")
    heard = other.wait(seen, 5)
    other.apply(write("of the other", b'"tea"'))

    assert heard[SPACE] > seen[SPACE]
    for each in (engine, other):
        hold = each.hold(SPACE, "main")
        assert hold is not None
        assert hold.head.commit == tip.digest
        assert each.ledger(SPACE).position == 1
        assert set(on_every_session(each, "SELECT current_setting('data_directory')")) == {str(pair.new.data)}


@pytest.mark.parametrize("keeps_sessions", [True, False], ids=["only reads", "comes back as a standby"])
def test_clients_leave_a_server_that_was_replaced(
    keeps_sessions: bool, pair: Pair, engines: Callable[..., PostgresEngine]
) -> None:
    """Every session of the pool, those that were in use too, and the one that listens for news."""
    check_left(pair, engines(), engines(), keeps_sessions=keeps_sessions)


def test_clients_that_stay_are_found(
    pair: Pair, engines: Callable[..., PostgresEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the same check finds a pool that gives up the lost session alone, and asks the same host again."""
    monkeypatch.setattr(Pool, "leave", lambda pool, _: pool.discard_idle())
    monkeypatch.setattr(Pool, "has_left", lambda *_: False)

    with pytest.raises(PerdureError):
        check_left(pair, engines(1.0), engines(1.0), keeps_sessions=True)


def test_a_server_that_nobody_follows_any_more_is_left(
    pair: Pair, engines: Callable[..., PostgresEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on taking writes and waits for a standby that has taken over: no answer comes, and the next host is asked."""
    engine = engines()
    pen = Pen(engine)
    pen.commit("milk")
    pair.catch_up()
    pair.wait_for_standby("missing")
    pair.new.promote()
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 1.0)

    tip = pen.commit("eggs")

    hold = engine.hold(SPACE, "main")
    assert hold is not None
    assert hold.head.commit == tip.digest
    assert pair.new.sql("SELECT commit FROM perdure.heads") == [(bytes.fromhex(tip.digest),)]


def check_moved_address(pair: Pair) -> None:
    """Let the address of the old server lead to the new one; check that a client with sessions on the old one follows."""
    with proxy_to(pair.old.url(), 7) as (proxy, url):
        engine = PostgresEngine(parse_address(url, read_only=False), wait_seconds=5.0)
        with closing(engine):
            pen = Pen(engine)
            pen.commit("milk")
            on_every_session(engine, "SELECT 1")
            pair.replace(keeps_sessions=True)
            proxy.server = f"{pair.new.directory}/.s.PGSQL.5432"

            tip = pen.commit("eggs")

            assert set(on_every_session(engine, "SELECT current_setting('data_directory')")) == {
                str(pair.new.data)
            }
    assert pair.new.sql("SELECT commit FROM perdure.heads") == [(bytes.fromhex(tip.digest),)]


def test_one_address_that_leads_to_another_server_is_asked_again(pair: Pair) -> None:
    """A name, a virtual address or a proxy moves, and the sessions through it stay: a refused write is sent again."""
    check_moved_address(pair)


def test_a_client_that_takes_the_refusal_for_final_is_found(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the same check finds a client that asks once."""
    monkeypatch.setattr(errors.StatementFailed, "is_for_another_server", False)

    with raises(Unavailable, "server_read_only"):
        check_moved_address(pair)


def check_nothing_is_lost_with(pair: Pair) -> None:
    """Let a standby that lacks the newest commits take over; check what a client writes that knows them still."""
    text = "".join(random.Random(7).choices("abcdefgh", k=2_000))
    with perdure.open(pair.url) as store:
        thread = store.thread("t", agent="a")
        thread.put("/doc.txt", text)
        pair.catch_up()
        pair.new.stop()
        thread.put("/doc.txt", f"{text} lost")
        thread.put("/doc.txt", text)  # the same value again, in a row that is lost
        pair.old.kill()
        pair.new.start()
        pair.new.promote()

        thread.put("/doc.txt", f"{text} new")
        thread.put("/more.txt", "more")

    with perdure.open(pair.url) as store:
        assert store.thread("t").get("/doc.txt") == f"{text} new"
        assert store.verify().ok


def test_nothing_is_stored_against_what_a_failover_lost(pair: Pair) -> None:
    """Rows that a client wrote on the old server may have other numbers on the new one, or be lost."""
    check_nothing_is_lost_with(pair)


def test_a_difference_to_a_row_that_was_lost_is_found(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a client that says it knows the new server's rows stores what nobody can read."""
    monkeypatch.setattr(RecentObjects, "numbered", staticmethod(lambda generation, _: generation + (2 << 31)))

    with pytest.raises(Corrupt):
        check_nothing_is_lost_with(pair)


@pytest.mark.parametrize("keeps_sessions", some([True, False], one_of=2))
def test_a_run_goes_on_and_is_followed(keeps_sessions: bool, pair: Pair) -> None:
    """The server is replaced while a tool is under way: it is called once, and a follower misses and repeats nothing."""
    paid: list[int] = []
    pair.wait_for_standby("*")

    @perdure.tool(effect="external_write")
    def pay(amount: int) -> str:
        """Pay, and lose the server."""
        paid.append(amount)
        pair.replace(keeps_sessions=keeps_sessions)
        return "paid"

    agent = perdure.Agent("clerk", backend=Script(use("pay", amount=3), say("Done.")), tools=[pay])
    with perdure.open(pair.url) as store, perdure.open(pair.url) as other, ThreadPoolExecutor(1) as pool:
        thread = store.thread("t", agent=agent, owner="ann")
        thread.put("/n.json", 1)
        store.memory("ann").add("likes tea")

        begun = str(cursor_at(thread._space, thread.head.commit))

        def follow() -> list[str]:
            shown: list[str] = []
            for event in other.thread("t").follow(after=begun, wait=True):
                if isinstance(event, Happened) and event.message is not None:
                    shown.append(event.message.role)
                    if event.text == "Done.":
                        break
            return shown

        following = pool.submit(follow)
        run = thread.run("Pay 3", id="m-1")
        shown = following.result(60)
        store.memory("ann").add("likes coffee")
        again = other.thread("t", agent=agent, owner="ann").run("Pay 3", id="m-1")

        assert (run.status, again.status, paid) == ("succeeded", "succeeded", [3])
        assert shown == ["user", "assistant", "tool", "assistant"]
        assert len(other.memory("ann").search("likes")) == 2
        assert other.verify().ok


def test_a_reader_may_spread_its_sessions_over_all_servers(pair: Pair) -> None:
    """None of them has taken over from another, so no session is given up for the next one."""
    perdure.open(pair.url).close()
    pair.catch_up()
    reading = parse_address(f"{pair.url}&load_balance_hosts=random", read_only=True)
    with closing(PostgresEngine(reading, read_only=True)) as engine:
        servers = [on_every_session(engine, "SELECT current_setting('data_directory')") for _ in range(9)]

        assert engine.counters()["connections"] <= SESSIONS
        assert {each for asked in servers for each in asked} <= {str(pair.old.data), str(pair.new.data)}
