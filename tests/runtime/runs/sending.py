"""Programs for the kill windows: an agent sends five messages, dies, and continues."""

from __future__ import annotations

from typing import cast

import msgspec

import perdure
from perdure import Agent, Call, Outcome
from perdure.model.effect import Effect, Reach
from perdure.runtime import failpoints
from perdure.runtime.failpoints import Point
from perdure.runtime.tools.tool import Tool
from perdure.testing import Script, crash, say, step, use
from perdure.testing.script import Item
from tests.runtime.runs.told import Told, misshapen, told_of
from tests.runtime.runs.world import World

__all__ = ["CALLS", "Case", "go_on", "go_on_without_the_rule", "send_until_killed", "sender"]

CALLS = 5
THREAD = "letters"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One way to be killed while sending."""

    path: str  # of the store; the world is beside it
    effect: Effect
    idempotent: bool
    hook: bool  # whether the tool knows how to find out what became of a call
    together: bool  # all five in one round, or one after another
    point: Point
    nth: int

    @property
    def reach(self) -> Reach:
        """How far the tool reaches."""
        return Reach(self.effect, self.idempotent)

    @property
    def world(self) -> World:
        """Where the messages go."""
        return World(f"{self.path}.world")


def sender(case: Case, *crashes: Item) -> Agent:
    """The agent whose only tool sends a message."""
    uses = [use("send", number=number) for number in range(CALLS)]
    steps = [step(*uses)] if case.together else uses
    return Agent("sender", backend=Script(*steps, say("All sent."), *crashes), tools=[_send(case)])


def send_until_killed(case: Case) -> str:
    """Send until the process is killed; what the run came to if it is not."""
    store = perdure.open(case.path, durability="process_crash")
    return store.thread(THREAD, agent=sender(case, crash(case.point, nth=case.nth))).run("Send them").status


def go_on(case: Case) -> tuple[Told, list[str]]:
    """What the next process makes of it, and what it showed the model that no model may be shown."""
    agent = sender(case)
    with perdure.open(case.path, durability="process_crash") as store:
        store.resume(agent)
        told = told_of(store, store.thread(THREAD))
    return told, misshapen(cast("Script", agent.backend).contexts)


def go_on_without_the_rule(case: Case) -> tuple[Told, list[str]]:
    """The same where whatever was cut off is simply run again: what an ordinary loop does."""
    Reach.repeatable = property(lambda self: True)  # pyright: ignore[reportAttributeAccessIssue]
    return go_on(case)


def _send(case: Case) -> Tool:
    world = case.world

    @perdure.tool(effect=case.effect, idempotent=case.idempotent)
    def send(number: int, *, call: Call) -> str:
        world.do(number, call.key, call.attempt)
        failpoints.hit("during_effect")
        return f"sent {number}"

    def found(call: Call) -> Outcome:
        return call.done(f"sent {call.arguments['number']}") if world.knows(call.key) else call.not_done()

    if case.hook:
        send.reconcile(found)
    return send
