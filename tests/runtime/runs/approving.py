"""A letter that needs an approval, and processes that die before and while the approval is applied."""

from __future__ import annotations

import os
import signal
import time
from typing import cast

import perdure
from perdure import Agent, Call, Outcome
from perdure.model.effect import Reach
from perdure.model.ticket import Verdict
from perdure.runtime import failpoints
from perdure.runtime.failpoints import POINTS, Point
from perdure.testing import Script, say, use
from tests.crash import points as inside
from tests.runtime.runs.told import Told, told_of
from tests.runtime.runs.world import World

__all__ = [
    "VALUES",
    "ask",
    "decide",
    "decide_on_a_fork",
    "decide_and_die",
    "die_while_deciding",
    "go_on",
    "resume_and_die",
]

THREAD = "letters"
VALUES: dict[Verdict, object] = {"approve": None, "edit": {"to": "bob"}, "answer": "by hand", "deny": None}


def ask(path: str) -> str:
    """Run until the approval is asked for."""
    with perdure.open(path, durability="process_crash") as store:
        return store.thread(THREAD, agent=_agent(path)).run("Write").status


def decide(path: str, verdict: Verdict) -> str:
    """Decide; what the call has come to."""
    with perdure.open(path, durability="process_crash") as store:
        thread = store.thread(THREAD, agent=_agent(path))
        thread.decide(thread.calls()[0].id, verdict, value=VALUES[verdict], by="ann")
        return thread.calls()[0].state


def decide_and_die(path: str, verdict: Verdict) -> None:
    """Decide, and die as soon as that is acknowledged."""
    store = perdure.open(path, durability="process_crash")
    thread = store.thread(THREAD, agent=_agent(path))
    thread.decide(thread.calls()[0].id, verdict, value=VALUES[verdict], by="ann")
    _die()


def die_while_deciding(path: str, verdict: Verdict, point: str) -> None:
    """Die before or after the decision is durable, in any case before it is acknowledged."""
    store = perdure.open(path, durability="process_crash")
    thread = store.thread(THREAD, agent=_agent(path))
    call = thread.calls()[0].id
    inside.arm(store, point, 1)
    thread.decide(call, verdict, value=VALUES[verdict], by="ann")


def resume_and_die(path: str, point: str, timeline: str = "main") -> str:
    """Go on, and die at that point; what the run came to if it is never reached."""
    store = perdure.open(path, durability="process_crash")
    if point in POINTS:
        failpoints.arm(cast("Point", point), _die)
    else:
        inside.arm(store, point, 2)  # the first is the taking of the line
    return store.thread(THREAD, agent=_agent(path), timeline=timeline).resume().status


def decide_on_a_fork(path: str) -> None:
    """Approve on a fork what was asked on `main`."""
    with perdure.open(path, durability="process_crash") as store:
        thread = store.thread(THREAD, agent=_agent(path))
        thread.fork("fork").decide(thread.calls()[0].id, "approve", by="ann")


def go_on(path: str, hook: bool, careless: bool = False, timeline: str = "main") -> Told:
    """What the next process makes of it; careless: whatever was cut off is simply run again."""
    if careless:
        Reach.repeatable = property(lambda self: True)  # pyright: ignore[reportAttributeAccessIssue]
    with perdure.open(path, durability="process_crash") as store:
        store.resume(_agent(path, hook=hook))
        return told_of(store, store.thread(THREAD, timeline=timeline))


def _agent(path: str, *, hook: bool = False) -> Agent:
    world = World(f"{path}.world")

    @perdure.tool(effect="communication", ask=True)
    def mail(to: str, *, call: Call) -> str:
        world.do(to, call.key, call.attempt)
        return f"mailed {to}"

    def found(call: Call) -> Outcome:
        return call.done(f"mailed {call.arguments['to']}") if world.knows(call.key) else call.not_done()

    if hook:
        mail.reconcile(found)
    return Agent("postman", backend=Script(use("mail", to="ann"), say("Done.")), tools=[mail])


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
