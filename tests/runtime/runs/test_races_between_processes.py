"""Calls by hand, runs, puts and decisions on the same ids and paths, by several processes at once.

Every acknowledged write is in the history once, and none is covered by a writer who had not seen it without
the commit saying so.  `PERDURE_DEEP=1` asks for 10,000 rounds.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

import perdure
from perdure import Store
from tests.crash.processes import context, running
from tests.runtime.runs.races import Told, faults, race
from tests.runtime.runs.world import World

ROUNDS = 10_000 if os.environ.get("PERDURE_DEEP") else 40
PROCESSES = 3
SEED = 7


@pytest.mark.timeout(7200)  # of the long form
def test_every_acknowledged_write_is_in_the_history_once(memory_path: Path) -> None:
    """Whoever races whom: nothing is lost, nothing is applied or done twice, and no cover is silent."""
    path, world = str(memory_path / "agents.db"), World(memory_path / "world")
    barrier = context.Barrier(PROCESSES)
    perdure.open(path).close()
    with ExitStack() as stack:
        args = [(path, world.path, barrier, me, PROCESSES, ROUNDS, SEED) for me in range(PROCESSES)]
        others = [stack.enter_context(running(race, *each)) for each in args]
        told = [answer for other in others for answer in other.rest() if isinstance(answer, Told)]

    assert len(told) == PROCESSES
    with perdure.open(path) as store:
        log = list(reversed(store.thread("trip").log()))
        assert faults(log, told, world) == []
        assert sum(len(each.acked) for each in told) > ROUNDS // 2
        assert store.verify().ok


def test_the_checker_finds_a_value_that_was_written_again(store: Store, tmp_path: Path) -> None:
    """A control: a later write is covered by a copy of an earlier one, and no event says so."""
    thread = store.thread("trip", agent="planner")
    first, later = {"by": "c1", "saw": None}, {"by": "put-0-1"}
    for value in (first, later, first):
        thread.put("/p0.json", value)
    told = Told(values={"c1": first, "put-0-1": later}, acked=["c1", "put-0-1"])

    found = faults(list(reversed(thread.log())), [told], World(tmp_path / "world"))

    assert len(found) == 2


def test_the_checker_finds_a_write_that_is_missing(store: Store, tmp_path: Path) -> None:
    """A control: it was acknowledged, and no commit holds it."""
    thread = store.thread("trip", agent="planner")
    thread.put("/p0.json", {"by": "put-0-1"})
    told = Told(values={"put-0-2": {"by": "put-0-2"}}, acked=["put-0-2"])

    assert len(faults(thread.log(), [told], World(tmp_path / "world"))) == 1
