"""A writing process is killed with SIGKILL, wherever it is and at named points.

The next process opens the store at once, without repair by hand, finds every turn that was
acknowledged, and finishes what was begun.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeAlias

import pytest

import perdure
from perdure import Store
from perdure.engines.sqlite import SqliteEngine
from perdure.errors import PerdureError
from tests.crash import jobs, points
from tests.crash.campaign import SEED, sized
from tests.crash.day import Fact
from tests.crash.processes import running

Durability: TypeAlias = Literal["power_loss", "process_crash"]

LIVES_AT_EACH_POINT = sized(2, 80)
LIVES_AT_RANDOM = sized(14, 1_000)
LIVES_OF_A_STORE = 13  # after so many kills another store is begun

# The promise is "under a second".  Opening takes some milliseconds; of all the times the median is judged,
# because a busy machine can make any single one of them long.
REOPENING_SECONDS_MAX = 1.0


@dataclass
class Past:
    """What a store and its writers have been through."""

    path: Path
    turn: int = 0  # the one that was under way
    facts: list[Fact] = field(default_factory=list[Fact])
    reopening_seconds: list[float] = field(default_factory=list[float])
    durability: Durability = "power_loss"

    def live(self, point: str, after: int, seconds: float | None = None, how: str = "") -> None:
        """Let one more process write until it dies: at `point`, or of us after so many seconds."""
        told = str(self.path), self.turn, point, after, how, self.durability
        with running(jobs.turn_until_killed, *told) as victim:
            said: list[Any] = []
            if seconds is not None:
                said.append(victim.answer())
                time.sleep(seconds)
                said += victim.kill()
            said += victim.rest()
            victim.process.join()
            assert victim.process.exitcode == -9, f"{point}: it ended by itself"
        for name, facts in said:
            self.facts += facts
            self.turn = int(name.partition(" ")[2])

    def lost(self, last: int = 40) -> list[str]:
        """Open the store as the next process does; what it finds missing of the last facts."""
        began = time.monotonic()
        with perdure.open(self.path) as store:
            self.reopening_seconds.append(time.monotonic() - began)
            assert damage(store) == "ok"
            return [str(fact) for fact in self.facts[-last:] if not holds(store, fact)]

    def end(self) -> list[str]:
        """Look at everything once more, and let one process go on to a next turn."""
        lost = self.lost(last=len(self.facts))
        with perdure.open(self.path) as store:
            faults = [str(fault) for fault in store.verify().faults]
            store.thread("after", agent="planner").put("/still.json", "writable")
        return lost + faults


def holds(store: Store, fact: Fact) -> bool:
    """Whether a fact is still so."""
    try:
        fact.check(store)
    except (AssertionError, PerdureError):
        return False
    return True


def damage(store: Store) -> object:
    """What SQLite itself says about the file."""
    engine = store._resources.engine
    assert isinstance(engine, SqliteEngine)
    return engine._connections.writer.pragma("quick_check")


@pytest.mark.parametrize("point", points.POINTS)
def test_a_process_killed_at_a_named_point_loses_nothing(tmp_path: Path, point: str) -> None:
    """Every acknowledged turn is there, what was begun is finished, and the next process just goes on."""
    chance, past = random.Random(f"{point} {SEED}"), Past(tmp_path / "store.db")
    for life in range(LIVES_AT_EACH_POINT):
        past.live(point, after=chance.randint(1, 3))

        assert past.lost() == [], f"after life {life}, seed {SEED}"

    assert past.end() == []
    assert median(past.reopening_seconds) < REOPENING_SECONDS_MAX


@pytest.mark.parametrize("store", range(LIVES_AT_RANDOM // LIVES_OF_A_STORE))
def test_a_process_killed_anywhere_loses_nothing(tmp_path: Path, store: int) -> None:
    """The same, at whatever moment the signal comes; every other store need not survive a power loss, but this."""
    durability: Durability = "process_crash" if store % 2 else "power_loss"
    chance, past = random.Random(f"{store} {SEED}"), Past(tmp_path / "store.db", durability=durability)
    for life in range(LIVES_OF_A_STORE):
        past.live(points.RANDOM, after=0, seconds=chance.uniform(0, 0.06))

        assert past.lost() == [], f"after life {life}, seed {SEED}"

    assert past.end() == []
    assert median(past.reopening_seconds) < REOPENING_SECONDS_MAX


def test_control_a_process_that_answers_before_it_commits_loses_turns(tmp_path: Path) -> None:
    """Killed between its answer and its COMMIT, it leaves a turn that was promised and is not there."""
    past = Past(tmp_path / "store.db")

    past.live("before COMMIT", after=30, how="hasty")

    assert len(past.lost()) == 1
