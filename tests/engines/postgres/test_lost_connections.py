"""A connection that is lost around a commit: every write is made once, or its caller gets `InDoubt`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import pytest

from perdure.engines.contract import Engine, Write
from perdure.errors import InDoubt, Unavailable
from perdure.model.head import Head
from perdure.testing.engines.builders import START, Made, made, moved, write
from tests.coded import raises
from tests.crash.campaign import SEED, sized
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.proxy import FAULTS, Proxy, proxy_to
from tests.engines.postgres.server import MISSING, Server, place, served
from tests.engines.postgres.stores import new_url

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres.commit.write import APPLY
    from perdure.engines.postgres.connections import Connection, Parameter, Row, parse_address
    from perdure.engines.postgres.engine import PostgresEngine
    from perdure.engines.postgres.errors import ConnectionLost

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

WRITERS, WRITES, KILLS = 8, 25, 3
RATE = 0.2  # of the requests that a proxy loses
ATTEMPTS = sized(120, 2_000)


@pytest.fixture
def proxied(postgres: Server, open_engine: Opener) -> Iterator[Proxied]:
    """Opens engines behind a proxy, which then loses one request of five."""
    with proxy_to(new_url(), SEED) as (proxy, url):

        def open_one(*, wait_seconds: float = 20.0) -> PostgresEngine:
            proxy.rate = 0
            engine = open_engine(url, wait_seconds=wait_seconds)
            proxy.rate = RATE
            return engine

        yield Proxied(proxy, open_one)


class Proxied(NamedTuple):
    """A proxy, and what opens an engine behind it."""

    proxy: Proxy
    open: Opener

    def settled(self, engine: PostgresEngine) -> PostgresEngine:
        """Let nothing be lost any more, and wait until nothing is on its way; return the engine, to look at the store."""
        self.proxy.rate = 0
        time.sleep(2 * self.proxy.late_seconds[1])  # longer than the proxy delays anything
        engine._pool.discard_idle()
        return engine


def has_entry(number: int) -> bool:
    """True if this commit of a writer comes with an entry of the ledger; those without go by the short statement."""
    return number % 6 < 3


def written(engine: Engine, space: str, count: int) -> tuple[list[Head], float]:
    """Commit `count` times on one timeline, asking again by the op_id where the outcome is unknown."""
    heads: list[Head] = []
    tip: Made | None = None
    head, slowest = START, 0.0
    for number in range(count):
        tip = made(f"{space} {number}", tip)
        entries = [b'"%d"' % number] if has_entry(number) else []
        wanted = write(f"op {number}", tip, moved(head, tip), *entries, space=space)
        begun = time.monotonic()
        head = settled(engine, wanted)
        slowest = max(slowest, time.monotonic() - begun)
        heads.append(head)
    return heads, slowest


def settled(engine: Engine, wanted: Write) -> Head:
    """Apply a write until its outcome is known."""
    while True:
        try:
            return engine.apply(wanted).heads[0]
        except InDoubt:
            continue


def check_once(engine: Engine, space: str, heads: list[Head]) -> None:
    """Check that exactly the acknowledged commits are there, each once and in order."""
    assert [head.version for head in heads] == list(range(1, len(heads) + 1))
    last = heads[-1].commit
    assert last is not None
    line = [step.digest for step in engine.steps(space, last, limit=9_999)]
    assert line == [head.commit for head in reversed(heads)]
    hold = engine.hold(space, "main")
    assert hold is not None
    assert hold.head == heads[-1]
    assert len(engine.commits(space, "", limit=9_999)) == len(heads)
    assert [entry.body for entry in engine.entries(space, limit=9_999)] == [
        b'"%d"' % n for n in range(len(heads)) if has_entry(n)
    ]


def test_a_lost_write_is_settled_by_its_op_id(proxied: Proxied) -> None:
    """Dropped, hidden, late and half requests of four writers: no write is doubled or missing, each is settled in time."""
    engine = proxied.open()
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda n: written(engine, f"space {n}", WRITES), range(4)))
    proxied.settled(engine)

    assert set(proxied.proxy.struck) == set(FAULTS)
    assert max(slowest for _, slowest in outcomes) < 10
    for number, (heads, _) in enumerate(outcomes):
        check_once(engine, f"space {number}", heads)


def attempted(engine: PostgresEngine, op_id: str, number: int) -> bool:
    """Add an entry once, without trying again; False if that is in doubt."""
    try:
        engine.apply(write(op_id, b'"%d"' % number))
    except (InDoubt, Unavailable):
        return False
    return True


def entries(engine: PostgresEngine) -> list[int]:
    """The entries that were added."""
    return [int(entry.body.strip(b'"')) for entry in engine.entries("thread-1", limit=9_999)]


def test_a_writer_that_retries_blindly_doubles_some_writes(proxied: Proxied) -> None:
    """Control: it tries again under another op_id."""
    engine = proxied.open(wait_seconds=0)

    for number in range(ATTEMPTS):
        next(attempt for attempt in count() if attempted(engine, f"{number} {attempt}", number))

    assert len(entries(proxied.settled(engine))) > ATTEMPTS


def test_a_writer_that_gives_up_leaves_phantoms(proxied: Proxied) -> None:
    """Control: it takes an attempt without an answer for one that failed."""
    engine = proxied.open(wait_seconds=0)

    made_here = [number for number in range(ATTEMPTS) if attempted(engine, f"op {number}", number)]

    assert set(entries(proxied.settled(engine))) > set(made_here)


def test_a_writer_that_looks_without_the_lock_doubles_some_writes(proxied: Proxied) -> None:
    """Control: it looks for the op_id with a plain read, and takes a write that is still on its way for lost."""
    engine, looking = proxied.open(wait_seconds=0), proxied.open()
    proxied.proxy.faults, proxied.proxy.late_seconds = ("late",), (0.4, 0.5)

    for number in range(40):
        for attempt in count():
            if attempted(engine, f"{number} {attempt}", number):
                break
            if looking.recorded("thread-1", f"{number} {attempt}") is not None:
                break

    assert len(entries(proxied.settled(engine))) > 40


def test_a_refusal_after_a_lost_attempt_is_in_doubt_unless_it_is_final(
    monkeypatch: pytest.MonkeyPatch, open_engine: Opener
) -> None:
    """The attempt that is still on its way may succeed where the second one was refused."""
    engine, ask, lost = open_engine(), Connection.call, [True]

    def once(connection: Connection, sql: str, *parameters: Parameter) -> list[Row]:
        if sql == APPLY and lost.pop() if lost else False:
            connection.is_usable = False
            raise ConnectionLost("cut")
        return ask(connection, sql, *parameters)

    monkeypatch.setattr(Connection, "call", once)
    orphan = made("after nothing", made("never written"))

    with raises(InDoubt, "in_doubt", op_id="op"):
        engine.apply(write("op", orphan))


@pytest.mark.usefixtures("postgres")  # which skips where no server can be started
def test_a_killed_server_loses_nothing_and_nobody_is_gone() -> None:
    """SIGKILL under eight writers: every acknowledged commit is there once, and no living holder counts as gone."""
    with served(place() / f"perdure-{uuid4().hex[:12]}") as server:
        engine = PostgresEngine(parse_address(server.url(), read_only=False))
        watcher = PostgresEngine(parse_address(server.url(), read_only=False))
        holder = engine.holder()
        with ThreadPoolExecutor(WRITERS) as pool:
            futures = [
                pool.submit(_keep_writing, engine, f"space {n}", time.monotonic() + 3.0)
                for n in range(WRITERS)
            ]
            gone: list[bool] = []
            for _ in range(KILLS):
                time.sleep(0.6)
                server.kill()
                server.start()
                gone.append(watcher.gone(holder))
            outcomes = [future.result() for future in futures]

        assert gone == [False] * KILLS
        for number, heads in enumerate(outcomes):
            check_once(engine, f"space {number}", heads)
        engine.close()
        assert watcher.gone(holder)
        watcher.close()


def _keep_writing(engine: Engine, space: str, until: float) -> list[Head]:
    heads: list[Head] = []
    tip: Made | None = None
    head = START
    while time.monotonic() < until or len(heads) < WRITES:
        number = len(heads)
        tip = made(f"{space} {number}", tip)
        entries = [b'"%d"' % number] if has_entry(number) else []
        head = settled(engine, write(f"op {number}", tip, moved(head, tip), *entries, space=space))
        heads.append(head)
    return heads


@pytest.fixture
def hasty(postgres: Server) -> Iterator[Server]:
    """A server that would acknowledge a commit seconds before it flushes it."""
    settings = {"synchronous_commit": "off", "wal_writer_delay": "10s"}
    server = Server(place() / f"perdure-{uuid4().hex[:12]}", settings)
    server.create()
    try:
        server.start()
        yield server
    finally:
        server.remove()


def test_a_receipt_outlives_a_kill_on_a_server_that_would_not_flush(hasty: Server) -> None:
    """Each write asks for its flush itself: the function of a write, and the short statement."""
    engine = PostgresEngine(parse_address(hasty.url(), read_only=False))
    heads, _ = written(engine, "space", WRITES)

    hasty.kill()
    hasty.start()

    check_once(engine, "space", heads)
    engine.close()


def test_plain_statements_lose_what_that_server_acknowledged(hasty: Server) -> None:
    """The control of the test above."""
    import psycopg

    hasty.sql("CREATE TABLE acknowledged (number integer)", "CHECKPOINT")
    writer = psycopg.connect(hasty.url(), autocommit=True)
    for number in range(WRITES):
        writer.execute("INSERT INTO acknowledged VALUES (%s)", (number,))

    hasty.kill()
    hasty.start()

    writer.close()
    ((kept,),) = hasty.sql("SELECT count(*) FROM acknowledged")
    assert kept != WRITES
