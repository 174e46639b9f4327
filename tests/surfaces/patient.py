"""An agent for the tests of typing ahead: its first tool works until the test makes the file `go`."""

from __future__ import annotations

import time
from pathlib import Path

import perdure
from perdure import Agent, testing

__all__ = ["clerk"]

_DEADLINE_SECONDS = 60.0


@perdure.tool(effect="financial", ask=True)
def pay(amount: int) -> str:
    """Pay somebody, and leave a receipt."""
    Path(f"paid-{amount}").touch()
    return f"paid {amount}"


@perdure.tool(effect="read_only")
def look() -> str:
    """Look until the test lets it go on."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not Path("go").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return "seen"


clerk = Agent(
    "clerk",
    tools=[pay, look],
    backend=testing.Script(
        testing.use("look"), testing.use("pay", amount=5), testing.say("All done."), backend="script:clerk"
    ),
)
