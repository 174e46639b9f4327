"""What waiting costs the store: who follows an idle thread, and who keeps many runs that nobody cancels."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from perdure.engines.contract import CellWrite, Engine
from perdure.engines.memory import MemoryEngine
from perdure.engines.sqlite import SqliteEngine
from perdure.model import canonical
from perdure.model.run import RunRecord
from perdure.runtime.session import lease_keeper
from perdure.runtime.session.lease_keeper import LeaseKeeper
from tests.ledger.holders import applied, space_on, take
from tests.runtime.runs.opened import store_on

LOCAL = ("instant", "gone")  # answered without the store


class Counting:
    """An engine that counts which of its methods are called."""

    def __init__(self, inner: Engine) -> None:
        """Count the calls to `inner`."""
        self.inner, self.calls = inner, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        """Count what is taken, unless it is answered without the store."""
        if name not in LOCAL:
            self.calls[name] += 1
        return getattr(self.inner, name)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the database of a store in a file was read."""
    counted, real = Counter[str](), SqliteEngine._read

    def read(self: SqliteEngine, work: Any) -> Any:
        counted["database"] += 1
        return real(self, work)

    monkeypatch.setattr(SqliteEngine, "_read", read)
    return counted


def until(fact: Callable[[], bool]) -> None:
    """Wait for something that is about to be true."""
    end = time.monotonic() + 20
    while not fact():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.001)


def test_following_an_idle_thread_costs_a_call_a_second(tmp_path: Path, reads: Counter[str]) -> None:
    """It waits in the engine, which does not read the database for it; a commit is seen at once."""
    with closing(SqliteEngine(tmp_path / "store.db")) as engine:
        counting = Counting(engine)
        store = store_on(cast("Engine", counting))
        thread = store.thread("t", agent="a")
        seen = threading.Event()

        def follow() -> None:
            for _ in thread.follow(wait=True):
                seen.set()
                return

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        until(
            lambda: counting.calls["wait"] >= 2
        )  # the first gives the standing, the second finds nothing new
        time.sleep(0.3)
        counting.calls.clear()
        reads.clear()
        began = time.monotonic()

        time.sleep(2.2)

        assert set(counting.calls) <= {"wait"}
        assert counting.calls["wait"] <= time.monotonic() - began + 1  # a busy machine sleeps longer
        assert reads["database"] == 0
        with store.thread("t").change("by hand") as change:
            change.put("/k.json", 1)
        assert seen.wait(60)
        follower.join(60)


def test_many_runs_cost_what_one_costs_while_nobody_cancels_them() -> None:
    """One wait for all of them, and no read; two reads a second for each would be a hundred times as many."""
    counting = Counting(MemoryEngine())
    space = space_on(cast("Engine", counting))
    owners = LeaseKeeper()
    kept = [
        owners.hold(
            take(space, f"run-{number}", timeline=f"line-{number}", owners=owners),
            space=space,
            lost=lambda: None,
            cancelled=lambda why: None,
        )
        for number in range(200)
    ]
    until(lambda: counting.calls["wait"] >= 2)
    time.sleep(0.3)
    counting.calls.clear()
    began = time.monotonic()

    time.sleep(2.0)

    assert set(counting.calls) == {"wait"}
    assert counting.calls["wait"] <= 3 * (time.monotonic() - began)
    for each in kept:
        each.release()


def test_a_cancellation_is_news_and_waits_for_no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper would look every ten minutes by itself."""
    monkeypatch.setattr(
        lease_keeper, "_PAUSES", 10_000
    )  # between two waits it sleeps for a part of the ten minutes
    counting, cancelled = Counting(MemoryEngine()), threading.Event()
    space, owners = space_on(cast("Engine", counting)), LeaseKeeper(ttl=3_600.0, poll=600.0)
    lease = take(space, ttl=3_600.0, owners=owners)
    keeping = owners.hold(lease, space=space, lost=lambda: None, cancelled=lambda why: cancelled.set())
    until(lambda: counting.calls["wait"] >= 2)  # the first gives the standing, the second waits
    record = RunRecord(
        id="run-1", agent="a", timeline="main", state="running", at=0, begun_at=0, cancel="enough"
    )

    applied(space, CellWrite(name="run/run-1", expected=0, value=canonical.encode_struct(record)))

    assert cancelled.wait(60)
    keeping.release()
