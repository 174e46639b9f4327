"""Three tools side by side, and a process that dies when two of them have ended."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import perdure
from perdure import Agent, Call, Outcome
from perdure.runtime import failpoints
from perdure.runtime.calls.executor import CallExecutor
from perdure.runtime.calls.pending_call import PendingCall
from perdure.testing import Script, say, step, use
from tests.runtime.runs.told import Told, told_of
from tests.runtime.runs.world import World

__all__ = ["SLOW", "book_until_two_are_done", "book_without_recording", "look", "resume"]

THREAD, SLOW = "trip", "hotel"
ALL = ("flight", "train", SLOW)


def book_until_two_are_done(path: str, sends: bool) -> None:
    """Die as soon as two results are durable; by then the third booking is made, or not."""
    ended = [0]

    def count() -> None:
        ended[0] += 1
        if ended[0] == 2:
            while sends and SLOW not in World(f"{path}.world").counted():
                time.sleep(0.001)
            _die()

    failpoints.arm("after_result", count)
    _book(path, sends)


def book_without_recording(path: str, sends: bool) -> None:
    """The same where results are recorded with their round only: what an ordinary loop does."""

    async def record(self: CallExecutor, pending_call: PendingCall) -> None:
        if len(World(f"{path}.world").deeds()) >= 2:
            _die()

    CallExecutor._record = record
    _book(path, sends)


def look(path: str) -> Told:
    """What the store says before anybody goes on."""
    with perdure.open(path, durability="process_crash") as store:
        return told_of(store, store.thread(THREAD))


def resume(path: str, hook: bool) -> Told:
    """What the next process makes of it, whose tool can find out what became of a booking, or not."""
    with perdure.open(path, durability="process_crash") as store:
        agent = _agent(World(f"{path}.world"), hook=hook)
        store.resume(agent)
        return told_of(store, store.thread(THREAD))


def _book(path: str, sends: bool) -> None:
    store = perdure.open(path, durability="process_crash")
    agent = _agent(World(f"{path}.world"), slow="after" if sends else "before")
    store.thread(THREAD, agent=agent).run("Book")


def _agent(world: World, *, slow: str = "", hook: bool = False) -> Agent:
    @perdure.tool(effect="financial")
    def book(what: str, *, call: Call) -> str:
        wait(what, "before")
        world.do(what, call.key, call.attempt)
        wait(what, "after")
        call.put(f"/booked/{what}.json", call.attempt)
        return f"booked {what}"

    def wait(what: str, moment: str) -> None:
        if (what, moment) == (SLOW, slow):
            threading.Event().wait(60)

    def found(call: Call) -> Outcome:
        what: Any = call.arguments["what"]
        if not world.knows(call.key):
            return call.not_done()
        call.put(f"/booked/{what}.json", call.attempt)
        return call.done(f"booked {what}")

    if hook:
        book.reconcile(found)
    script = Script(step(*(use("book", what=what) for what in ALL)), say("Done."))
    return Agent("planner", backend=script, tools=[book])


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
