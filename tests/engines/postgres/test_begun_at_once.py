"""Eight processes begin threads in one store: what they wait for is counted, because a rate depends on the machine.

Every thread begins by a write to the space of the store, which is everybody's.  Beginning threads keeps up with writes
to separate threads if a queue there costs one flush for all, no wait for a row, and one round trip more.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import perdure
from perdure.history.space import STORE
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import new_url

if TYPE_CHECKING or not MISSING:
    import psycopg

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

PROCESSES = 8
WAIT_SECONDS = 60.0
# One process waits for the imports of all, and forks.
BEGINNERS = """
    import json, os, sys
    import perdure
    from perdure.engines.postgres.connections import Connection

    codes, call = [], Connection.call

    def noted(connection, sql, *parameters):
        rows = call(connection, sql, *parameters)
        if "perdure.apply" in sql:
            codes.append(rows[0][0])
        return rows

    def begin(store, name):
        codes.clear()
        before = store.counters()["round_trips"]
        store.thread(name, agent="clerk")
        return {"codes": list(codes), "round_trips": store.counters()["round_trips"] - before}

    def work(number, go, done):
        Connection.call = noted
        with perdure.open(sys.argv[1]) as store:
            for turn in range(5):
                begin(store, f"warm-{number}-{turn}")
            os.write(done, b"ready\\n")
            os.read(go, 1)
            os.write(done, json.dumps(begin(store, f"begun-{number}")).encode() + b"\\n")
            os.read(go, 1)

    go, wake = os.pipe()
    children = []
    for number in range(int(sys.argv[2])):
        child = os.fork()
        if child == 0:
            work(number, go, 1)
            os._exit(0)
        children.append(child)
    while sys.stdin.readline():
        os.write(wake, b"." * len(children))
    for child in children:
        os.waitpid(child, 0)
"""


class Begun(msgspec.Struct, frozen=True):
    """What it took one process to begin a thread."""

    codes: list[
        str
    ]  # what the server answered to the write of the thread: busy, done, or again (another made it)
    round_trips: int


class Beginners:
    """Processes that have opened the store and are about to begin a thread each."""

    def __init__(self, url: str, count: int) -> None:
        self._count = count
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(BEGINNERS), url, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._lines() == [b"ready\n"] * count

    def begin(self) -> None:
        """Let all of them begin a thread."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def begun(self) -> list[Begun]:
        """Return what it took each."""
        return [msgspec.json.decode(line, type=Begun) for line in self._lines()]

    def close(self) -> None:
        """Let all of them end."""
        self.begin()
        self._process.communicate(timeout=WAIT_SECONDS)
        assert self._process.returncode == 0

    def _lines(self) -> list[bytes]:
        assert self._process.stdout is not None
        return [self._process.stdout.readline() for _ in range(self._count)]


class Turn:
    """The turn of the store's space, which the test has: all others wait."""

    def __init__(self, postgres: Server, url: str) -> None:
        self._tenant, self.waits = url.rpartition("=")[2], Counter[str]()
        self._holder: psycopg.Connection[Any] = psycopg.connect(postgres.url())
        self._looker: psycopg.Connection[Any] = psycopg.connect(postgres.url(), autocommit=True)

    def take(self) -> None:
        """Take the turn."""
        for lock in ("turn_of", "gate_of"):
            taken = f"SELECT pg_advisory_xact_lock(perdure.{lock}(%s, %s))"
            self._holder.execute(taken.encode(), (self._tenant, STORE.encode()))

    def until_queued(self, count: int) -> None:
        """Wait until so many writers wait, and note for what."""
        end = time.monotonic() + WAIT_SECONDS
        asked = "SELECT count(*) FROM perdure.requests WHERE tenant = %s"
        while self._looker.execute(asked, (self._tenant,)).fetchall() != [(count,)] or self._noted() < count:
            assert time.monotonic() < end
            time.sleep(0.01)

    def _noted(self) -> int:
        rows = self._looker.execute(
            "SELECT l.locktype FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
            "WHERE NOT l.granted AND a.application_name = 'perdure-begun'"
        ).fetchall()
        self.waits = Counter(str(kind) for (kind,) in rows)
        return len(rows)

    def give(self) -> None:
        """Let the queue go on."""
        self._holder.rollback()

    def close(self) -> None:
        """End the sessions."""
        self._holder.close()
        self._looker.close()


@pytest.fixture
def url(postgres: Server) -> str:
    """The address of a store, for the processes of these tests."""
    url = f"{new_url()}"
    perdure.open(url).close()
    return url.replace("&tenant=", "&application_name=perdure-begun&tenant=")


@pytest.fixture
def turn(postgres: Server, url: str) -> Iterator[Turn]:
    """The turn, not taken yet."""
    turn = Turn(postgres, url)
    yield turn
    turn.close()


def test_eight_processes_that_begin_threads_at_once_wait_for_one_flush(url: str, turn: Turn) -> None:
    """All wait for the turn and for no row; one makes the writes of all; none needs more than one round trip more."""
    with ExitStack() as stack:
        processes = Beginners(url, PROCESSES)
        stack.callback(processes.close)
        turn.take()
        processes.begin()
        turn.until_queued(PROCESSES)
        turn.give()
        begun = processes.begun()

    assert turn.waits == {"advisory": PROCESSES}
    assert Counter(each.codes[-1] for each in begun) == {"done": 1, "again": PROCESSES - 1}
    assert all(each.codes[:-1] in ([], ["busy"]) for each in begun)
    assert max(each.round_trips for each in begun) <= _alone(url).round_trips + 1
    with perdure.open(url) as store:
        assert {f"begun-{number}" for number in range(PROCESSES)} <= {thread.id for thread in store.threads()}


def test_a_process_that_begins_a_thread_alone_makes_its_own_write(url: str) -> None:
    """Control: without a queue there is one transaction for each, and no answer says that another made it."""
    assert _alone(url).codes == ["done"]


def _alone(url: str) -> Begun:
    process = Beginners(url, 1)
    process.begin()
    (begun,) = process.begun()
    process.close()
    return begun
