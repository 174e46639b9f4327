"""The typed events of a run's stream, in one ordered sequence.

Durable events come from commits and from the other moves of the head.  Each has a cursor, and is delivered exactly once,
in order, from any process.
Live events show what happens at the moment: text and calls as the model writes them.  They are not stored; a
reader that connects later gets `TextSoFar` instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from perdure.errors import Invalid
from perdure.model.call import CallRecord
from perdure.model.commit import Act
from perdure.model.digest import Digest
from perdure.model.event import Event, RunFinished
from perdure.model.message import Message
from perdure.model.ticket import Repeat, Ticket

if TYPE_CHECKING:
    from perdure.engines.contract import Step

__all__ = [
    "CallProgress",
    "Committed",
    "Cursor",
    "Happened",
    "Happening",
    "HeadMoved",
    "Live",
    "ReasoningDelta",
    "RunEnded",
    "TextDelta",
    "TextSoFar",
    "WaitingCall",
]

_CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})\.(-|[0-9a-f]{64})(?:\.([0-9]{1,18}))?")
_COMMIT = re.compile(r"[0-9a-f]{64}")
_AFTER_ALL = 999_999_999  # an index beyond that of any event of a commit


class Cursor(msgspec.Struct, frozen=True):
    """A place in the stream: after the n-th durable event of a commit, as the head came to it by one of its moves."""

    depth: int
    commit: Digest | None  # None: before the first
    index: int  # one more than the commit has events: after the commit; two more: also after the move of the head
    version: int | None = None  # of the head after that move; None: the last one that led to the commit

    @classmethod
    def after(cls, step: Step | None, version: int | None = None) -> Cursor:
        """Return the place after everything up to a commit, None is before the first, and up to a version of the head.

        Without the version it is after the last move that led to the commit.
        """
        if step is None:
            return cls(0, None, 2, version)
        return cls(step.commit.depth, step.digest, len(step.changeset.events) + 2, version)

    def __str__(self) -> str:
        """Return the place as text that `read` takes."""
        place = f"{self.depth}.{self.index}.{self.commit or '-'}"
        return place if self.version is None else f"{place}.{self.version}"

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Return the place that `text` names, after a commit if it is the digest of one; raises `Invalid`."""
        if _COMMIT.fullmatch(str(text)):
            return cls(0, Digest(text), _AFTER_ALL)
        match = _CURSOR.fullmatch(str(text))
        if match is None:
            raise Invalid(
                f"{text!r} is not a cursor; nothing was followed.",
                code="cursor_invalid",
                advice="Give event.cursor of an earlier event, or the commit that was read.",
                cursor=text,
            )
        commit = None if match[3] == "-" else Digest(match[3])
        return cls(int(match[1]), commit, int(match[2]), int(match[4]) if match[4] else None)


class WaitingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for a decision: the question, and the arguments that it is about."""

    thread: str  # the id of the thread that has the call
    ticket: Ticket
    record: CallRecord
    arguments: str | None  # JSON text; None: forgotten
    # What is known of the call that it may repeat; None: it asks about no repeat.
    repeat: Repeat | None = None


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


class HeadMoved(msgspec.Struct, frozen=True, kw_only=True):
    """The head moved otherwise than by a new commit: what is true now is what was true at `commit`.

    Where it came to a line with commits that the timeline never had, the events of these come before it.
    """

    cursor: str
    act: Act  # `undo`, `redo`, `promote` or `seal`
    commit: Digest | None  # None: before the first
    version: int  # of the head

    @property
    def type(self) -> str:
        """Its name in a stream."""
        return "head.moved"


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
Happening: TypeAlias = Happened | Committed | HeadMoved | TextSoFar | Live | RunEnded


def type_name(event: Event) -> str:
    """Return the type name of an event, as in the catalogue."""
    return str(event.__struct_config__.tag)
