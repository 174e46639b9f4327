"""Loading a thread whole: every message and the latest state, in a process that knows nothing yet.

The baseline selects the same messages and the same state and decodes their JSON with the standard library's module,
as one would who wrote the tables by hand.  Ours checks what it reads against its digests.
Each load opens the store again, so nothing is cached but by the operating system.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from bench.bare import Bare
from bench.ground import Ground, median, take_turns
from bench.measures.growth import fill
from bench.ours import Face
from bench.table import Result
from bench.workload import STEPS, make_turns


def measure(ground: Ground) -> Iterable[Result]:
    sizes = ground.sizes
    directory = ground.fresh()
    fill(directory, make_turns(sizes.stored, keys=sizes.keys))
    counts = _load(directory), _load_bare(directory)
    assert counts[0] == counts[1], counts
    assert counts[0][0] == STEPS * sizes.stored, counts
    works = [lambda _: _load(directory), lambda _: _load_bare(directory)]
    ours, bare = take_turns(works, range(sizes.loads))
    ground.drop(directory)
    yield _result(f"load of {sizes.stored:,} turns whole", ours.wall, bare.wall, bar=2.0)
    yield _result("the same, CPU, user and system", ours.cpu, bare.cpu, bar=None)


def _result(name: str, ours: list[float], bare: list[float], *, bar: float | None) -> Result:
    return Result(
        measure=name,
        ours=1e3 * median(ours),
        baseline=1e3 * median(bare),
        unit="ms",
        bound="at most",
        bar=bar,
    )


def _load(directory: Path) -> tuple[int, int]:
    """How many messages and keys there were."""
    face = Face(directory)
    messages = face.thread.transcript(limit=None)
    state = face.thread.values()
    face.close()
    return len(messages), len(state)


def _load_bare(directory: Path) -> tuple[int, int]:
    bare = Bare(directory)
    messages, state = bare.load()
    bare.close()
    return len([json.loads(body) for body in messages]), len({key: json.loads(value) for key, value in state})
