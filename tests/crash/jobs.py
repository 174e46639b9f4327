"""What other processes do in the hard tests: race, write without end, and die at a given point.

Everything here runs in a process of its own, which may change the program that it runs to
the worse: that is what controls and named points are made of.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import Thread as Worker
from typing import Literal

import perdure
from perdure.engines.contract import CellWrite, Hold, Move, Receipt
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.commit import apply
from perdure.errors import PerdureError, StaleHead
from perdure.model.head import Head
from perdure.testing.engines.builders import write
from tests.crash import points, turns
from tests.crash.historian import Seen, Wrote
from tests.crash.processes import Pipe

__all__ = [
    "Log",
    "apply_together",
    "be_blind",
    "change_together",
    "turn_until_killed",
    "write_and_read",
    "write_two_cells",
]

GATE_SECONDS = 60.0


def be_blind() -> None:
    """Move heads from wherever they stand: what a store without compare-and-set does."""

    def check_nothing(move: Move, hold: Hold | None) -> None:
        pass

    apply.check_move = check_nothing


def apply_together(pipe: Pipe, path: str, gate: Barrier) -> None:
    """Apply each write that comes when the other process has one too, and answer its outcome."""
    engine = SqliteEngine(Path(path))
    while True:
        wanted = pipe.recv()
        gate.wait(GATE_SECONDS)
        try:
            answer: Receipt | StaleHead = engine.apply(wanted)
        except StaleHead as stale:
            answer = stale
        pipe.send(answer)


def change_together(pipe: Pipe, path: str, gate: Barrier, rounds: int, how: str = "") -> None:
    """Count on one thread in as many blocks as there are rounds, each entered and left together with the other."""
    if how == "blind":
        be_blind()
    thread = perdure.open(path).thread("trip-42", agent="planner")
    answers: list[Head | StaleHead] = []
    for turn in range(rounds):
        try:
            with thread.change(f"turn {turn}") as change:
                gate.wait(GATE_SECONDS)
                change.put("/count.json", change.get("/count.json", default=0) + 1)
            assert change.head is not None
            answers.append(change.head)
        except StaleHead as stale:
            answers.append(stale)
        gate.wait(GATE_SECONDS)
    pipe.send(answers)


def write_two_cells(pipe: Pipe, path: str, times: int, written: Synchronized[int]) -> None:
    """Write two cells together so many times, and tell in shared memory how often that was done."""
    engine = SqliteEngine(Path(path))
    for number in range(times):
        cells = (CellWrite(name=name, expected=number, value=b"1") for name in ("a", "b"))
        engine.apply(write(f"both {number}", *cells))
        written.value = number + 1
    engine.close()
    pipe.send("done")


def turn_until_killed(
    pipe: Pipe,
    path: str,
    first: int,
    point: str,
    after: int,
    how: str = "",
    durability: Literal["power_loss", "process_crash"] = "power_loss",
) -> None:
    """Do turns from number `first` on, telling of each when it is acknowledged, until the `after`-th time at `point`.

    The hasty one tells of a turn before it makes it.
    """
    points.often()
    with perdure.open(path, durability=durability) as store:
        points.arm(store, point, after)
        for name, step in turns.turns(first):
            if how == "hasty":
                pipe.send((name, turns.promised(name)))
            pipe.send((name, step(store)))


@dataclass
class Log:
    """What the threads of one process say."""

    wrote: list[Wrote] = field(default_factory=list[Wrote])
    seen: list[Seen] = field(default_factory=list[Seen])
    stale: int = 0
    errors: list[str] = field(default_factory=list[str])
    added: dict[str, int] = field(default_factory=dict[str, int])  # by each rebasing writer
    apart: dict[str, list[Wrote]] = field(
        default_factory=dict[str, list[Wrote]]
    )  # by thread, each of one writer


TURNS_MIN = 12  # of each writer, however busy the machine is


def write_and_read(pipe: Pipe, path: str, name: str, threads: int, seconds: float, how: str = "") -> None:
    """Write to and read from two threads of the store with so many threads for so long, and send the log.

    On `hot` each writer counts up one number and leaves a token, and tries again when another writer
    else came first.  On `side` everybody counts a number of their own, rebasing over the others.
    With "apart" each writer also counts on a thread of its own.
    Checkpoints and the sorting-in of keys happen often in between.
    """
    points.often()
    if how == "blind":
        be_blind()
    log = Log()
    with perdure.open(path) as store:
        until = time.monotonic() + seconds
        workers = [
            Worker(target=_write_and_read, args=(store, f"{name}.{number}", until, log, how))
            for number in range(threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    pipe.send(log)


def _write_and_read(store: perdure.Store, name: str, until: float, log: Log, how: str) -> None:
    hot, side, chance = store.thread("hot"), store.thread("side"), random.Random(name)
    turn, apart = 0, store.thread(f"apart.{name}", agent="planner") if how == "apart" else None
    while time.monotonic() < until or turn < TURNS_MIN:
        turn += 1
        try:
            match chance.randrange(4):
                case 0 if apart is not None:
                    _count_up(apart, f"{name}:{turn}", log.apart.setdefault(apart.id, []))
                case 0 | 1:
                    _count_up(hot, f"{name}:{turn}", log.wrote)
                case 2:
                    _count_own(side, name, log)
                case _:
                    log.seen.append(_look(hot, name, chance))
        except StaleHead:
            log.stale += 1
        except PerdureError as error:
            log.errors.append(f"{type(error).__name__}: {error}")


def _count_up(thread: perdure.Thread, token: str, wrote: list[Wrote]) -> None:
    with thread.change("count") as change:
        number = change.get("/count.json", default=0) + 1
        change.put("/count.json", number)
        change.put(f"/tokens/{number}", token)
    assert change.head is not None
    assert change.head.commit is not None
    wrote.append(Wrote(change.head.version, change.head.commit, token))


def _count_own(thread: perdure.Thread, name: str, log: Log) -> None:
    with thread.change("own count", on_conflict="rebase") as change:
        change.put(f"/own/{name}", change.get(f"/own/{name}", default=0) + 1)
    log.added[name] = log.added.get(name, 0) + 1


def _look(thread: perdure.Thread, name: str, chance: random.Random) -> Seen:
    view = thread.at()
    count = view.get("/count.json", default=0)
    versions = {count + 1, *(chance.randint(1, count) for _ in range(3) if count)}
    tokens = tuple((version, view.get(f"/tokens/{version}", default=None)) for version in sorted(versions))
    last = tuple(entry.digest for entry in view.log(limit=8))
    return Seen(name, view.head.version, view.digest, last, tokens)
