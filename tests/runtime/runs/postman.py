"""An agent that sends mail, for tests of what keeps it from sending twice."""

from __future__ import annotations

import perdure
from perdure import Agent, Call
from perdure.runtime.tools.tool import Ask, Tool
from perdure.testing import Script, say, use
from perdure.testing.script import Item
from tests.runtime.runs.world import World

__all__ = ["mail_to", "postman"]


def mail_to(world: World, *, ask: Ask = False) -> Tool:
    """A tool that sends mail into that world."""

    @perdure.tool(effect="communication", ask=ask)
    def mail(to: str, *, call: Call) -> str:
        world.do(to, call.key, call.attempt)
        call.put(f"/mailed/{to}.json", call.attempt)
        return f"mailed {to}"

    return mail


def postman(world: World, *script: Item, ask: Ask = False) -> Agent:
    """The agent; without a script it sends a letter to Ann in each of the first two turns."""
    steps = script or (use("mail", to="ann"), say("Done.")) * 2
    return Agent("postman", backend=Script(*steps), tools=[mail_to(world, ask=ask)])
