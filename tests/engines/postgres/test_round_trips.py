"""How often each operation waits for the server, counted where statements are sent and answers awaited."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import perdure
from perdure.errors import Unavailable
from tests.engines.postgres.server import MISSING
from tests.engines.postgres.stores import new_url
from tests.store import test_engine_calls as scenes
from tests.store.engine_calls import KEEPER

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres.connections import Connection

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.usefixtures("postgres")]

# The bounds that the operations must keep, and what else is counted on the way there.
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


class RoundTrips:
    """Counts the round trips of this process: answers that are awaited after something was sent.

    Several statements that are sent before the first answer is awaited are one round trip.  That a statement is
    prepared, once in a session, is not counted; nor, unless `looks`, are the looks of the threads that serve all others.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, looks: bool = False) -> None:
        self.count, self._is_sent, self._lock = 0, set[int](), threading.Lock()
        monkeypatch.setattr("perdure.engines.postgres.connections._PREPARE_FROM_USES", 1_000)
        for name in ("_send", "run"):
            monkeypatch.setattr(Connection, name, self._sending(getattr(Connection, name)))
        answer = Connection._answer

        def awaited(connection: Connection) -> Any:
            with self._lock:
                if id(connection) in self._is_sent:
                    self._is_sent.discard(id(connection))
                    self.count += looks or threading.current_thread().name not in ("perdure-news", KEEPER)
            return answer(connection)

        monkeypatch.setattr(Connection, "_answer", awaited)

    def _sending(self, send: Any) -> Any:
        def sent(connection: Connection, *args: Any) -> Any:
            with self._lock:
                self._is_sent.add(id(connection))
            return send(connection, *args)

        return sent


@pytest.mark.parametrize("scene", BOUNDS, ids=lambda scene: scene.__name__)
def test_an_operation_waits_for_the_server_at_most_so_often(
    scene: scenes.Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From begin to end, in a store that is in use by this process."""
    with perdure.open(new_url()) as store:
        act = scene(store)
        trips = RoundTrips(monkeypatch)

        act()

        assert trips.count <= BOUNDS[scene]
        assert trips.count > 0  # the control: something was counted


def _one_by_one(connection: Connection, asked: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
    return [connection.ask(sql, *values) for sql, values in asked]


@pytest.mark.parametrize("scene", [scenes.later_run_with_write, scenes.put_named, scenes.fork, scenes.undo])
def test_questions_asked_one_by_one_are_too_many(
    scene: scenes.Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: without one round trip for many questions the bound does not hold."""
    with perdure.open(new_url()) as store:
        act = scene(store)
        monkeypatch.setattr(Connection, "ask_all", _one_by_one)
        trips = RoundTrips(monkeypatch)

        act()

        assert trips.count > BOUNDS[scene]


def test_following_an_idle_thread_asks_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two followers of one process ask together."""
    url = new_url()
    with perdure.open(url) as store:
        store.thread("trip", agent="planner").put("/a.json", 1)
        thread, seen = store.thread("trip"), list[Any]()

        def follow() -> None:
            with suppress(Unavailable):  # until the store is closed
                seen.extend(thread.follow(wait=True))

        followers = [threading.Thread(target=follow) for _ in range(2)]
        for each in followers:
            each.start()
        time.sleep(1.5)
        trips = RoundTrips(monkeypatch, looks=True)
        time.sleep(3.0)
        count = trips.count

        assert 2 <= count <= 4  # at 1.0 s each, give or take the edges
    for each in followers:
        each.join()
    assert seen == []
