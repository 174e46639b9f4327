"""The most memory that a process needs to read, or to verify, a large store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from bench.ground import Ground
from bench.ours import Face
from bench.table import Result
from bench.workload import make_turns

_TURNS_AT_ONCE = 500
_BAR = 150_000_000


def measure(ground: Ground) -> Iterable[Result]:
    directory = ground.fresh()
    _fill(directory, ground)
    for doing in ("read", "verify"):
        ground.tell(f"memory: {doing}")
        yield Result(
            measure=f"memory to {doing} {ground.sizes.memory_bytes / 1e6:,.0f} MB",
            ours=_peak(doing, directory),
            unit="bytes",
            bound="at most",
            bar=_BAR,
        )
    ground.drop(directory)


def _fill(directory: Path, ground: Ground) -> None:
    """Several threads, round and round, until the store is large enough."""
    first = Face(directory, thread="t0", durable=False)
    faces = [first, *(Face(directory, thread=f"t{at}", store=first.store) for at in range(1, 8))]
    round_number = 0
    while first.path.stat().st_size < ground.sizes.memory_bytes:
        turns = make_turns(_TURNS_AT_ONCE, keys=ground.sizes.many_keys, seed=round_number)
        for turn in turns:
            faces[round_number % len(faces)].turn(turn)
        round_number += 1
    first.close()


def _peak(doing: str, directory: Path) -> float:
    command = [sys.executable, "-m", "bench.children.read", doing, str(directory / "perdure.db")]
    return float(subprocess.run(command, check=True, capture_output=True).stdout)
