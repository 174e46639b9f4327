"""One of several processes that write: says `ready`, waits for a line, writes its turns, says `done`."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.bare import Bare
from bench.ground import Writer
from bench.ours import Face
from bench.sync import slow_syncs_as_told
from bench.workload import make_turns


def main(kind: str, directory: str, number: str, turns: str, keys: str) -> None:
    slow_syncs_as_told()
    writer: Writer = (Bare if kind == "bare" else Face)(Path(directory), thread=f"t{number}")
    mine = make_turns(int(turns), keys=int(keys), seed=int(number))
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in mine:
        writer.turn(turn)
    print("done", flush=True)
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
