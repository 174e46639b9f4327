"""Where and how large a measurement is: sizes, directories, and fair timing.

Contestants take turns, one piece of work each, so that whatever else the machine does
at the same time falls on all of them alike; who goes first changes each time.  A repetition
starts from empty stores.  Figures are medians over repetitions.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from bench.workload import Turn

__all__ = ["DEEP", "FULL", "QUICK", "TINY", "Ground", "Sizes", "Times", "Writer", "median", "take_turns"]

T = TypeVar("T")


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured."""

    repetitions: int
    turns: int  # of one repetition of the main measure
    window: int = 100  # turns compared at the beginning and at the end of a long history
    history: int  # turns of a long history
    stored: int = 1_000  # turns after which bytes are counted
    keys: int = 100
    many_keys: int = 1_000
    huge_keys: int = 100_000
    puts: int  # single writes compared
    loads: int
    writers: int = 8
    writer_turns: int
    runs: int = 100  # at once
    imports: int
    memory_bytes: int
    peer_turns: int
    one_tool_runs: int  # whose processor time is counted, beside a peer's
    commits: int = 20_000  # of the thread that a new process runs on
    few_commits: int = 100


FULL = Sizes(
    repetitions=5,
    turns=1_000,
    history=10_000,
    puts=500,
    loads=15,
    writer_turns=100,
    imports=21,
    memory_bytes=100_000_000,
    peer_turns=100,
    one_tool_runs=200,
)
QUICK = msgspec.structs.replace(
    FULL,
    repetitions=3,
    turns=250,
    history=2_000,
    puts=150,
    loads=7,
    writer_turns=30,
    imports=9,
    memory_bytes=20_000_000,
    peer_turns=20,
    one_tool_runs=60,
    commits=2_000,
)
DEEP = msgspec.structs.replace(FULL, memory_bytes=1_000_000_000)
TINY = Sizes(
    repetitions=1,
    turns=3,
    window=2,
    history=10,
    stored=5,
    keys=5,
    many_keys=10,
    huge_keys=500,
    puts=5,
    loads=1,
    writers=2,
    runs=3,
    writer_turns=2,
    imports=1,
    memory_bytes=50_000,
    peer_turns=2,
    one_tool_runs=2,
    commits=8,
    few_commits=4,
)


class Writer(Protocol):
    """A contestant."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path: ...
    def turn(self, turn: Turn) -> None: ...
    def close(self) -> None: ...


class Times(msgspec.Struct):
    """What the pieces of work of one contestant took, in seconds."""

    wall: list[float]
    cpu: list[float]

    @property
    def total(self) -> float:
        return sum(self.wall)


class Ground:
    """A directory to measure in, the sizes, and what a sync takes there."""

    def __init__(
        self, directory: Path, sizes: Sizes, tell: Callable[[str], None], *, sync_ms: float | None = None
    ) -> None:
        self.sizes = sizes
        self.sync_ms = sync_ms  # None: what the disk takes
        self.tell = tell
        self._directory = directory
        self._numbers = count()

    def fresh(self) -> Path:
        """A new, empty directory."""
        path = self._directory / f"{next(self._numbers):03d}"
        path.mkdir(parents=True)
        return path

    def bar(self, bars: Mapping[float, float]) -> float | None:
        """The one of `bars` that is set for the milliseconds of a sync here; none is for a disk of unknown speed."""
        return None if self.sync_ms is None else bars.get(self.sync_ms)

    def drop(self, *directories: Path) -> None:
        """Remove directories that are no longer needed: a long run must not fill the disk."""
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)


def take_turns(works: Sequence[Callable[[T], object]], pieces: Iterable[T]) -> list[Times]:
    """What each of `works` takes for each of `pieces`, all of them doing one piece before the next."""
    times = [Times([], []) for _ in works]
    order = list(range(len(works)))
    for piece in pieces:
        for at in order:
            cpu, wall = time.process_time(), time.perf_counter()
            works[at](piece)
            times[at].wall.append(time.perf_counter() - wall)
            times[at].cpu.append(time.process_time() - cpu)
        order.append(order.pop(0))
    return times


def median(values: Iterable[float]) -> float:
    """The median."""
    return statistics.median(values)
