"""Reads one run as a sequence of parts, from its first event to its end.

A reader that was cut off reads the same run again, in whichever process: what is durable comes from commits, whole and
in one order, and the words of the message that is being written come with their offset, so that a translation knows
what it has sent already.

    LiveText        words of the message that is being written; they may never become durable
    CommittedParts  what one commit of the run holds
    RunOutcome      the run ended, waits for a person, or no process carries it on: no part follows
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from perdure.errors import NotFound
from perdure.model.event import (
    ApprovalDecided,
    MessageAppended,
    ToolCallCompleted,
    ToolCallSuspended,
)
from perdure.model.message import Block, Message, ReasoningSummary, ToolCall, ToolResult
from perdure.model.run import RunRecord
from perdure.model.ticket import CHILD_RUN, Ticket
from perdure.runtime.events import (
    Committed,
    Happened,
    Happening,
    HeadMoved,
    ReasoningDelta,
    TextDelta,
    TextSoFar,
)

if TYPE_CHECKING:
    from perdure import aio
    from perdure.projections.transcript import TranscriptEntry
    from perdure.store.thread import Thread

__all__ = [
    "QuestionPart",
    "CommittedParts",
    "DecisionPart",
    "UserMessagePart",
    "Part",
    "RunOutcome",
    "RunParts",
    "ResultPart",
    "LiveText",
    "SpokenPart",
    "history",
]

_NEWS_SECONDS = 2.0  # a record that changes without a commit is read again after that


class LiveText(NamedTuple):
    """Words of the message that is being written: `text` stands at the offset `at` of its reasoning or of its text."""

    message: str | None  # its id; None: it is not known
    kind: Literal["reasoning", "text"]
    at: int
    text: str


class UserMessagePart(NamedTuple):
    """A message of the user that the run took into account on its way."""

    id: str
    message: Message | None  # None: forgotten


class SpokenPart(NamedTuple):
    """A message of the assistant; one that was forgotten says nothing."""

    id: str
    message: Message | None  # None: forgotten

    @property
    def content(self) -> tuple[Block, ...]:
        """The blocks of the message."""
        return () if self.message is None else self.message.content

    @property
    def reasoning(self) -> str:
        """What the model gave as its reasoning."""
        return "".join(block.text for block in self.content if isinstance(block, ReasoningSummary))

    @property
    def text(self) -> str:
        """What the message says."""
        return "" if self.message is None else self.message.text

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the message asks for."""
        return () if self.message is None else self.message.tool_calls


class QuestionPart(NamedTuple):
    """A call waits for a person."""

    ticket: Ticket


class DecisionPart(NamedTuple):
    """A person, or a deadline, decided about a call."""

    call: str
    ticket: str
    is_approved: bool
    why: str | None


class ResultPart(NamedTuple):
    """A call has a result, in a message of that id."""

    id: str
    call: str
    state: str  # of the call in the ledger
    result: ToolResult


DurablePart: TypeAlias = UserMessagePart | SpokenPart | QuestionPart | DecisionPart | ResultPart


class CommittedParts(NamedTuple):
    """What one commit of the run holds, in the order in which clients can take it."""

    cursor: str  # after the commit
    parts: tuple[DurablePart, ...]


class RunOutcome(NamedTuple):
    """The state of the run at the end of the stream."""

    record: RunRecord
    tickets: tuple[Ticket, ...] = ()  # that it waits for
    is_live: bool = False  # a process carries it on, or can begin to


Part: TypeAlias = LiveText | CommittedParts | RunOutcome


