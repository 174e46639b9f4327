"""A process that stops in the middle of a payment, loses its lease, and wakes up later."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, cast

import perdure
from perdure import Agent, Call, Outcome
from perdure.errors import Busy
from perdure.runtime import failpoints
from perdure.runtime.failpoints import POINTS, Point
from perdure.runtime.session.result import Result
from perdure.runtime.tools.tool import Tool
from perdure.store.thread import Thread
from perdure.testing import Script, say, step, use
from tests.crash.processes import Other, Pipe
from tests.runtime.runs.opened import store_in
from tests.runtime.runs.world import World

__all__ = ["PLACES", "Place", "await_stop", "pay_and_stop", "payer", "take_over", "wake"]

Place: TypeAlias = Literal[
    "before_intent",
    "after_started",
    "first byte",
    "sent",
    "after_effect",
    "while_recording",
    "after_turn",
    "before_finish",
]
PLACES: tuple[Place, ...] = ("after_started", "first byte", "sent", "after_effect", "while_recording")

THREAD = "bills"
WAIT_SECONDS = 60.0  # only turns a hang into a failure

_Hook = Callable[[Call], Outcome]


def payer(
    world: World, *, at: Callable[[str], None] = lambda place: None, hook: _Hook, calls: int = 1
) -> Agent:
    """An agent that pays; `at` is told where its tool is."""

    together = threading.Barrier(calls, timeout=WAIT_SECONDS)

    @perdure.tool(effect="financial")
    def pay(amount: int, *, call: Call) -> str:
        call.put(f"/paid/{amount}.json", call.attempt)
        together.wait()  # so that none of them is at the store when one stops them all
        at("first byte")
        world.do(amount, call.key, call.attempt)
        together.wait()
        at("sent")
        together.wait()
        return f"paid {amount}"

    cast("Tool", pay).reconcile(hook)
    round = step(*(use("pay", amount=amount) for amount in range(calls)))
    return Agent("payer", backend=Script(round, say("Hm."), round, say("Done.")), tools=[pay])


def pay_and_stop(pipe: Pipe, path: str, world: str, place: Place, lease: float | None, calls: int) -> None:
    """Pay, and stop once at that place; when somebody lets it go on, tell what the run came to."""
    left = [True]

    def stop(at: str) -> None:
        if at == place and left:
            left.clear()
            pipe.send("stops")
            os.kill(os.getpid(), signal.SIGSTOP)

    for point in POINTS:
        failpoints.arm(cast("Point", point), lambda point=point: stop(point))
    agent = payer(World(world), at=stop, hook=lambda call: call.dont_know(), calls=calls)
    with store_in(path, lease=lease) as store:
        try:
            came = store.thread(THREAD, agent=agent).run("Pay", id="bill").status
        except Exception as error:
            came = type(error).__name__
    pipe.send(came)


def await_stop(other: Other) -> None:
    """Wait until the process has stopped, all of its threads."""
    assert other.answer() == "stops"
    stat = Path(f"/proc/{other.process.pid}/stat")
    _until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")


def wake(other: Other) -> None:
    """Let a stopped process go on."""
    assert other.process.pid is not None
    os.kill(other.process.pid, signal.SIGCONT)


def take_over(thread: Thread) -> Result:
    """Go on with the run of another process as soon as its lease has ended."""
    found: list[Result] = []

    def taken() -> bool:
        try:
            found.append(thread.resume())
        except Busy:
            return False
        return True

    _until(taken)
    return found[0]


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)
