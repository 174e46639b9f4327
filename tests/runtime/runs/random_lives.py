"""Random work for an agent, and processes that are killed anywhere in it."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, Literal, TypeAlias

import msgspec

import perdure
from perdure import Agent, Call, Outcome, aio
from perdure.ledger.trace import Traced
from perdure.model.ticket import Verdict
from perdure.runtime.failpoints import POINTS
from perdure.runtime.tools.tool import KeyScope, Tool
from perdure.store.thread import Thread
from perdure.testing import Script, crash, say, step, use
from perdure.testing.script import ScriptStep
from tests.crash import points as inside
from tests.runtime.runs.told import misshapen, state_of, talk_of
from tests.runtime.runs.world import World

__all__ = ["Life", "live", "look"]

Policy: TypeAlias = Literal["each_step", "on_success"]

THREAD = "work"
REACHED = tuple(point for point in POINTS if not point.startswith("switch_"))  # by these runs
INSIDE = ("before COMMIT", "after COMMIT, before the answer", "between the thread's write and the agent's")


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One process that works on a thread."""

    path: str
    seed: int  # of the work
    killed: int | None = None  # the seed of its death; None: it lives
    forgetful: bool = False  # whether its hooks say that nothing was done, whatever they see


def live(life: Life) -> str:
    """Begin the work or go on with it; what the run came to."""
    chance = random.Random(life.killed)
    point = chance.choice([*REACHED, *INSIDE])
    nth = chance.randint(1, 12 if point in INSIDE else 6)
    deaths = [crash(point, nth=nth)] if life.killed is not None and point in REACHED else []  # pyright: ignore[reportArgumentType]
    policy: Policy = "on_success" if life.seed % 5 == 0 else "each_step"
    agent = _agent(life, *deaths)
    if life.seed % 3 == 0 and point not in INSIDE:
        status = asyncio.run(_awaited(life.path, agent, policy))
    else:
        store = perdure.open(life.path, durability="process_crash")
        if life.killed is not None and point in INSIDE:
            inside.arm(store, point, nth)
        status = _worked(store.thread(THREAD, agent=agent), policy)
        store.close()
    assert misshapen(agent.backend.contexts) == []  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    return status


def _worked(thread: Thread, policy: Policy) -> str:
    result = thread.run("Do it", id="input", head_policy=policy)
    while result.status == "waiting":
        for ticket in thread.approvals():
            thread.decide(ticket.call, _verdict(thread.trace(ticket.call)), by="ann")
        result = thread.resume()
    return result.status


async def _awaited(path: str, agent: Agent, policy: Policy) -> str:
    async with aio.open(path, durability="process_crash") as store:
        thread = await store.thread(THREAD, agent=agent)
        result = await thread.run("Do it", id="input", head_policy=policy)
        while result.status == "waiting":
            for ticket in await thread.approvals():
                await thread.decide(ticket.call, _verdict(await thread.trace(ticket.call)), by="ann")
            result = await thread.resume()
        return result.status


def look(life: Life) -> dict[str, Any]:
    """What the work came to: the conversation, the state, the agent's own map, the world, and what is wrong."""
    with perdure.open(life.path, durability="process_crash") as store:
        thread = store.thread(THREAD)
        mine = store.agent("worker")
        return {
            "status": thread.runs()[-1].state,
            "runs": len(thread.runs()),
            "talk": talk_of(thread),
            "state": state_of(thread),
            "agent": {path: mine.get(path) for path in mine.paths("/")},
            "sent": World(f"{life.path}.world").counted(),
            "calls": sorted(call.state for call in thread.calls()),
            "faults": [str(fault) for fault in store.verify().faults],
        }


def _agent(life: Life, *deaths: Any) -> Agent:
    script = Script(*_work(random.Random(life.seed)), *deaths)
    world = World(f"{life.path}.world")
    tools = [
        _look(),
        _note(),
        _send(world, "send", forgetful=life.forgetful),
        _send(world, "plead", forgetful=life.forgetful, ask=True),
        _send(world, "order", forgetful=life.forgetful, key="order-{what}", key_scope="store"),
    ]
    return Agent("worker", backend=script, tools=tools)


def _work(chance: random.Random) -> list[ScriptStep]:
    """A few rounds of a few calls each, with words between."""
    steps: list[ScriptStep] = []
    for round in range(chance.randint(1, 4)):
        uses = [_use(chance, round, number) for number in range(chance.randint(1, 3))]
        words = [say(f"Round {round}. ")] if chance.random() < 0.5 else []
        steps.append(step(*words, *uses))
    return [*steps, say("Done.")]


def _use(chance: random.Random, round: int, number: int) -> ScriptStep:
    what = f"{round}.{number}"
    match chance.choice(["look", "note", "send", "send", "plead", "order", "nonsense"]):
        case "order":  # what an earlier round ordered has a result already, under the same key
            return use("order", what=f"{chance.randint(0, round)}.{number}")
        case "nonsense":
            return use("note", wrong=what)
        case tool:
            return use(tool, what=what)


def _verdict(traced: Traced) -> Verdict:
    """Every second plea is heard."""
    what: str = json.loads(traced.arguments or "{}")["what"]
    return "approve" if what.endswith(("0", "2")) else "deny"


def _look() -> Tool:
    @perdure.tool(effect="read_only")
    def look(what: str, *, call: Call) -> list[str]:
        return [what, *call.paths("/")]

    return look


def _note() -> Tool:
    @perdure.tool(effect="local_write", idempotent=True)
    async def note(what: str, *, call: Call) -> str:
        call.put(f"/notes/{what}.json", what)
        call.put("/last.json", what)
        call.agent.put(f"/noted/{what}.json", True)
        return f"noted {what}"

    return note


def _send(
    world: World,
    name: str,
    *,
    forgetful: bool,
    ask: bool = False,
    key: str | None = None,
    key_scope: KeyScope = "thread",
) -> Tool:
    def record(what: str, call: Call) -> str:
        call.put(f"/sent/{name}/{what}.json", what)
        call.agent.put("/last.json", what)
        return f"{name}: {what}"

    @perdure.tool(name=name, effect="communication", ask=ask, key=key, key_scope=key_scope)
    def send(what: str, *, call: Call) -> str:
        world.do(f"{name} {what}", call.key, call.attempt)
        return record(what, call)

    @send.reconcile
    def found(call: Call) -> Outcome:
        if forgetful or not world.knows(call.key):
            return call.not_done()
        return call.done(record(call.arguments["what"], call))

    return send
