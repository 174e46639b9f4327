"""Following a store on a server: others hear of a write soon, miss nothing, and cost its writers nothing without need."""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import perdure
from perdure import Thread
from perdure.engines.contract import Instant
from perdure.runtime.events import Committed, Cursor
from perdure.runtime.streaming import cursor_at
from perdure.testing.engines.builders import SPACE, write
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import new_url

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres.connections import Connection
    from perdure.engines.postgres.news import NewsOfOthers
    from perdure.engines.postgres.presence import Clock

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.usefixtures("postgres")]

COMMITS = 10_000 if os.environ.get("PERDURE_DEEP") else 100
LONG = 30.0


class Told:
    """The spaces of which this process has told others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spaces: list[str] = []
        tell = NewsOfOthers.tell

        def noted(news: NewsOfOthers, space: str) -> None:
            self.spaces.append(space)
            tell(news, space)

        monkeypatch.setattr(NewsOfOthers, "tell", noted)


class TestTelling:
    """Who is told, and what it costs."""

    def test_a_space_that_no_process_follows_is_told_to_nobody(
        self, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also if the writer's own process follows it, as the keeper of a run's lease does."""
        engine, told = open_engine(), Told(monkeypatch)
        engine.apply(write("op 0", b"{}"))
        engine.wait({SPACE: -1}, LONG)
        for number in range(1, 4):
            seen = engine.standing(SPACE)
            engine.apply(write(f"op {number}", b"{}"))
            assert engine.wait({SPACE: seen}, LONG)

        assert told.spaces == []

    def test_a_space_that_another_process_follows_is_told(
        self, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The control of the test above; another opening stands for the other process."""
        engine, other, told = open_engine(), open_engine(), Told(monkeypatch)
        engine.apply(write("op 0", b"{}"))
        other.wait({SPACE: -1}, LONG)
        engine.apply(write("op 1", b"{}"))

        assert told.spaces == [SPACE]

    def test_news_comes_within_milliseconds(self, open_engine: Opener) -> None:
        """At the median, and long before the next look; the look alone is the control."""
        assert self._median_delay(open_engine) < 0.25

    def test_without_notifications_the_next_look_finds_it(
        self, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The control: a follower that hears nothing learns of it later, and learns of it."""
        monkeypatch.setattr(NewsOfOthers, "tell", lambda *_: None)

        assert self._median_delay(open_engine) > 0.25

    def _median_delay(self, open_engine: Opener) -> float:
        engine, other, delays = open_engine(), open_engine(), list[float]()
        engine.apply(write("op", b"{}"))
        seen = other.wait({SPACE: -1}, LONG)[SPACE]
        for number in range(3):
            arrived: list[float] = []

            def follow(seen: int = seen, arrived: list[float] = arrived) -> None:
                other.wait({SPACE: seen}, LONG)
                arrived.append(time.monotonic())

            waits = threading.Thread(target=follow)
            waits.start()
            time.sleep(0.15 + random.random() / 10)
            engine.apply(write(f"op {number}", b"{}"))
            began = time.monotonic()
            waits.join()
            seen = other.standing(SPACE)
            delays.append(arrived[0] - began)
        return statistics.median(delays)

    def test_behind_a_pooler_news_is_found_by_looking(
        self, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where nothing can be heard nothing listens, and a follower still misses nothing."""
        monkeypatch.setattr(Connection, "is_pooled", lambda _: True)
        monkeypatch.setattr(Connection, "notifications", lambda _: pytest.fail("nothing can be heard"))
        engine, other = open_engine(), open_engine()
        engine.apply(write("op 0", b"{}"))
        seen = other.wait({SPACE: -1}, LONG)[SPACE]
        for number in range(1, 4):
            engine.apply(write(f"op {number}", b"{}"))
            seen = other.wait({SPACE: seen}, LONG)[SPACE]

        assert seen == engine.standing(SPACE)

    def test_a_session_that_listens_is_replaced_when_it_is_ended(
        self, postgres: Server, open_engine: Opener
    ) -> None:
        """A follower goes on after its session was ended by the server."""
        engine, other = open_engine(), open_engine()
        engine.apply(write("op 0", b"{}"))
        seen = other.wait({SPACE: -1}, LONG)[SPACE]
        postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        for number in range(1, 3):
            engine.apply(write(f"op {number}", b"{}"))
            seen = other.wait({SPACE: seen}, LONG)[SPACE]

        assert seen == engine.standing(SPACE)


@pytest.mark.parametrize("drops", [False, True], ids=["heard", "dropped at random"])
def test_a_follower_gets_every_event_once_and_in_order(drops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over many commits with undo and promote, on another connection, though half of the notifications are lost."""
    if drops:
        monkeypatch.setattr(Connection, "notifications", _losing(Connection.notifications))
    url, told, begun = new_url(), list[str](), threading.Event()
    with perdure.open(url) as store, perdure.open(url) as reader:
        thread = store.thread("trip", agent="planner")
        thread.put("/n.json", 0)

        def follow() -> None:
            following = reader.thread("trip").follow(after=str(_cursor(thread)), wait=True)
            begun.set()
            for event in following:
                if isinstance(event, Committed):
                    told.append(event.commit)
                    if event.reason == "end":
                        return

        follower = threading.Thread(target=follow)
        follower.start()
        assert begun.wait(LONG)
        time.sleep(0.2)  # it has read once, and so knows where it is
        made = _changed(thread)
        follower.join(LONG + COMMITS / 20)

    assert told == made
    assert len(made) >= COMMITS


def test_control_a_follower_that_reads_heads_misses_or_repeats_commits() -> None:
    """It hears of every write, and looks at the head each time; what is between two looks it does not see."""
    url, seen, begun = new_url(), list[str](), threading.Event()
    with perdure.open(url) as store, perdure.open(url) as reader:
        thread = store.thread("trip", agent="planner")
        thread.put("/n.json", 0)
        name, engine = thread._space.name, reader._resources.engine

        def follow() -> None:
            other, standing = reader.thread("trip"), engine.standing(name)
            begun.set()
            while other.get("/n.json") != "end":
                standing = engine.wait({name: standing}, LONG).get(name, standing)
                seen.append(str(other.head.commit))

        follower = threading.Thread(target=follow)
        follower.start()
        assert begun.wait(LONG)
        made = _changed(thread)
        follower.join(LONG + COMMITS / 20)

    assert seen
    assert len(set(seen)) < len(seen) or not set(made) <= set(seen)


def _cursor(thread: Thread) -> Cursor | None:
    return cursor_at(thread._space, thread.head.commit)


def _changed(thread: Thread) -> list[str]:
    """Put values, and undo, redo and promote on the way; return the commits in the order in which main had them."""
    chance, made, forks = random.Random(3), list[str](), 0
    for number in range(COMMITS):
        thread.put("/n.json", number)
        made.append(str(thread.head.commit))
        draw = chance.random()
        if draw < 0.03:
            thread.undo()
        elif draw < 0.05:
            thread.undo()
            thread.redo()
        elif draw < 0.06:
            forks += 1
            other = thread.fork(f"fork-{forks}")
            other.put("/n.json", -number)
            made.append(str(other.head.commit))
            thread.promote(other.timeline)
    with thread.change("end") as change:
        change.put("/n.json", "end")
    return [*made, str(thread.head.commit)]


def _losing(real: Any) -> Any:
    """Half of what arrives is lost."""
    chance = random.Random(7)

    def heard(connection: Connection) -> list[str]:
        return [each for each in real(connection) if chance.random() < 0.5]

    return heard


def host_offset() -> int:
    """How far the time of day is from the clock that is never set, in µs."""
    return time.time_ns() // 1_000 - Clock.now()


class TestClock:
    """What an instant says of the server's clock."""

    def test_an_instant_costs_no_round_trip_and_contains_the_servers_time(
        self, postgres: Server, open_engine: Opener
    ) -> None:
        """The server's time is between the instant and the instant plus its error, if its host's clock was not set."""
        offset = host_offset()
        engine = open_engine()
        for _ in range(20):
            before = engine.instant()
            ((server,),) = postgres.sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
            after = engine.instant()

            was_set = abs(host_offset() - offset)  # by what keeps the time of the machine
            assert before.at - was_set <= int(str(server)) <= after.at + after.error + was_set
            assert before.clock == after.clock
            assert after.at >= before.at

    def test_the_narrowest_bounds_are_used_and_widen_with_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A slow answer says less than a quick one; an old one less than a new one."""
        clock, now = Clock(), [1_000_000]
        monkeypatch.setattr(Clock, "now", staticmethod(lambda: now[0]))
        clock.learn(now[0] - 40_000, 5_000_000, "1")
        wide = clock.instant()
        clock.learn(now[0] - 400, 5_000_000 - 100, "1")
        narrow = clock.instant()
        now[0] += 100_000_000
        later = clock.instant()

        assert (wide.at, wide.error) == (5_000_000, 40_001)
        assert narrow.at == wide.at  # never goes back
        assert narrow.error < 1_000
        assert later.at < wide.at + 100_000_000
        assert later.at + later.error > wide.at + 100_000_000

    def test_after_a_failover_the_clock_has_another_name(self) -> None:
        """What was dated on the old one is over; the new one may be behind."""
        clock = Clock()
        clock.learn(Clock.now() - 10, 9_000_000, "00000001")
        before = clock.instant()
        clock.learn(Clock.now() - 10, 2_000_000, "00000002")
        after = clock.instant()

        assert after.clock != before.clock
        assert isinstance(after, Instant)
        assert after.at < before.at
