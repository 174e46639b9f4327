"""The model protocol: a context goes in, a stream of events comes out.

A model takes one step: it reads what it is shown and says something, asks for tools, or both.
The last event is `Finished`, with the whole message; what came before it is for whoever
watches, and is not kept.  A model that cannot answer raises; nothing of its step is kept then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, TypeAlias

import msgspec

from holdfast.model.context import Context
from holdfast.model.message import Message
from holdfast.model.run import Usage

__all__ = ["CallDelta", "Finished", "Model", "ModelEvent", "ReasoningDelta", "TextDelta"]


class TextDelta(msgspec.Struct, frozen=True):
    """Some more words."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """Some more of what the model tells of its thinking."""

    text: str


class CallDelta(msgspec.Struct, frozen=True):
    """Some more of a tool call that is being written."""

    index: int  # which of the step's calls
    name: str
    arguments: str  # the part that came now


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The step is whole: what the model said, with the vendor's own ids for its calls."""

    message: Message
    usage: Usage = Usage()
    stop: str | None = None  # why it stopped, in the vendor's word


ModelEvent: TypeAlias = TextDelta | ReasoningDelta | CallDelta | Finished


class Model(Protocol):
    """What takes a step."""

    @property
    def backend(self) -> str:
        """Its name, `provider:model`."""
        ...

    def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Answer `context`.  Ends with `Finished`; raises if it cannot, having changed nothing."""
        ...
