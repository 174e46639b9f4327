"""Processes that send the same letter at the same moment, each on a timeline of its own."""

from __future__ import annotations

from multiprocessing.synchronize import Barrier

import perdure
from perdure.runtime import failpoints
from perdure.testing import say, use
from tests.crash.processes import Pipe, context, running
from tests.runtime.runs.postman import postman
from tests.runtime.runs.world import World

__all__ = ["rounds"]

GATE_SECONDS = 60.0


def rounds(path: str, world: str, count: int) -> list[list[str]]:
    """What the runs of two processes come to, in each of so many threads."""
    with perdure.open(path, durability="process_crash") as store:
        for number in range(count):
            main = store.thread(f"letters {number}", agent="postman")
            main.put("/begun.json", True)
            main.fork("fork")
    gate = context.Barrier(2)
    with (
        running(_send, path, world, gate, "main", count) as one,
        running(_send, path, world, gate, "fork", count) as other,
    ):
        return [[one.answer(), other.answer()] for _ in range(count)]


def _send(pipe: Pipe, path: str, world: str, gate: Barrier, timeline: str, count: int) -> None:
    store = perdure.open(path, durability="process_crash")
    for number in range(count):
        left = [True]

        def meet(left: list[bool] = left) -> None:
            if left:
                left.clear()
                gate.wait(GATE_SECONDS)

        failpoints.arm("before_intent", meet)
        agent = postman(World(world), use("mail", to=f"number {number}"), say("Done."))
        thread = store.thread(f"letters {number}", agent=agent, timeline=timeline)
        pipe.send(thread.run("Write").status)
