"""Inference: one step of the model, from what it is shown to what it said.

Words are handed to whoever watches as they come.  Nothing is durable before the step is whole.
The vendor's ids of calls are only metadata: they repeat and collide, so every call gets one of ours.
A backend may take the request and answer later.  The id by which it answers is noted before anything
else, so that another process fetches the same answer instead of asking for a second one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from perdure.errors import Invalid, Unavailable
from perdure.model.context import Context
from perdure.model.message import Message, ToolCall
from perdure.model.run import StopReason, Usage
from perdure.providers.contract import (
    CallDelta,
    Finished,
    Loss,
    Model,
    ModelEvent,
    PendingReply,
    ReasoningDelta,
    TextDelta,
)
from perdure.providers.stop_reasons import stop_reason
from perdure.runtime import events
from perdure.runtime.events import CallProgress
from perdure.runtime.session.broadcast import Feed
from perdure.runtime.tools.tool import Tool

__all__ = ["Patience", "StepReply", "declared_names", "infer"]

_POLL_SECONDS, _POLL_GROWTH, _POLL_SECONDS_MAX = 0.25, 1.5, 5.0
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


class StepReply(msgspec.Struct, frozen=True):
    """What the model said in one step."""

    message: Message  # its calls have ids of ours
    vendor_ids: tuple[str, ...]  # what the vendor called them
    usage: Usage
    stop: StopReason
    losses: tuple[Loss, ...] = ()  # what its request, or its answer, could not carry over unchanged


class Patience(msgspec.Struct, frozen=True):
    """What a run does about an answer that its backend works on: it notes the id, and says how long it waits."""

    note: Callable[[str], Awaitable[None]]  # makes the id durable
    may_wait: Callable[[], bool]  # False: a limit of the run is reached


async def infer(
    model: Model,
    context: Context,
    feed: Feed,
    ids: Callable[[], str],
    names: Mapping[str, str],
    patience: Patience,
) -> StepReply | None:
    """Have the model take a step; None: the run may not wait any longer for the answer.

    Raises what the model raises, and `Invalid` if it stops without a whole message.
    """
    seconds, is_told = _POLL_SECONDS, False
    while True:
        finished: Finished | None = None
        pending: str | None = None
        try:
            async for event in model.step(context):
                if isinstance(event, Finished):
                    finished = event
                elif isinstance(event, PendingReply):
                    if event.id != context.pending:
                        await patience.note(event.id)
                    pending = event.id
                elif context.pending is None or not is_told:  # what was told before is not told twice
                    _tell(feed, event)
        except Unavailable:
            if pending is None or context.pending is not None:
                raise
        if finished is not None:
            return _ours(model, finished, ids, names)
        if pending is None:
            raise Invalid(f"{model.backend} stopped in the middle of a step; nothing of it was kept.")
        is_told = is_told or context.pending is None
        context = msgspec.structs.replace(context, pending=pending)
        await asyncio.sleep(seconds)
        seconds = min(_POLL_SECONDS_MAX, seconds * _POLL_GROWTH)
        if not patience.may_wait():
            return None


def _tell(feed: Feed, event: ModelEvent) -> None:
    match event:
        case TextDelta(text):
            feed.tell(events.TextDelta(text))
        case ReasoningDelta(text):
            feed.tell(events.ReasoningDelta(text))
        case CallDelta(index, name, arguments):
            feed.tell(CallProgress(str(index), name, "writing", arguments))
        case PendingReply() | Finished():
            pass


def declared_names(tools: Mapping[str, Tool]) -> dict[str, str]:
    """From the names that vendors make of tools to the tools: few formats take a dot or a slash in a name.

    A vendor's own tool is the one that serves it.
    """
    known = set(tools)
    made: dict[str, str] = {}
    for name in known:
        plain = _ILLEGAL.sub("_", name)
        if plain != name and plain not in known:
            made[plain] = "" if plain in made else name
    served = {tool.serves: name for name, tool in tools.items() if tool.serves is not None}
    unambiguous = {plain: name for plain, name in made.items() if name}
    return {**unambiguous, **served}


def _ours(model: Model, finished: Finished, ids: Callable[[], str], names: Mapping[str, str]) -> StepReply:
    message = finished.message
    if message.role != "assistant" or message.tool_results:
        raise Invalid(
            f"{model.backend} spoke as {message.role}, not as an assistant; nothing of it was kept."
        )
    stop = stop_reason(finished.stop, finished.stop_kind, has_calls=bool(message.tool_calls))
    if stop.reason == "failed":
        raise Unavailable(
            f"{model.backend} ended its answer with an error ({stop.word}); nothing of it was kept. Ask again."
        )
    if not message.tool_calls:
        return StepReply(message, (), finished.usage, stop, finished.losses)
    calls = tuple(ToolCall(ids(), names.get(call.name, call.name), call.args) for call in message.tool_calls)
    vendor_ids = tuple(call.id for call in message.tool_calls)
    said = msgspec.structs.replace(message, tool_calls=calls)
    return StepReply(said, vendor_ids, finished.usage, stop, finished.losses)
