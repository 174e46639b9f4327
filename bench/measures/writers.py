"""Eight writers at once: on threads of one process, and in processes of their own.

The baseline has a connection for each.  Each writer has a conversation of its own in the
one store.  What is timed is from the starting shot until the last has finished.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bench.bare import Bare
from bench.ground import Ground, Writer, median
from bench.ours import Face
from bench.table import Result
from bench.workload import Turn, make_turns

_KINDS = ("ours", "bare")


def measure(ground: Ground) -> Iterable[Result]:
    yield _compare(ground, "threads", _on_threads, bar=ground.bar({0.1: 1.0}))
    yield _compare(ground, "processes", _in_processes, bar=ground.bar({0.1: 0.7}))


def _compare(
    ground: Ground, what: str, run: Callable[[Ground, str, Path], float], *, bar: float | None
) -> Result:
    """Alternate between the two; the rate of each repetition, and the median of the ratios."""
    rates: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    turns = ground.sizes.writers * ground.sizes.writer_turns
    for repetition in range(ground.sizes.repetitions):
        for kind in _KINDS if repetition % 2 else reversed(_KINDS):
            directory = ground.fresh()
            rates[kind].append(turns / run(ground, kind, directory))
            ground.drop(directory)
    ratios = [ours / bare for ours, bare in zip(rates["ours"], rates["bare"], strict=True)]
    return Result(
        measure=f"{ground.sizes.writers} {what} writing",
        ours=median(rates["ours"]),
        baseline=median(rates["bare"]),
        unit="turns/s",
        given_ratio=median(ratios),
        spread=(min(ratios), max(ratios)),
        bound="at least",
        bar=bar,
    )


def _on_threads(ground: Ground, kind: str, directory: Path) -> float:
    writers = _writers(kind, directory, ground.sizes.writers)
    turns = [_turns(ground, at) for at in range(len(writers))]
    shot = threading.Barrier(len(writers) + 1)
    threads = [
        threading.Thread(target=write, args=(writer, mine, shot.wait))
        for writer, mine in zip(writers, turns, strict=True)
    ]
    for thread in threads:
        thread.start()
    shot.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - start
    for writer in reversed(writers):
        writer.close()
    return taken


def _writers(kind: str, directory: Path, count: int) -> Sequence[Writer]:
    if kind == "bare":
        return [Bare(directory, thread=f"t{at}") for at in range(count)]
    first = Face(directory, thread="t0")
    return [first, *(Face(directory, thread=f"t{at}", store=first.store) for at in range(1, count))]


def write(writer: Writer, turns: Sequence[Turn], wait: Callable[[], object]) -> None:
    """Write turns after the starting shot."""
    wait()
    for turn in turns:
        writer.turn(turn)


def _turns(ground: Ground, at: int) -> list[Turn]:
    return make_turns(ground.sizes.writer_turns, keys=ground.sizes.keys, seed=at)


def _in_processes(ground: Ground, kind: str, directory: Path) -> float:
    children = [_start(ground, kind, directory, at) for at in range(ground.sizes.writers)]
    for child in children:
        _expect(child, b"ready\n")
    start = time.perf_counter()
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.flush()
    for child in children:
        _expect(child, b"done\n")
    taken = time.perf_counter() - start
    for child in children:
        child.communicate()
    return taken


def _start(ground: Ground, kind: str, directory: Path, at: int) -> subprocess.Popen[bytes]:
    given = (kind, str(directory), str(at), str(ground.sizes.writer_turns), str(ground.sizes.keys))
    command = [sys.executable, "-m", "bench.children.write", *given]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _expect(child: subprocess.Popen[bytes], line: bytes) -> None:
    assert child.stdout is not None
    answer = child.stdout.readline()
    assert answer == line, f"a writing process failed: {answer!r}"
