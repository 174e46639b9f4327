"""What a dry run of a switch costs on a long conversation: checkpoint, plan and render, against a short one.

Each has two messages and a tool call a turn.  A new handle and an empty memory of commits every time, so
that nothing is remembered from the time before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import perdure
from bench.ground import Ground, median
from bench.table import Result
from perdure import Agent, Store, Thread, testing

_SHORT, _TIMES = 50, 20
_TO = "anthropic:claude-sonnet-5-5"
_WORDS = "Please look at the figures of number {}, and tell me whether anything in them is out of order."


def measure(ground: Ground) -> Iterable[Result]:
    long = max(_SHORT, min(1_000, ground.sizes.turns * ground.sizes.repetitions))
    directory = ground.fresh()
    _fill(directory, "short", min(_SHORT, ground.sizes.turns))
    _fill(directory, "long", long if ground.sizes.turns > _SHORT else ground.sizes.turns)
    with perdure.open(directory / "switches.db") as store:
        yield _result(store, f"checkpoint of a thread of {long:,} turns", _derive)
        yield _result(store, "checkpoint, plan and render of it", _check)
    ground.drop(directory)


def _result(store: Store, name: str, work: Callable[[Thread], object]) -> Result:
    times: dict[str, list[float]] = {"short": [], "long": []}
    for _ in range(_TIMES):
        for id, taken in times.items():
            thread = store.thread(id, agent="helper")
            begun = time.perf_counter()
            work(thread)
            taken.append(time.perf_counter() - begun)
    return Result(
        measure=name,
        ours=1e3 * median(times["long"]),
        baseline=1e3 * median(times["short"]),
        baseline_is=f"{_SHORT} turns",
        unit="ms",
        bound="at most",
        bar=3.0,
    )


def _derive(thread: Thread) -> object:
    return thread.checkpoint(to=_TO)


def _check(thread: Thread) -> object:
    return thread.check_switch(_TO)


def _fill(directory: Path, id: str, turns: int) -> None:
    @perdure.tool(effect="read_only")
    def look(number: int) -> str:
        """Look a number up."""
        return f"Figures of {number}: 12, 14, 15, 13, 12, 11."

    with perdure.open(directory / "switches.db", durability="process_crash") as store:
        for number in range(turns):
            script = testing.Script(
                testing.use("look", number=number),
                testing.say(f"Nothing in number {number} is out of order."),
            )
            store.thread(id, agent=Agent("helper", tools=[look]).on(script)).run(_WORDS.format(number))
