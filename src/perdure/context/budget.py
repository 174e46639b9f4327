"""The budget: how many tokens a request to one backend may have, and how many its parts have.

The window comes from the agent's limits, from the model itself or from the catalog.  If none of them knows it there is
no budget, and everything is shown.  The tokens reserved for the answer are subtracted first.  An estimate counts with
its margin: a request that may be too large is too large.
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

_BYTE_TOKENS_MAX = 3.5  # upper bound of tokens for one byte, margin included
_ROOM_MIN = 3_000  # tokens that every model's budget has
_AROUND = 64  # upper bound of bytes around a message
_MEDIA = 8_000
_ANSWER_OPTIONS = ("max_tokens", "max_output_tokens")  # options that limit the length of the answer


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that a request to one backend may have."""

    backend: str
    scale: Scale
    window: int | None = None  # tokens of request and answer; None: not known
    reserved: int = 0  # of these, tokens for the answer
    tooled: bool = False  # tools, or a schema for the answer, make the estimate less certain

    @property
    def room(self) -> int | None:
        """The tokens that a request may have; None: no limit."""
        return None if self.window is None else self.window - self.reserved

    def holds(self, weight: Weight, share: float = 1.0) -> bool:
        """True if a request of that weight, margin included, is within a share of the budget."""
        return self.room is None or self.scale.tokens(weight, tooled=self.tooled).most <= self.room * share

    def certainly_holds(self, size: int) -> bool:
        """True if any text of that many bytes, as `size_of` counts them, is within the budget without counting."""
        return self.room is None or size * _BYTE_TOKENS_MAX <= self.room

    def certainly_holds_more(self, weight: Weight, size: int) -> bool:
        """True if any text of that many bytes fits beside what was counted."""
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
    """Return the budget for `provider:model`; `window` is what the model reports itself, None if it does not.

    A backend that is in no catalog and of no known format has no window unless the limits set one.
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
    """True if so many bytes are within the budget of every model."""
    return size * _BYTE_TOKENS_MAX <= _ROOM_MIN


def size_of(messages: Sequence[Message]) -> int:
    """Return a quick upper bound for the size of messages, in bytes."""
    size = 0
    for message in messages:
        size += _AROUND
        blocks = message.content
        for result in message.tool_results:
            size += _AROUND
            blocks += result.content
        for block in blocks:
            if isinstance(block, Text):
                size += len(block.text) if block.text.isascii() else 4 * len(block.text)
            else:
                size += _MEDIA if isinstance(block, Image | File) else 0
        for call in message.tool_calls:
            size += _AROUND + _length(call.name) + _length(call.args)
        if message.vendor_metadata is not None:
            size += len(message.vendor_metadata)
    return size


def frame_size(frame: Frame) -> int:
    """Return a quick upper bound for the size of a frame, in bytes."""
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


def _length(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)


def _card(backend: str, frame: Frame, models: Callable[[], Catalog]) -> Card | None:
    """Return the catalog's card of a backend; None for a model object of the program."""
    known = models()
    if frame.sent is not None:
        return known.card(frame.sent.provider, frame.sent.model)
    provider, _, model = backend.partition(":")
    return known.card(provider, model) if provider in known.aliases or provider in known.models else None


def _reserve(window: int, card: Card | None, options: Mapping[str, Json]) -> int:
    """Return the tokens for the answer: the requested length, else the model's limit; at most a quarter."""
    asked = next((options[name] for name in _ANSWER_OPTIONS if type(options.get(name)) is int), None)
    wanted = cast("int | None", asked) or (card.output_limit if card else None) or window
    return max(1, min(wanted, window // 4))


def weigh_frame(budget: Budget, frame: Frame) -> Weight:
    """Count the tokens of a frame."""
    options: dict[str, Any] = dict(frame.options)
    if "output" not in options and "output_schema" in options:
        options["output"] = {"schema": options["output_schema"]}
    return budget.scale.frame(Context(system=frame.system, tools=frame.tools, options=options))
