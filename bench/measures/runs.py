"""What running an agent costs beside its model and tools: one run after another, long histories, many at once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.agents import Running
from bench.bare import Bare
from bench.ground import Ground, median, take_turns
from bench.ours import Face
from bench.table import Result
from bench.workload import Turn, make_turns

_EACH = 4  # runs of each agent, where many go on at once
_WINDOW = 6_000  # tokens of a model that is shown the last turns of a conversation, long or short
_SHORT = 25  # turns, which make a hundred commits


def measure(ground: Ground) -> Iterable[Result]:
    yield from _one_after_another(ground)
    yield _long(ground)
    yield from _first(ground)
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
        bound="at least",
        bar=0.6,
    )
    yield Result(measure="processor time of a run", ours=median(processor), baseline=None, unit="µs")


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


def _first(ground: Ground) -> Iterable[Result]:
    """The first run of a process on a long and on a short thread, for a model that is shown as much of both."""
    turns = max(_SHORT, ground.sizes.history // 2)
    short, long = ground.fresh(), ground.fresh()
    for directory, count in ((short, _SHORT), (long, turns)):
        _say(directory, make_turns(count, keys=ground.sizes.keys))
    taken: dict[Path, list[list[float]]] = {short: [], long: []}
    for _ in range(2 * ground.sizes.repetitions):
        for directory, found in taken.items():
            copy = ground.fresh()
            shutil.copytree(directory, copy, dirs_exist_ok=True)
            found.append(_first_run(copy))
            ground.drop(copy)
    ground.drop(short, long)
    for at, what in enumerate(("first run of a process, without its imports", "first run of a process")):
        ours, baseline = (median(each[at] for each in taken[directory]) for directory in (long, short))
        yield Result(
            measure=f"{what}: {4 * turns:,} commits",
            ours=1e3 * ours,
            baseline=1e3 * baseline,
            baseline_is=f"{4 * _SHORT} commits",
            unit="ms",
            bound="at most" if at else None,
            bar=1.5 if at else None,
        )


def _first_run(directory: Path) -> list[float]:
    command = [sys.executable, "-m", "bench.children.first_run", str(directory), str(_WINDOW)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(each) for each in said.split()]


def _say(directory: Path, turns: Iterable[Turn]) -> None:
    writer = Face(directory, durable=False)
    for turn in turns:
        writer.turn(turn)
    writer.close()


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
        bar=1.4,
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
