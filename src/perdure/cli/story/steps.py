"""Scripted backends for the third part: what each says follows from the last question alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from perdure.model.context import Context
from perdure.model.message import Message, Text, ToolCall
from perdure.providers.capabilities import Level
from perdure.providers.contract import Finished, ModelEvent

__all__ = ["Blind", "Steps"]


class Steps:
    """A backend that answers each question with the steps written down for it: words, or a call."""

    def __init__(self, backend: str, answers: Mapping[str, Sequence[str | ToolCall]]) -> None:
        """Answer under that name."""
        self.backend = backend
        self._answers = answers

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Take the step that comes next in this turn."""
        asked = max(at for at, message in enumerate(context.messages) if message.role == "user")
        taken = sum(1 for message in context.messages[asked:] if message.role == "assistant")
        step = self._answers[context.messages[asked].text][taken]
        if isinstance(step, str):
            yield Finished(message=Message("assistant", (Text(step),)))
        else:
            yield Finished(message=Message("assistant", (), (step,)))


class Blind(Steps):
    """One that sees no pictures and has a small window."""

    window: int | None = 2_000  # tokens

    def supports(self, capability: str) -> Level:
        """Everything but pictures."""
        return "none" if capability.startswith("image") else "full"
