"""How often each operation waits for the server, counted on the wire by a proxy that knows where an answer ends.

A round trip is what a client sends up to a Sync or a Query, and the answer up to ReadyForQuery.  Several statements
before one Sync are one round trip.  That a statement is prepared, once in a session, is left out of the count, and so
are the looks of the threads that serve all operations of a process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

import perdure
from perdure import Store
from perdure.errors import Unavailable
from perdure.model.message import ToolResult
from tests.engines.postgres.proxy import Proxy, proxy_to
from tests.engines.postgres.server import MISSING
from tests.engines.postgres.stores import new_url
from tests.store import test_engine_calls as scenes
from tests.store.engine_calls import KEEPER

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres import engine, questions
    from perdure.engines.postgres.connections import Connection
    from perdure.engines.shared_rules import EngineCounters

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.usefixtures("postgres")]

BOUNDS: dict[scenes.Scene, int] = {
    scenes.later_run_with_write: 8,
    scenes.run_without_tool: 5,
    scenes.put: 2,
    scenes.put_named: 2,
    scenes.get: 2,
    scenes.log: 2,
    scenes.transcript: 2,
    scenes.fork: 3,
    scenes.undo: 3,
    scenes.threads: 2,
}


class Service:
    """Counts the round trips of the threads that serve all operations: news, and the leases of live runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        add = EngineCounters.add

        def noted(counters: EngineCounters, name: str) -> None:
            if name == "round_trips" and threading.current_thread().name in ("perdure-news", KEEPER):
                self.count += 1
            add(counters, name)

        monkeypatch.setattr(EngineCounters, "add", noted)


@contextmanager
def far_store(monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[Store, Proxy]]:
    """A store behind a proxy that counts; no statement is prepared."""
    monkeypatch.setattr("perdure.engines.postgres.connections._PREPARE_FROM_USES", 1_000)
    with proxy_to(new_url(), 0) as (proxy, address), perdure.open(address) as store:
        yield store, proxy


def trips_of(scene: scenes.Scene, monkeypatch: pytest.MonkeyPatch, *, in_blocks: bool = False) -> int:
    """The round trips of an operation, in a store that is in use; `in_blocks`: each statement is a transaction block."""
    with far_store(monkeypatch) as (store, proxy):
        act = scene(store)
        if in_blocks:
            monkeypatch.setattr(Connection, "call", _in_a_block(Connection.call))
        service, before = Service(monkeypatch), proxy.requests

        act()

        return proxy.requests - before - service.count


def _in_a_block(call: Any) -> Any:
    def sent(connection: Connection, sql: str, *parameters: Any) -> Any:
        connection.run("BEGIN")
        rows = call(connection, sql, *parameters)
        connection.run("COMMIT")
        return rows

    return sent


@pytest.mark.parametrize("scene", BOUNDS, ids=lambda scene: scene.__name__)
def test_an_operation_waits_for_the_server_at_most_so_often(
    scene: scenes.Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From begin to end, in a store that is in use by this process."""
    assert 0 < trips_of(scene, monkeypatch) <= BOUNDS[scene]


@pytest.mark.parametrize("scene", BOUNDS, ids=lambda scene: scene.__name__)
def test_in_blocks_of_their_own_the_statements_are_too_many(
    scene: scenes.Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: with BEGIN and COMMIT around each statement no bound holds."""
    assert trips_of(scene, monkeypatch, in_blocks=True) > BOUNDS[scene]


@pytest.mark.parametrize("scene", [scenes.later_run_with_write, scenes.put_named, scenes.fork, scenes.undo])
def test_questions_asked_one_by_one_are_too_many(
    scene: scenes.Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: without one round trip for many questions the bound does not hold."""
    answers = engine.PostgresEngine.answers
    monkeypatch.setattr(
        engine.PostgresEngine,
        "answers",
        lambda self, questions: [answers(self, [each])[0] for each in questions],
    )

    assert trips_of(scene, monkeypatch) > BOUNDS[scene]


def _blocks(store: Store, count: int, *, answers: bool = False) -> None:
    thread = store.thread("trip", agent="planner")
    for number in range(count):
        with thread.change("said") as change:
            results = [ToolResult(f"call-{number}", "success")] if answers else []
            change.say("tool" if answers else "user", f"Hello {number}.", tool_results=results)


@pytest.mark.parametrize("answers", [False, True], ids=["words", "results of calls"])
def test_a_block_of_changes_is_two_round_trips(answers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its commit depends on is read with the head, once the first blocks have shown that it is asked for.

    Whether the thread has calls that a message could answer is known from there, too.
    """
    with far_store(monkeypatch) as (store, proxy):
        _blocks(store, 4, answers=answers)
        before = proxy.requests

        _blocks(store, 10, answers=answers)

        assert proxy.requests - before <= 2 * 10 + 2  # and two to open the thread


def test_a_block_that_reads_twice_is_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without what is kept from entering, leaving asks again."""
    monkeypatch.setattr(questions.AskedBeside, "asked_after", lambda *_: ())
    with far_store(monkeypatch) as (store, proxy):
        _blocks(store, 4)
        before = proxy.requests

        _blocks(store, 10)

        assert proxy.requests - before >= 3 * 10


def _trips_while_idle(monkeypatch: pytest.MonkeyPatch, watched_seconds: float) -> tuple[int, float]:
    """The round trips of two followers of a thread to which nothing is written, and in how many seconds."""
    with far_store(monkeypatch) as (store, proxy):
        thread = store.thread("trip", agent="planner")
        thread.put("/a.json", 1)
        seen: list[Any] = []

        def follow() -> None:
            with suppress(Unavailable):  # until the store is closed
                seen.extend(store.thread("trip").follow(wait=True))

        followers = [threading.Thread(target=follow) for _ in range(2)]
        for each in followers:
            each.start()
        time.sleep(1.5)  # until both wait
        before, began = proxy.requests, time.monotonic()
        time.sleep(watched_seconds)
        counted = proxy.requests - before, time.monotonic() - began
        assert seen == []
        store.close()
    for each in followers:
        each.join()
    return counted


def test_following_an_idle_thread_asks_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two followers of one process ask together."""
    count, seconds = _trips_while_idle(monkeypatch, 3.0)

    assert 0 < count <= seconds + 1


def test_followers_that_look_more_often_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: looks every tenth of a second are more than one a second."""
    monkeypatch.setattr("perdure.engines.postgres.news._LOOK_SECONDS", 0.1)

    count, seconds = _trips_while_idle(monkeypatch, 1.0)

    assert count > seconds + 1
