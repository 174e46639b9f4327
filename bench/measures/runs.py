"""What running an agent costs beside its model and tools: one run after another, long histories, many at once."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.agents import Running
from bench.bare import Bare
from bench.ground import Ground, median, take_turns
from bench.table import Result
from bench.workload import Turn, make_turns

_EACH = 4  # runs of each agent, where many go on at once


def measure(ground: Ground) -> Iterable[Result]:
    yield from _one_after_another(ground)
    yield _long(ground)
    yield _side_by_side(ground)


def _one_after_another(ground: Ground) -> Iterable[Result]:
    ratios: list[float] = []
    ours: list[float] = []
    bare: list[float] = []
    processor: list[float] = []
    for seed in range(ground.sizes.repetitions):
        turns = make_turns(ground.sizes.turns, keys=ground.sizes.keys, seed=seed)
        directory = ground.fresh()
        writers = (Running(directory), Bare(directory))
        mine, theirs = take_turns([writer.turn for writer in writers], turns)
        for writer in writers:
            writer.close()
        ground.drop(directory)
        ratios.append(theirs.total / mine.total)
        ours.append(len(turns) / mine.total)
        bare.append(len(turns) / theirs.total)
        processor.append(1e6 * sum(mine.cpu) / len(turns))
    yield Result(
        measure="runs of an agent, four writes each",
        ours=median(ours),
        baseline=median(bare),
        unit="turns/s",
        given_ratio=median(ratios),
        spread=(min(ratios), max(ratios)),
    )
    yield Result(measure="CPU of such a run, user and system", ours=median(processor) / 1e3, unit="ms")


def _long(ground: Ground) -> Result:
    sizes = ground.sizes
    turns = make_turns(sizes.history, keys=sizes.keys)
    old = ground.fresh()
    _fill(old, turns[: -sizes.window * sizes.repetitions])
    ratios: list[float] = []
    for repetition in range(sizes.repetitions):
        young = ground.fresh()
        stores = Running(young), Running(old)
        left = len(turns) - sizes.window * (sizes.repetitions - repetition)
        works = [
            lambda at, store=stores[0]: store.turn(turns[at]),
            lambda at, store=stores[1], left=left: store.turn(turns[left + at]),
        ]
        first, last = (median(each.wall) for each in take_turns(works, range(sizes.window)))
        for store in stores:
            store.close()
        ground.drop(young)
        ratios.append(first / last)
    ground.drop(old)
    return Result(
        measure=f"runs: the last {sizes.window} of {sizes.history:,}",
        ours=median(ratios),
        baseline=1.0,
        baseline_is=f"first {sizes.window}",
        unit="",
        given_ratio=median(ratios),
        spread=(min(ratios), max(ratios)),
        bound="at least",
        bar=0.95,
    )


def _fill(directory: Path, turns: Iterable[Turn]) -> None:
    writer = Running(directory, durable=False)
    for turn in turns:
        writer.turn(turn)
    writer.close()


def _side_by_side(ground: Ground) -> Result:
    rates: dict[int, list[float]] = {1: [], ground.sizes.runs: []}
    for _ in range(ground.sizes.repetitions):
        for count, found in rates.items():
            directory = ground.fresh()
            found.append(_rate(directory, count, ground.sizes.runs))
            ground.drop(directory)
    one, many = rates[1], rates[ground.sizes.runs]
    ratios = [side_by_side / alone for side_by_side, alone in zip(many, one, strict=True)]
    return Result(
        measure=f"{ground.sizes.runs} runs at once",
        ours=median(many),
        baseline=median(one),
        baseline_is="one at a time",
        unit="turns/s",
        given_ratio=median(ratios),
        spread=(min(ratios), max(ratios)),
        bound="at least",
        bar=ground.bar({2.0: 3.0}),
    )


def _rate(directory: Path, count: int, runs: int) -> float:
    """Runs per second where `count` of them go on at any moment, each on a thread of its own."""
    first = Running(directory, thread="t0")
    agents = [first, *(Running(directory, thread=f"t{at}", store=first.store) for at in range(1, runs))]
    turns = make_turns(_EACH, keys=10)

    def work(agent: Running) -> None:
        for turn in turns:
            agent.turn(turn)

    with ThreadPoolExecutor(count) as tool_threads:
        start = time.perf_counter()
        list(tool_threads.map(work, agents))
        taken = time.perf_counter() - start
    first.close()
    return len(agents) * _EACH / taken
