"""Loading: the latest state and the last messages, in a process that knows nothing yet.

Each load opens the store again, so nothing is cached but by the operating system.  A past
state is read in the same way, at commits spread over the whole history.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import perdure
from bench.ground import Ground, median, take_turns
from bench.measures.growth import fill
from bench.ours import Face
from bench.table import Result
from bench.workload import make_turns

MESSAGES = 50


def measure(ground: Ground) -> Iterable[Result]:
    sizes = ground.sizes
    turns = make_turns(sizes.history, keys=sizes.keys)
    long, short = ground.fresh(), ground.fresh()
    fill(long, turns)
    fill(short, turns[: sizes.window])
    times = take_turns([lambda _: _load(long), lambda _: _load(short)], range(sizes.loads))
    at_long, at_short = (1e3 * median(each.wall) for each in times)
    yield Result(
        measure=f"load state and {MESSAGES} messages at {sizes.history:,} turns",
        ours=at_long,
        baseline=at_short,
        baseline_is=f"at {sizes.window}",
        unit="ms",
        bound="at most",
        bar=1.5,
    )
    yield _past(ground, long)
    ground.drop(long, short)


def _load(directory: Path) -> None:
    face = Face(directory)
    _read_state(face.thread.at())
    face.thread.transcript(limit=MESSAGES)
    face.close()


def _past(ground: Ground, directory: Path) -> Result:
    """Commits at which every key has been written are compared with the head."""
    commits = ground.sizes.history * 4
    full = commits // 4 if commits >= 1_000 else 0
    step = max(1, (commits - full) // max(1, ground.sizes.loads))
    backs = list(range(step, commits - full, step)) or [1]
    times = take_turns([lambda back: _visit(directory, back), lambda _: _visit(directory, 0)], backs)
    past, head = (1e3 * median(each.wall) for each in times)
    return Result(
        measure="state at a past commit",
        ours=past,
        baseline=head,
        baseline_is="at head",
        unit="ms",
        bound="at most",
        bar=1.5,
    )


def _visit(directory: Path, back: int) -> None:
    face = Face(directory)
    _read_state(face.thread.at(f"HEAD~{back}"))
    face.close()


def _read_state(view: perdure.View) -> None:
    for path in view.paths():
        view.get(path)