class RunParts:
    """The parts of one run of a timeline, after a cursor."""

    def __init__(self, thread: aio.Thread, run: str, after: str | None = None) -> None:
        """Read the run from its first event; `after` is the cursor of an earlier reading to go on from."""
        self._thread, self._run, self._cursor = thread, run, after
        self._message: str | None = None
        self._sent_length = {"reasoning": 0, "text": 0}  # how much the message that is being written has

    async def read(self) -> AsyncGenerator[Part]:
        """Yield the parts; the last one is the outcome."""
        seen: RunOutcome | None = None
        while True:
            is_new, before = False, self._cursor
            async with aclosing(self._followed()) as parts:
                async for part in parts:
                    is_new = True
                    yield part
            found = await self._thread.off_loop(self._outcome)
            # What was committed after the last read, and before the record was read, is read once more.  Commits of
            # other runs count, too: each may end a read, and those of this run may come after them.
            is_new = is_new or self._cursor != before
            if found == seen and not is_new:
                if not found.is_live:
                    yield found
                    return
                await self._news()
            seen = found

    async def _news(self) -> None:
        """Wait until something happens on the timeline, for a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_NEWS_SECONDS):
                async with _closing(self._thread.follow(self._cursor, wait=True)) as happenings:
                    await anext(happenings)

    async def _followed(self) -> AsyncGenerator[Part]:
        """Yield the parts that there are and those that come while a process runs the run."""
        if self._cursor is None:
            self._cursor = await self._thread.cursor_before(self._run)
        if self._cursor is None:
            return  # it has not begun
        events: list[Happened] = []
        async with _closing(self._thread.follow(self._cursor)) as happenings:
            async for each in happenings:
                match each:
                    case Happened(run=self._run):
                        events.append(each)
                    case Committed(run=self._run, cursor=cursor):
                        parts = await self._thread.off_loop(partial(self._ordered, events))
                        self._message, self._sent_length = None, {"reasoning": 0, "text": 0}
                        self._cursor, events = cursor, []
                        yield CommittedParts(cursor, parts)
                    case Committed(cursor=cursor) | HeadMoved(cursor=cursor):
                        self._cursor = cursor
                        if (await self._thread.find_run(self._run)).state != "running":
                            return  # another run may live here for long
                    case TextSoFar(run=self._run) | TextDelta(run=self._run) | ReasoningDelta(run=self._run):
                        for part in self._live_texts(each):
                            yield part
                    case _:
                        pass

    def _live_texts(self, happening: TextSoFar | TextDelta | ReasoningDelta) -> list[LiveText]:
        if happening.message != self._message or isinstance(happening, TextSoFar):
            self._message, self._sent_length = happening.message, {"reasoning": 0, "text": 0}
        if isinstance(happening, TextSoFar):
            whole: list[tuple[Literal["reasoning", "text"], str]] = [
                ("reasoning", happening.reasoning),
                ("text", happening.text),
            ]
            return [self._live_text(kind, words) for kind, words in whole if words]
        kind = "text" if isinstance(happening, TextDelta) else "reasoning"
        return [self._live_text(kind, happening.text)] if happening.text else []

    def _live_text(self, kind: Literal["reasoning", "text"], text: str) -> LiveText:
        at = self._sent_length[kind]
        self._sent_length[kind] = at + len(text)
        return LiveText(self._message, kind, at, text)

    def _ordered(self, events: Sequence[Happened]) -> tuple[DurablePart, ...]:
        """Return what a commit holds: decisions first, then messages, questions, and at last results.

        A commit has results before the decisions that led to them, and clients could not show those.
        """
        decided: list[DurablePart] = []
        said: list[DurablePart] = []
        asked: list[DurablePart] = []
        settled: list[ResultPart] = []
        states: dict[str, str] = {}
        for each in events:
            match each.event:
                case ApprovalDecided(call=call, ticket=ticket, decision=verdict, why=why):
                    decided.append(DecisionPart(call, ticket, verdict in _APPROVING, why))
                case MessageAppended(role="user", id=id) if not self._is_input(id):
                    said.append(UserMessagePart(id, each.message))
                case MessageAppended(role="assistant", id=id):
                    said.append(SpokenPart(id, each.message))
                case MessageAppended(role="tool", id=id) if each.message is not None:
                    settled += results_of(id, each.message)
                case ToolCallCompleted(call=call, status=status):
                    states[call] = status
                case ToolCallSuspended(ticket=ticket):
                    asked += _question(self._thread.target(), ticket)
                case _:
                    pass
        known = [_with_state(part, states) for part in settled]
        return (*decided, *said, *asked, *known)

    def _is_input(self, message: str) -> bool:
        return message in self._thread.target().find_run(self._run).input

    def _outcome(self) -> RunOutcome:
        thread = self._thread.target()
        record = thread.find_run(self._run)
        tickets, is_live = (), record.state == "created"
        if record.state == "waiting":
            tickets = tuple(each for each in thread.approvals() if each.run == record.id and _is_asked(each))
            is_live = thread.decided(record.id)
        elif record.state == "running":
            is_live = not thread.interrupted(record.id)
        return RunOutcome(record, tickets, is_live)


def _closing(happenings: AsyncIterator[Happening]) -> aclosing[AsyncGenerator[Happening]]:
    return aclosing(cast("AsyncGenerator[Happening]", happenings))


_APPROVING = ("approve", "edit", "answer")


def _is_asked(ticket: Ticket) -> bool:
    return not ticket.is_timer and ticket.action != CHILD_RUN


def _question(thread: Thread, ticket: str) -> list[DurablePart]:
    try:
        found = thread.trace(ticket, history=False).ticket
    except NotFound:
        return []  # its content was forgotten
    return [QuestionPart(found)] if found is not None and _is_asked(found) else []


def results_of(id: str, message: Message) -> list[ResultPart]:
    """Return the results in a message; the first has the id of the message, each other one an id derived from it."""
    return [
        ResultPart(id if number == 1 else f"{id}.{number}", result.call_id, "", result)
        for number, result in enumerate(message.tool_results, 1)
    ]


def _with_state(part: ResultPart, states: Mapping[str, str]) -> ResultPart:
    return part._replace(state=states.get(part.call, ""))


def history(
    thread: Thread, limit: int, *, at: str | None = None
) -> list[tuple[TranscriptEntry, tuple[DurablePart, ...]]]:
    """Return the last messages of a timeline, oldest first, each with its parts and the questions about its calls.

    `at` is a commit; None: now.
    """
    seen = thread if at is None else thread.at(at)
    found: list[tuple[TranscriptEntry, tuple[DurablePart, ...]]] = []
    for entry in seen.transcript(limit=limit):
        words = entry.words
        if entry.role == "assistant":
            asked = [_asked_about(thread, call.id) for call in (words.tool_calls if words else ())]
            found.append((entry, (SpokenPart(entry.id, words), *(part for parts in asked for part in parts))))
        elif entry.role == "tool" and words is not None:
            parts = results_of(entry.id, words)
            states = {each.call_id: _state_of(thread, each.call_id) for each in words.tool_results}
            found.append((entry, tuple(_with_state(part, states) for part in parts)))
        else:
            found.append((entry, (UserMessagePart(entry.id, words),)))
    return found


def _state_of(thread: Thread, call: str) -> str:
    try:
        return thread.trace(call, history=False).record.state
    except NotFound:
        return ""  # the ledger does not have it


def _asked_about(thread: Thread, call: str) -> list[DurablePart]:
    """Return the question about a call, and the decision, if there is one."""
    try:
        ticket = thread.trace(call, history=False).ticket
    except NotFound:
        return []
    if ticket is None or not _is_asked(ticket):
        return []
    decision = ticket.decision
    if decision is None:
        return [QuestionPart(ticket)]
    return [QuestionPart(ticket), DecisionPart(call, ticket.id, decision.verdict in _APPROVING, decision.why)]
