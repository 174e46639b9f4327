"""The typed events of a run's stream, in one ordered sequence.

Durable events come from commits.  Each has a cursor, and is delivered exactly once, in order, from any process.
Live events show what happens at the moment: text and calls as the model writes them.  They are not stored; a
reader that connects later gets `TextSoFar` instead.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import msgspec

from perdure.errors import Invalid
from perdure.model.call import CallRecord
from perdure.model.digest import Digest
from perdure.model.event import Event, RunFinished
from perdure.model.message import Message
from perdure.model.ticket import Ticket

__all__ = [
    "CallProgress",
    "Committed",
    "Cursor",
    "Happened",
    "Happening",
    "Live",
    "ReasoningDelta",
    "RunEnded",
    "TextDelta",
    "TextSoFar",
    "WaitingCall",
]

_CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})\.([0-9a-f]{64})")


class Cursor(msgspec.Struct, frozen=True):
    """A place in the stream: after the n-th durable event of a commit."""

    depth: int
    commit: Digest
    index: int

    def __str__(self) -> str:
        """Return the place as text that `read` takes."""
        return f"{self.depth}.{self.index}.{self.commit}"

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Return the place that `text` names; raises `Invalid`."""
        match = _CURSOR.fullmatch(str(text))
        if match is None:
            raise Invalid(
                f"{text!r} is not a cursor; nothing was followed.",
                code="cursor_invalid",
                advice="Give event.cursor of an earlier event.",
                cursor=text,
            )
        return cls(int(match[1]), Digest(match[3]), int(match[2]))


class WaitingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for a decision: the question, and the arguments that it is about."""

    thread: str  # the id of the thread that has the call
    ticket: Ticket
    record: CallRecord
    arguments: str | None  # JSON text; None: forgotten


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """A durable event: a message, a call's progress, the run's beginning or end."""

    cursor: str
    commit: Digest
    event: Event
    run: str | None = None
    message: Message | None = None  # the message, where one was appended
    waiting: WaitingCall | None = None  # the question, where a call began to wait

    @property
    def type(self) -> str:
        """The event's type name, as in the catalogue."""
        return str(type_name(self.event))

    @property
    def text(self) -> str:
        """The text of a message; empty for anything else."""
        return self.message.text if self.message else ""

    @property
    def ends(self) -> bool:
        """True if the run ended with it."""
        return isinstance(self.event, RunFinished)


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """A commit is whole: everything before it is durable."""

    cursor: str
    commit: Digest
    reason: str
    root: Digest
    run: str | None = None

    @property
    def type(self) -> str:
        """Its name in a stream."""
        return "committed"


class TextDelta(msgspec.Struct, frozen=True):
    """More text of the assistant."""

    text: str
    cursor: str | None = None  # of the last durable event before it
    message: str | None = None  # the id that the message will have; None: it is not known
    run: str | None = None  # that writes it; None: the item was not read from a stream

    @property
    def type(self) -> str:
        """Its name in a stream."""
        return "text.delta"


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More of the reasoning that the model shows."""

    text: str
    cursor: str | None = None
    message: str | None = None  # as in `TextDelta`
    run: str | None = None  # as in `TextDelta`

    @property
    def type(self) -> str:
        """Its name in a stream."""
        return "reasoning.delta"


class TextSoFar(msgspec.Struct, frozen=True):
    """The text of a message that was written before the reader connected, and the reasoning before it."""

    text: str
    cursor: str | None = None
    message: str | None = None  # as in `TextDelta`
    reasoning: str = ""
    run: str | None = None  # as in `TextDelta`

    @property
    def type(self) -> str:
        """Its name in a stream."""
        return "text.so_far"


class CallProgress(msgspec.Struct, frozen=True):
    """The progress of a call: the model writes it, or a tool carries it out."""

    call: str  # our id, or the index within the step while the model still writes it
    tool: str
    state: str  # `writing`, `started`, `running` or the state that it has ended in
    arguments: str = ""  # the new part, while the model writes it
    fraction: float | None = (
        None  # how much is done, from 0 to 1, while it is `running`; None: the tool does not say
    )
    message: str = ""  # what the tool says, while it is `running`
    cursor: str | None = None

    @property
    def type(self) -> str:
        """Its name in a stream."""
        return "call.progress"


class RunEnded(msgspec.Struct, frozen=True):
    """The run has ended, or waits; no event follows."""

    result: Any  # a Result
    cursor: str | None = None
    waiting: tuple[WaitingCall, ...] = ()  # what the run waits for

    @property
    def type(self) -> str:
        """Its name in a stream."""
        return "run.ended"


Live: TypeAlias = TextDelta | ReasoningDelta | CallProgress
Happening: TypeAlias = Happened | Committed | TextSoFar | Live | RunEnded


def type_name(event: Event) -> str:
    """Return the type name of an event, as in the catalogue."""
    return str(event.__struct_config__.tag)
