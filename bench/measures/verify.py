"""Verifying: how many bytes of a store are checked in a second of one core, and whether a longer history takes longer.

Both are processor time: a check reads the store once, from the cache of the operating system, and never waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import perdure
from bench.ground import Ground, median, take_turns
from bench.ours import Face
from bench.table import Result
from bench.workload import STEPS, make_turns

_TURNS_AT_ONCE = 1_000


def measure(ground: Ground) -> Iterable[Result]:
    sizes = ground.sizes
    long, short = ground.fresh(), ground.fresh()
    _fill(long, sizes.history, sizes.keys)
    _fill(short, max(1, sizes.history // 10), sizes.keys)
    repetitions = range(max(1, sizes.repetitions // 2))
    times = take_turns([lambda _: _verify(long), lambda _: _verify(short)], repetitions)
    speeds = [
        _bytes(directory) / 1e6 / median(each.cpu)
        for directory, each in zip((long, short), times, strict=True)
    ]
    yield Result(
        measure=f"verify a history of {sizes.history * STEPS:,} commits, one core",
        ours=speeds[0],
        unit="MB/s",
        bound="at least",
        bar=10,
    )
    yield Result(
        measure="the same against a tenth of the history",
        ours=speeds[0],
        baseline=speeds[1],
        baseline_is="a tenth",
        unit="MB/s",
    )
    ground.drop(long, short)


def _fill(directory: Path, turns: int, keys: int) -> None:
    face = Face(directory, durable=False)
    for begun in range(0, turns, _TURNS_AT_ONCE):
        for turn in make_turns(min(_TURNS_AT_ONCE, turns - begun), keys=keys, seed=begun):
            face.turn(turn)
    face.close()


def _bytes(directory: Path) -> int:
    return (directory / "perdure.db").stat().st_size


def _verify(directory: Path) -> None:
    with perdure.open(directory / "perdure.db", read_only=True) as store:
        report = store.verify()
    if not report.ok:
        raise AssertionError(report.faults)
