"""A process that opens a store, runs its agent once, and prints the processor time of that, in seconds.

The time of the whole process is printed after it: imports and the opening of the store are part of a first run.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.agents import Running
from bench.workload import make_turns


def main(directory: str, window: str) -> None:
    turn = make_turns(1, keys=100, seed=time.time_ns() % 1_000_000)[0]
    start = time.process_time()
    agent = Running(Path(directory), durable=False, window=int(window))
    agent.turn(turn)
    print(time.process_time() - start, time.process_time())
    agent.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
