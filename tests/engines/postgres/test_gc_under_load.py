"""Garbage collection beside writers: what a head reaches stays, what was undone goes, and no writer waits for long."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast

import pytest

import perdure
from perdure import Store, Thread
from perdure.engines.contract import Engine
from perdure.errors import Forgotten
from perdure.history import retention
from perdure.history.retention import RetentionPolicy, SpaceRemoval
from tests.crash.campaign import SEED, sized
from tests.engines.postgres.server import MISSING
from tests.engines.postgres.stores import new_url

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

WRITERS, ROUNDS = 3, sized(12, 300)
DAY = 24 * 60 * 60 * 1_000_000


def collect(store: Store) -> Sequence[SpaceRemoval]:
    """Forget everything that was undone, slowly: much can happen between the marking and the removal."""
    engine, now = store._resources.engine, store._resources.clock()
    plan = retention.plan(engine, RetentionPolicy(undone_after_days=0), now + 3 * DAY)
    return retention.carry_out(_late(engine, lambda: time.sleep(0.15)), plan, ids=store._resources.ids)


def _late(engine: Engine, meanwhile: Callable[[], object]) -> Engine:
    """Return an engine whose `forget` arrives after `meanwhile`."""

    class Late:
        def __getattr__(self, name: str) -> Any:
            if name == "forget":
                meanwhile()
            return getattr(engine, name)

    return cast("Engine", Late())


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
        if what < 0.8:
            undone = thread.head
            thread.undo()
            thread.put("/other.json", number)  # what was undone is garbage from now on
            if what < 0.6:
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


class Outcome(NamedTuple):
    """What a campaign found."""

    removed: list[SpaceRemoval]
    slowest_seconds: float
    faults: list[str]


def campaign(url: str, seed: int) -> Outcome:
    """Let writers change their threads while garbage is collected; compare what they were told with what is stored."""
    removed, faults = list[SpaceRemoval](), list[str]()
    with (
        perdure.open(url) as store,
        perdure.open(url) as collecting,
        ThreadPoolExecutor(WRITERS) as pool,
    ):
        threads = [store.thread(f"t{number}", agent="clerk") for number in range(WRITERS)]
        writing = [
            pool.submit(change, thread, random.Random(seed + number)) for number, thread in enumerate(threads)
        ]
        while not all(each.done() for each in writing):
            removed += collect(collecting)
            time.sleep(0.05)
        removed += collect(collecting)
        slowest = 0.0
        for thread, each in zip(threads, writing, strict=True):
            try:
                state, seconds = each.result()
                slowest = max(slowest, seconds)
                faults += _differences(collecting.thread(thread.id), state)
            except Forgotten as forgotten:
                faults.append(str(forgotten))
        faults += [str(fault) for fault in collecting.verify().faults]
    return Outcome(removed, slowest, faults)


def _differences(thread: Thread, state: dict[str, bytes]) -> list[str]:
    """Return the paths whose value is another; read every state of the history."""
    for step in thread.log(limit=9_999):
        view = thread.at(step.digest)
        for path in view.paths():
            view.get(path)
    return [path for path, value in state.items() if thread.get(path) != value]


@pytest.mark.usefixtures("postgres")
def test_what_is_undone_goes_and_what_is_reached_stays() -> None:
    """Of threads that are written to all the time; each writer has in the end what it was told that it has."""
    found = campaign(new_url(), SEED)

    assert found.faults == [], f"seed {SEED}"
    assert found.slowest_seconds < 10
    assert sum(each.freed for each in found.removed) > 3_000 * WRITERS


def gone_back(url: str) -> list[str]:
    """Let a writer go back to what was undone between its marking and its removal; return what is wrong then."""
    value = random.Random(SEED).randbytes(3_000)
    with perdure.open(url) as store, perdure.open(url) as collecting:
        thread = store.thread("t", agent="clerk")
        thread.put("/begun.json", True)
        thread.put("/0.bin", value)
        undone = thread.head
        thread.undo()
        thread.put("/other.json", 1)
        engine, now = collecting._resources.engine, collecting._resources.clock()
        plan = retention.plan(engine, RetentionPolicy(undone_after_days=0), now + 3 * DAY)
        moments = iter([undone])  # it goes back once
        late = _late(engine, lambda: [thread.undo(to=moment) for moment in moments])
        retention.carry_out(late, plan, ids=collecting._resources.ids)
        try:
            faults = _differences(collecting.thread("t"), {"/0.bin": value})
        except Forgotten as forgotten:
            faults = [str(forgotten)]
        return faults + [str(fault) for fault in collecting.verify().faults]


@pytest.mark.usefixtures("postgres")
def test_what_a_writer_went_back_to_after_it_was_marked_stays() -> None:
    """The space was written to since, so nothing of the plan is carried out there."""
    assert gone_back(new_url()) == []


@pytest.mark.usefixtures("postgres")
def test_without_the_check_of_later_writes_something_reached_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Control: the mark is carried out all the same."""
    monkeypatch.setattr("perdure.engines.postgres.upkeep.check_standing", lambda *_: None)

    assert gone_back(new_url())
