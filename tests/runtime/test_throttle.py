"""Limits that workers share: what is used in any minute, and how many runs there are at once, over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perdure import Agent, RunLimits
from perdure.engines.contract import Instant
from perdure.engines.memory import MemoryStore
from perdure.errors import Invalid
from perdure.runtime.session.records import WORK
from perdure.runtime.session.throttle import Limit
from tests.coded import raises
from tests.ledger.holders import SECOND, Clocked

MINUTE = 60 * SECOND


class Crew:
    """Workers on one store, with one clock."""

    def __init__(self, most: RunLimits, count: int, *, shared: bool = True) -> None:
        """Begin with nothing taken; without `shared` each has a limit of its own."""
        store = MemoryStore()
        self.engines = [Clocked(store) for _ in range(count)]
        names = [f"agent/a{0 if shared else at}" for at in range(count)]
        self.limits = [Limit(engine, name, most) for engine, name in zip(self.engines, names, strict=True)]

    def pass_(self, seconds: float) -> None:
        """Let time pass for all."""
        for engine in self.engines:
            engine.pass_(seconds)

    def steps(self, seconds: int, tokens: int = 0) -> Iterator[int]:
        """Let all ask for a request ten times a second; the moments at which one was allowed."""
        for _ in range(seconds * 10):
            for limit in self.limits:
                if limit.take_step() == 0:
                    limit.used(tokens)
                    yield self.engines[0].now.at
            self.pass_(0.1)

    @property
    def writes(self) -> int:
        """How often the store was written."""
        return self.engines[0].standing(WORK)


def most_in_a_minute(moments: list[int]) -> int:
    """The most that fell into any minute."""
    return max(sum(1 for each in moments if at <= each < at + MINUTE) for at in moments)


@pytest.mark.parametrize("most", [3, 60, 200])
def test_workers_together_stay_within_the_requests_of_any_minute(most: int) -> None:
    """And use most of them, with far fewer writes than requests."""
    crew = Crew(RunLimits(requests_per_minute=most), 3)

    moments = list(crew.steps(300))

    assert most_in_a_minute(moments) <= most
    assert len(moments) >= most * 5 // 2
    assert crew.writes <= max(len(moments), 5 * 11)
    if most >= 60:
        assert crew.writes * 4 <= len(moments)


def test_workers_with_limits_of_their_own_go_beyond_the_limit() -> None:
    """Control: without the shared cell the same workers send more in a minute."""
    crew = Crew(RunLimits(requests_per_minute=60), 3, shared=False)

    assert most_in_a_minute(list(crew.steps(120))) > 60


def test_what_a_step_took_beyond_the_tokens_is_owed() -> None:
    """Over ten minutes the tokens are those of ten minutes, though each step takes more than a slice."""
    crew = Crew(RunLimits(tokens_per_minute=1_000), 2)

    steps = len(list(crew.steps(600, tokens=300)))

    assert 10 * 1_000 * 0.6 <= steps * 300 <= 11 * 1_000 + 2 * 300


class Interleaved(Clocked):
    """An engine on which something happens between a read of a limit and the write after it, at the same instant."""

    between: Callable[[], object] | None = None

    def cell(self, space: str, name: str) -> Any:
        """Read a cell; what happens between comes after the first read."""
        found = super().cell(space, name)
        between, self.between = self.between, None
        if between is not None:
            between()
        return found


def test_two_workers_of_one_process_do_not_use_the_same_slice() -> None:
    """They have one holder and take the same amount at the same instant; the limit allows one request."""
    engine = Interleaved(MemoryStore())
    one, other = (Limit(engine, "agent/a", RunLimits(requests_per_minute=1)) for _ in range(2))
    waits: list[float] = []
    engine.between = lambda: waits.append(other.take_step())

    waits.append(one.take_step())

    assert [wait == 0 for wait in waits] == [True, False]


def test_runs_at_once_are_shared() -> None:
    """What one worker has the others cannot take, until it gives it back."""
    crew = Crew(RunLimits(runs=8), 2)
    one, other = crew.limits

    taken = [one.take_slot() for _ in range(9)]
    refused = other.take_slot()
    for _ in range(5):
        one.give_slot()
    one.settle()

    assert (taken.count(True), refused) == (8, False)
    assert [other.take_slot() for _ in range(6)] == [True] * 5 + [False]


def test_the_slots_of_a_worker_that_ended_are_free() -> None:
    """Its opening is closed, which proves that it is gone."""
    crew = Crew(RunLimits(runs=1), 2)
    one, other = crew.limits
    assert one.take_slot()
    assert not other.take_slot()

    crew.engines[0].close()

    assert other.take_slot()


def test_the_slots_of_a_stopped_worker_are_free_after_twice_its_leases() -> None:
    """Not before, and never while it renews."""
    crew = Crew(RunLimits(runs=1), 2)
    one, other = crew.limits
    assert one.take_slot()

    for _ in range(20):
        crew.pass_(15)
        one.settle()
        assert not other.take_slot()
    crew.pass_(59)
    still = other.take_slot()
    crew.pass_(2)

    assert (still, other.take_slot()) == (False, True)


def test_a_worker_counts_the_error_of_the_clock_as_passed() -> None:
    """A slice is not used after the time that the store's clock may have reached."""
    crew = Crew(RunLimits(requests_per_minute=10), 1)
    (limit,), (engine,) = crew.limits, crew.engines
    assert limit.take_step() == 0
    before = crew.writes

    engine.now = Instant(engine.now.clock, engine.now.at + 3 * SECOND, 3 * SECOND)
    limit.take_step()

    assert crew.writes == before + 1


@pytest.mark.parametrize("given", [{"runs": 0}, {"requests_per_minute": 1.5}, {"tokens_per_minute": True}])
def test_a_limit_is_a_whole_number_above_zero(given: dict[str, Any]) -> None:
    """Nothing is declared with another."""
    with raises(Invalid, "run_limit_invalid", limit=next(iter(given))):
        RunLimits(**given)


def test_the_limits_of_an_agent_are_run_limits() -> None:
    """Nothing is declared with anything else."""
    with raises(Invalid, "agent_field_invalid", field="limits"):
        Agent("planner", limits=4)  # pyright: ignore[reportArgumentType]
