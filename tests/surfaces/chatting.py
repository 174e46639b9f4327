"""An agent for the tests of `perdure chat`: a scripted clerk with a tool that asks first."""

from __future__ import annotations

import perdure
from perdure import Agent, testing

__all__ = ["clerk", "hired", "look", "paid", "pay"]

paid: list[int] = []


@perdure.tool(effect="financial", ask=True)
def pay(amount: int) -> str:
    """Pay somebody."""
    paid.append(amount)
    return f"paid {amount}"


@perdure.tool(effect="read_only")
def look() -> str:
    """Look out of the window."""
    return "sunny \x1b[31mand warm"


def hired() -> Agent:
    """A clerk whose script has not begun."""
    steps = (
        testing.step(testing.say("Let me see."), testing.use("look")),
        testing.use("pay", amount=5),
        testing.say("All done."),
    )
    return Agent("clerk", tools=[pay, look], backend=testing.Script(*steps, backend="script:clerk"))


clerk = hired()
