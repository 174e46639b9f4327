"""The model of the story: it does not think, it follows a script, so that the demo needs no key.

What it does next follows from the conversation alone.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TypedDict

from perdure.model.context import Context
from perdure.model.message import Message, Text, ToolCall
from perdure.providers.contract import Finished, ModelEvent

__all__ = ["RENT", "ROOF", "Payment", "Scripted", "answer"]

RENT = "Pay the landlord 900, please."
ROOF = "And the roofer, 5000."


class Payment(TypedDict):
    """What the tool is asked for."""

    to: str
    amount: int


_SCRIPT: dict[str, tuple[Payment, str]] = {
    RENT: ({"to": "landlord", "amount": 900}, "The rent is paid."),
    ROOF: ({"to": "roofer", "amount": 5000}, "The roofer is paid."),
}


def answer(words: str, *, has_result: bool) -> tuple[str, Payment | None]:
    """What is said, and the payment that is asked for; None: nothing more."""
    payment, done = _SCRIPT[words]
    return (done, None) if has_result else ("", payment)


class Scripted:
    """A model that follows the script."""

    backend = "script:demo"

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Ask for the payment, or say that it is made."""
        asked = max(at for at, message in enumerate(context.messages) if message.role == "user")
        has_result = any(message.tool_results for message in context.messages[asked:])
        said, payment = answer(context.messages[asked].text, has_result=has_result)
        calls = () if payment is None else (ToolCall("pay-1", "pay", json.dumps(payment)),)
        yield Finished(message=Message("assistant", (Text(said),) if said else (), calls))
