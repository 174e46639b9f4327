"""Asking a backend as a run does, and hearing all that it tells."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from perdure import Backend
from perdure.model.context import Context, ToolSpec
from perdure.model.message import Message, Text
from perdure.providers.client import Speaker
from perdure.providers.contract import Finished, ModelEvent

__all__ = ["ask", "asked", "finished", "question"]


def question(text: str = "Hi", *, tools: Sequence[ToolSpec] = (), **options: Any) -> Context:
    """A context of one question."""
    return Context(messages=[Message("user", (Text(text),))], tools=tools, options=options)


async def asked(backend: Backend, context: Context | None = None) -> list[ModelEvent]:
    """What one step tells."""
    async with aclosing(Speaker(backend).step(context or question())) as events:  # pyright: ignore[reportArgumentType]
        return [event async for event in events]


def ask(backend: Backend, context: Context | None = None) -> list[ModelEvent]:
    """The same, on an event loop of its own."""
    return asyncio.run(asked(backend, context))


def finished(events: Sequence[ModelEvent]) -> Finished:
    """The last event."""
    assert isinstance(events[-1], Finished)
    return events[-1]
