"""A process that opens a store and runs its agent once, and prints the processor time of that in milliseconds."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import perdure
from bench.agents import Running
from bench.sync import slow_syncs_as_told
from bench.workload import make_turns

_WINDOW = 8_000  # tokens of the model: without a limit it would be shown the whole thread


def main(directory: str) -> None:
    slow_syncs_as_told()
    turns = make_turns(2, keys=3, seed=1_000)
    with perdure.open(Path(directory) / "scratch.db") as scratch:
        Running(Path(directory), store=scratch).turn(turns[0])
    start = time.process_time()
    running = Running(Path(directory), window=_WINDOW)
    running.turn(turns[1])
    taken = time.process_time() - start
    running.close()
    print(1e3 * taken)


if __name__ == "__main__":
    main(*sys.argv[1:])
