"""Durable turns per second, and the processor time of one turn."""

from __future__ import annotations

from collections.abc import Iterable

from bench.bare import Bare
from bench.ground import Ground, Times, median, take_turns
from bench.ours import EngineAlone, Face
from bench.straight import Straight
from bench.table import Result
from bench.workload import make_turns


def measure(ground: Ground) -> Iterable[Result]:
    repetitions = [_repetition(ground, seed) for seed in range(ground.sizes.repetitions)]
    face, engine, straight, bare = zip(*repetitions, strict=True)
    yield _speed("durable turns", face, bare, bar=ground.bar({0.1: 0.55, 2.0: 0.8}))
    yield _speed("durable turns, the engine alone", engine, bare, bar=None)
    yield _speed(f"durable turns, {Straight.name}", straight, bare, bar=None)
    yield _processor("CPU of a turn, user and system", face, bare)
    yield _processor("the same, the engine alone", engine, bare)
    yield _processor(f"the same, {Straight.name}", straight, bare)


def _repetition(ground: Ground, seed: int) -> list[Times]:
    turns = make_turns(ground.sizes.turns, keys=ground.sizes.keys, seed=seed)
    directory = ground.fresh()
    writers = (Face(directory), EngineAlone(directory, turns), Straight(directory), Bare(directory))
    times = take_turns([writer.turn for writer in writers], turns)
    for writer in writers:
        writer.close()
    ground.drop(directory)
    return times


def _speed(name: str, ours: tuple[Times, ...], bare: tuple[Times, ...], *, bar: float | None) -> Result:
    ratios = [theirs.total / mine.total for mine, theirs in zip(ours, bare, strict=True)]
    return Result(
        measure=name,
        ours=median(len(each.wall) / each.total for each in ours),
        baseline=median(len(each.wall) / each.total for each in bare),
        unit="turns/s",
        given_ratio=median(ratios),
        spread=(min(ratios), max(ratios)),
        bound="at least",
        bar=bar,
    )


def _processor(name: str, ours: tuple[Times, ...], bare: tuple[Times, ...]) -> Result:
    mine = median(1e3 * sum(each.cpu) / len(each.cpu) for each in ours)
    theirs = median(1e3 * sum(each.cpu) / len(each.cpu) for each in bare)
    return Result(measure=name, ours=mine, baseline=theirs, unit="ms")
