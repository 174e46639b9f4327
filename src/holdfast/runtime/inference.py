"""Inference: one step of the model, from what it is shown to what it said.

Words are handed to whoever watches as they come.  Nothing is durable before the step is whole.
The vendor's ids of calls are only metadata: they repeat and collide, so every call gets one of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from holdfast.errors import Invalid
from holdfast.model.context import Context
from holdfast.model.message import Message, ToolCall
from holdfast.model.run import Usage
from holdfast.providers.contract import CallDelta, Finished, Loss, Model, ReasoningDelta, TextDelta
from holdfast.runtime import happening
from holdfast.runtime.feed import Feed
from holdfast.runtime.happening import CallProgress

__all__ = ["Said", "declared_names", "infer"]

_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


class Said(msgspec.Struct, frozen=True):
    """What the model said in one step."""

    message: Message  # its calls have ids of ours
    vendor_ids: tuple[str, ...]  # what the vendor called them
    usage: Usage
    losses: tuple[Loss, ...] = ()  # what its request, or its answer, could not carry over unchanged


async def infer(
    model: Model, context: Context, feed: Feed, ids: Callable[[], str], names: Mapping[str, str]
) -> Said:
    """Have the model take a step; raises what it raises, and `Invalid` if it stops without a whole message."""
    finished: Finished | None = None
    async for event in model.step(context):
        match event:
            case TextDelta(text):
                feed.tell(happening.TextDelta(text))
            case ReasoningDelta(text):
                feed.tell(happening.ReasoningDelta(text))
            case CallDelta(index, name, arguments):
                feed.tell(CallProgress(str(index), name, "writing", arguments))
            case Finished():
                finished = event
    if finished is None:
        raise Invalid(f"{model.backend} stopped in the middle of a step; nothing of it was kept.")
    return _ours(model, finished, ids, names)


def declared_names(tools: Iterable[str]) -> dict[str, str]:
    """From the names that vendors make of tools to the tools: few formats take a dot or a slash in a name."""
    known = set(tools)
    made: dict[str, str] = {}
    for name in known:
        plain = _ILLEGAL.sub("_", name)
        if plain != name and plain not in known:
            made[plain] = "" if plain in made else name
    return {plain: name for plain, name in made.items() if name}  # one that could mean two means none


def _ours(model: Model, finished: Finished, ids: Callable[[], str], names: Mapping[str, str]) -> Said:
    message = finished.message
    if message.role != "assistant" or message.tool_results:
        raise Invalid(
            f"{model.backend} spoke as {message.role}, not as an assistant; nothing of it was kept."
        )
    if not message.tool_calls:
        return Said(message, (), finished.usage, finished.losses)
    calls = tuple(ToolCall(ids(), names.get(call.name, call.name), call.args) for call in message.tool_calls)
    vendor_ids = tuple(call.id for call in message.tool_calls)
    said = msgspec.structs.replace(message, tool_calls=calls)
    return Said(said, vendor_ids, finished.usage, finished.losses)
