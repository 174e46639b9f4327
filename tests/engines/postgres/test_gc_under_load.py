"""Garbage collection beside writers: what a head reaches stays, what was undone goes, and no writer waits for long."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import perdure
from perdure import Store, Thread
from perdure.errors import Forgotten
from perdure.history import retention
from perdure.history.retention import RetentionPolicy, SpaceRemoval
from tests.crash.campaign import SEED, sized
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import new_url

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

WRITERS, ROUNDS = 3, sized(12, 300)
DAY = 24 * 60 * 60 * 1_000_000


def collect(store: Store) -> Sequence[SpaceRemoval]:
    """Forget everything that was undone."""
    engine, now = store._resources.engine, store._resources.clock()
    plan = retention.plan(engine, RetentionPolicy(undone_after_days=0), now + 3 * DAY)
    return retention.carry_out(engine, plan, ids=store._resources.ids)


def change(thread: Thread, chance: random.Random) -> tuple[dict[str, bytes], float]:
    """Put, undo, and go back to what was undone where it is still there; return the state, and the longest put."""
    state: dict[str, bytes] = {}
    slowest = 0.0
    thread.put("/begun.json", True)
    for number in range(ROUNDS):
        path, value = f"/{number % 7}.bin", chance.randbytes(3_000)
        begun = time.monotonic()
        thread.put(path, value)
        slowest = max(slowest, time.monotonic() - begun)
        what = chance.random()
        if what < 0.5:
            undone = thread.head
            thread.undo()
            if what < 0.25:
                time.sleep(chance.uniform(0, 0.1))
                try:
                    thread.undo(to=undone)
                    state[path] = value
                except Forgotten:
                    thread.put("/noticed.json", number)
        else:
            state[path] = value
        time.sleep(chance.uniform(0, 0.15))  # a conversation waits for a model, too
    return state, slowest


def test_what_is_undone_goes_and_what_is_reached_stays(postgres: Server) -> None:
    """Of threads that are written to all the time; each writer has in the end what it was told that it has."""
    url, removed = new_url(), list[SpaceRemoval]()
    with (
        perdure.open(url) as store,
        perdure.open(url) as collecting,
        ThreadPoolExecutor(WRITERS) as pool,
    ):
        threads = [store.thread(f"t{number}", agent="clerk") for number in range(WRITERS)]
        writing: list[Future[tuple[dict[str, bytes], float]]] = [
            pool.submit(change, thread, random.Random(SEED + number)) for number, thread in enumerate(threads)
        ]
        while not all(each.done() for each in writing):
            removed += collect(collecting)
            time.sleep(0.05)
        removed += collect(collecting)

        for thread, (state, slowest) in zip(threads, [each.result() for each in writing], strict=True):
            assert {path: thread.get(path) for path in state} == state, f"seed {SEED}"
            assert slowest < 10
            for step in thread.log(limit=9_999):
                view = thread.at(step.digest)
                assert all(view.get(path) is not None for path in view.paths())
        assert collecting.verify().ok, f"seed {SEED}"
    assert sum(each.count for each in removed) > 0
    assert sum(each.freed for each in removed) > 3_000 * WRITERS
