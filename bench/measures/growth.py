"""Whether a long history slows writing down: the last turns of a long one against the first of a new one.

Both are written in the same minutes, turn by turn beside each other, so the machine's own
ups and downs fall on both; the baseline does the same, to show what SQLite itself does.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.bare import Bare
from bench.ground import Ground, median, take_turns
from bench.ours import Face
from bench.table import Result
from bench.workload import Turn, make_turns


def measure(ground: Ground) -> Iterable[Result]:
    sizes = ground.sizes
    turns = make_turns(sizes.history, keys=sizes.keys)
    old = ground.fresh()
    fill(old, turns[: -sizes.window * sizes.repetitions])
    ratios: list[float] = []
    bare: list[float] = []
    for repetition in range(sizes.repetitions):
        ours, theirs = _repetition(ground, old, turns, repetition)
        ratios.append(ours)
        bare.append(theirs)
    ground.drop(old)
    yield Result(
        measure=f"speed of the last {sizes.window} of {sizes.history:,} turns",
        ours=median(ratios),
        baseline=1.0,
        baseline_is=f"first {sizes.window}",
        unit="",
        given_ratio=median(ratios),
        spread=(min(ratios), max(ratios)),
        bound="at least",
        bar=0.95,
    )
    yield Result(
        measure=f"the same, bare SQLite against its own first {sizes.window}",
        baseline=median(bare),
        unit="×",
    )


def fill(directory: Path, turns: Iterable[Turn]) -> None:
    """Write turns to both stores without waiting for the disk."""
    for writer in (Face(directory, durable=False), Bare(directory, durable=False)):
        for turn in turns:
            writer.turn(turn)
        writer.close()


def _repetition(ground: Ground, old: Path, turns: list[Turn], repetition: int) -> tuple[float, float]:
    """How fast the old stores are against new ones: ours, and the baseline's."""
    sizes = ground.sizes
    young = ground.fresh()
    stores = Face(young), Face(old), Bare(young), Bare(old)
    left = len(turns) - sizes.window * (sizes.repetitions - repetition)
    first, last = turns[: sizes.window], turns[left : left + sizes.window]
    works = [
        lambda at: stores[0].turn(first[at]),
        lambda at: stores[1].turn(last[at]),
        lambda at: stores[2].turn(first[at]),
        lambda at: stores[3].turn(last[at]),
    ]
    times = take_turns(works, range(sizes.window))
    for store in stores:
        store.close()
    ground.drop(young)
    ours_young, ours_old, bare_young, bare_old = (median(each.wall) for each in times)
    return ours_young / ours_old, bare_young / bare_old
