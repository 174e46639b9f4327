"""The first run of a process on a long thread against one on a short thread, each in a process of its own.

Counted is the processor time from opening the store until the run has ended.  The process ran an agent on another
store before, so that modules are imported and the difference is what the thread's length costs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from bench.agents import Running
from bench.ground import Ground, median
from bench.table import Result
from bench.workload import STEPS, make_turns


def measure(ground: Ground) -> Iterable[Result]:
    sizes = ground.sizes
    counts = sizes.commits, sizes.few_commits
    stores = [_filled(ground, commits) for commits in counts]
    times: list[list[float]] = [[], []]
    for _ in range(sizes.loads):
        for taken, store in zip(times, stores, strict=True):
            taken.append(_first_run(ground, store))
    ground.drop(*stores)
    yield Result(
        measure=f"first run of a process on a thread of {sizes.commits:,} commits, CPU",
        ours=median(times[0]),
        baseline=median(times[1]),
        baseline_is=f"{sizes.few_commits:,} commits",
        unit="ms",
        bound="at most",
        bar=1.5,
    )


def _filled(ground: Ground, commits: int) -> Path:
    directory = ground.fresh()
    writer = Running(directory, durable=False)
    for turn in make_turns(commits // STEPS, keys=ground.sizes.keys):
        writer.turn(turn)
    writer.close()
    return directory


def _first_run(ground: Ground, store: Path) -> float:
    """Milliseconds of one process; each has a copy, so that none runs after another."""
    copy = ground.fresh() / "store"
    shutil.copytree(store, copy)
    command = [sys.executable, "-m", "bench.children.first_run", str(copy)]
    taken = float(subprocess.run(command, check=True, capture_output=True).stdout)
    ground.drop(copy.parent)
    return taken
