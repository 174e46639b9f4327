"""The budget: how many tokens a request may have for one backend, and what its parts weigh.

The window comes from the agent's limits, from the model itself or from the catalog; where nobody
knows it there is no budget, and all is shown.  What is kept free for the answer goes off first.
Estimates have a margin, and it counts: what may be too large is too large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from perdure.context.limits import ContextLimits
from perdure.model.canonical import Json
from perdure.model.context import Context
from perdure.model.message import File, Image, Message, Text
from perdure.model.recipe import Frame
from perdure.providers.catalog import Card, Catalog
from perdure.providers.tokens import Scale, Weight

__all__ = ["Budget", "budget_of", "frame_size", "is_small", "size_of", "weigh_frame"]

_BYTE_TOKENS_MAX = 3.5  # tokens that one byte can be at the worst, margin included
_ROOM_MIN = 3_000  # tokens that every model's budget has
_AROUND = 64  # what stands around a message, at the worst
_MEDIA = 8_000
_ASKED = ("max_tokens", "max_output_tokens")  # options that say how long an answer may be


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What a request to one backend may weigh."""

    backend: str
    scale: Scale
    window: int | None = None  # tokens, in all; None: not known
    reserved: int = 0  # of these, kept free for the answer
    tooled: bool = False  # tools, or a schema for the answer, make the estimate less certain

    @property
    def room(self) -> int | None:
        """Tokens that a request may have; None: as many as there are."""
        return None if self.window is None else self.window - self.reserved

    def holds(self, weight: Weight, share: float = 1.0) -> bool:
        """Whether a request of that weight is within it, or a share of it, even if the estimate is off by its margin."""
        return self.room is None or self.scale.tokens(weight, tooled=self.tooled).most <= self.room * share

    def certainly_holds(self, size: int) -> bool:
        """Whether anything of that many bytes, as `size_of` counts them, is within it: no need to weigh it."""
        return self.room is None or size * _BYTE_TOKENS_MAX <= self.room

    def certainly_holds_more(self, weight: Weight, size: int) -> bool:
        """Whether anything of that many bytes is within it beside what was weighed."""
        if self.room is None:
            return True
        most = self.scale.tokens(weight, tooled=self.tooled).most
        return most + size * _BYTE_TOKENS_MAX <= self.room


def budget_of(
    backend: str,
    limits: ContextLimits,
    *,
    frame: Frame,
    models: Callable[[], Catalog],
    window: int | None = None,
) -> Budget:
    """The budget for `provider:model`; `window` is what the model says itself, None if it does not.

    A backend that is in no catalog, and of no known format, has none unless the limits set one.
    """
    is_told = limits.window is not None or window is not None
    card = _card(backend, frame, models) if frame.sent is not None or not is_told else None
    whole = limits.window or window or (card.context_window if card else None)
    tooled = bool(frame.tools) or bool(frame.options.get("output") or frame.options.get("output_schema"))
    scale = Scale(backend)
    if whole is None:
        return Budget(backend=backend, scale=scale, tooled=tooled)
    reserved = limits.reserve or _reserve(whole, card, frame.options)
    if card is not None and whole == card.context_window:
        reserved = max(reserved, whole - card.input_max)
    return Budget(
        backend=backend, scale=scale, window=whole, reserved=min(reserved, whole - 1), tooled=tooled
    )


def is_small(size: int) -> bool:
    """Whether what has so many bytes is within any budget, so that nobody need ask which."""
    return size * _BYTE_TOKENS_MAX <= _ROOM_MIN


def size_of(messages: Sequence[Message]) -> int:
    """How large messages can be at the most, quickly: bytes of their words, and more for the rest."""
    return sum(map(_size, messages))


def frame_size(frame: Frame) -> int:
    """The same for what stands around messages."""
    tools = sum(
        2 * _AROUND + _length(tool.name + tool.description) + 2 * len(msgspec.json.encode(tool.parameters))
        for tool in frame.tools
    )
    return (
        1_000
        + _length(frame.system)
        + tools
        + 2 * len(msgspec.json.encode(dict(frame.options), enc_hook=repr))
    )


def _size(message: Message) -> int:
    size = _AROUND
    for block in message.content:
        size += _block_size(block)
    for call in message.tool_calls:
        size += _AROUND + _length(call.name) + _length(call.args)
    for result in message.tool_results:
        size += _AROUND
        for block in result.content:
            size += _block_size(block)
    if message.vendor_metadata is not None:
        size += len(message.vendor_metadata)
    return size


def _block_size(block: object) -> int:
    match block:
        case Text(text=text):
            return _length(text)
        case Image() | File():
            return _MEDIA
        case _:
            return 0


def _length(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)


def _card(backend: str, frame: Frame, models: Callable[[], Catalog]) -> Card | None:
    """What is known of a backend; None for one that takes steps itself under a name of its own."""
    known = models()
    if frame.sent is not None:
        return known.card(frame.sent.provider, frame.sent.model)
    provider, _, model = backend.partition(":")
    return known.card(provider, model) if provider in known.aliases or provider in known.models else None


def _reserve(window: int, card: Card | None, options: Mapping[str, Json]) -> int:
    """What is kept free for the answer: as much as was asked for, else what the model can say; a quarter at most."""
    asked = next((options[name] for name in _ASKED if type(options.get(name)) is int), None)
    wanted = cast("int | None", asked) or (card.output_limit if card else None) or window
    return max(1, min(wanted, window // 4))


def weigh_frame(budget: Budget, frame: Frame) -> Weight:
    """What stands around the messages."""
    options: dict[str, Any] = dict(frame.options)
    if "output" not in options and "output_schema" in options:
        options["output"] = {"schema": options["output_schema"]}
    return budget.scale.frame(Context(system=frame.system, tools=frame.tools, options=options))
