"""AG-UI: what its clients send (`RunAgentInput`), and the events that they read.

Messages and calls have our ids.  A client that was cut off has two ways to go on.  It sends the same list again, with
what it has of the answer: then the events have what is missing, no word twice.  Or something below it, such as a
function that fetches, sends the same request with `Last-Event-ID`: the id of an event is the whole state of the
translation after it, so that any server goes on with the next event.

An id is a cursor, which names a commit, and the progress since: how many characters of the message that is being written
were sent, what is open, and how many events of the next commit were sent.

Where words were sent that did not become durable, or the client's list is not what the thread has, a
`MESSAGES_SNAPSHOT` puts that right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

import msgspec

from perdure.errors import Invalid, Unsupported
from perdure.model.message import Block, File, Image, Message, Text
from perdure.model.ticket import Ticket, Verdict
from perdure.server.protocols.client_content import (
    MediaLinks,
    ToolAnswer,
    media_block,
    text_of,
    unsupported,
    user_input,
)
from perdure.server.protocols.run_parts import (
    CommittedParts,
    DecisionPart,
    DurablePart,
    LiveText,
    Part,
    QuestionPart,
    ResultPart,
    RunOutcome,
    SpokenPart,
    UserMessagePart,
)
from perdure.shapes.text import in_json, stamp

__all__ = [
    "PROTOCOL",
    "SNAPSHOT",
    "AgUiMessage",
    "EventWriter",
    "Position",
    "ResumeEntry",
    "RunAgentInput",
    "answer_to",
    "input_of",
    "messages_of",
    "says_the_same",
]

PROTOCOL = "1.0"
SNAPSHOT = (
    "MESSAGES_SNAPSHOT"  # with the cursor `at` which it is to be taken; the messages are read when it is sent
)

_QUESTIONS = ("approve", "repeat")  # actions that a yes or a no decides
_POSITION = re.compile(
    r"([0-9]{1,18}\.[0-9]{1,9}\.(?:-|[0-9a-f]{64})(?:\.[0-9]{1,18})?)(?:/([a-z]*)\.([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})/(.*))?"
)

Event = dict[str, Any]
Phase = Literal["", "span", "reasoning", "reasoned", "text", "end"]


# ---- what the client sends


class AgUiFunction(msgspec.Struct, frozen=True, kw_only=True):
    """The tool of a call, and its arguments as text."""

    name: str
    arguments: str = ""


class AgUiToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call in a message of the assistant."""

    id: str
    function: AgUiFunction


class AgUiSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the content of a part is: in the part, or at an address."""

    type: str
    value: str
    mime_type: str | None = None


class AgUiPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a user's message."""

    type: str
    text: str | None = None
    source: AgUiSource | None = None


class AgUiMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One message of the client's list."""

    id: str
    role: str
    content: str | tuple[AgUiPart, ...] | dict[str, Any] | None = None
    tool_calls: tuple[AgUiToolCall, ...] = ()
    tool_call_id: str | None = None


class ResumeEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer to one interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunAgentInput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an AG-UI client sends.  The newest message of the user is the input; `state` is not taken over."""

    thread_id: str
    run_id: str
    messages: tuple[AgUiMessage, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    context: tuple[dict[str, Any], ...] = ()
    resume: tuple[ResumeEntry, ...] = ()

    def check(self) -> None:
        """Raise `Unsupported` for what would be lost: tools that the client runs, and context beside the messages."""
        if self.tools:
            raise Unsupported(
                "the server takes no tools that the client runs; nothing was run.",
                code="client_tools_unsupported",
                advice="Declare them as tools of the agent; one that suspends is answered by the client.",
            )
        if self.context:
            raise Unsupported(
                "the server takes no context beside the messages; nothing was run.",
                code="client_context_unsupported",
                advice="Say it in the message, or write it to the state of the thread.",
            )

    @property
    def input(self) -> AgUiMessage:
        """The newest message of the user; raises `Invalid` if there is none."""
        if not self.before:
            raise Invalid("the request has no message of a user; nothing was run.", code="message_missing")
        return self.before[-1]

    @property
    def before(self) -> tuple[AgUiMessage, ...]:
        """The messages up to the newest one of the user, with it."""
        roles = [message.role for message in self.messages]
        return self.messages[: len(roles) - roles[::-1].index("user")] if "user" in roles else ()

    @property
    def had(self) -> tuple[AgUiMessage, ...]:
        """The messages after the newest one of the user: what the client has of the answer."""
        return self.messages[len(self.before) :]


def input_of(message: AgUiMessage, known: Mapping[str, str] = {}) -> Message:
    """Return the message of a user as it is stored; raises `Invalid` if it has a part that cannot be.

    `known` has the content, as a data URI, of what the client names by an address of this server.
    """
    if isinstance(message.content, str):
        return Message("user", (Text(message.content),))
    blocks: list[Block] = []
    for part in message.content if isinstance(message.content, tuple) else ():
        source = part.source
        if part.type == "text" and part.text is not None:
            blocks.append(Text(part.text))
        elif source is not None and source.type in ("data", "url"):
            media_type = source.mime_type or "application/octet-stream"
            address = known.get(source.value, source.value)
            uri = address if source.type == "url" else f"data:{media_type};base64,{source.value}"
            blocks.append(media_block(uri, media_type))
        else:
            raise unsupported(part.type)
    return user_input(blocks)


def says_the_same(one: Message, other: Message) -> bool:
    """True if two messages of a user differ only in how their words are cut into parts, which clients may change."""
    return _joined(one.content) == _joined(other.content)


def _joined(content: Sequence[Block]) -> list[Block]:
    found: list[Block] = []
    for block in content:
        last = found[-1] if found else None
        if isinstance(block, Text) and isinstance(last, Text):
            found[-1] = Text(last.text + block.text)
        else:
            found.append(block)
    return found


def answer_to(ticket: Ticket, entry: ResumeEntry) -> ToolAnswer:
    """Return what an answer to an interrupt decides; raises `Invalid` if it answers something else."""

    def decided(verdict: Verdict, value: Any = None, why: str | None = None) -> ToolAnswer:
        return ToolAnswer(call=ticket.call, ticket=ticket.id, verdict=verdict, value=value, why=why)

    if entry.status == "cancelled":
        return decided("deny", why="cancelled by the client")
    payload = entry.payload
    if isinstance(payload, bool):
        payload = {"approved": payload}
    said = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    if isinstance(said.get("approved"), bool):
        why = said.get("reason")
        why = why if isinstance(why, str) else None
        if not said["approved"]:
            return decided("deny", why=why)
        edited = said.get("editedArgs")
        return decided("approve", why=why) if edited is None else decided("edit", edited, why)
    if ticket.action in _QUESTIONS:
        raise Invalid(
            f"the answer to interrupt '{ticket.id}' does not say whether the call is approved; nothing was decided.",
            code="resume_payload_invalid",
            advice='Send {"approved": true} or {"approved": false} as the payload.',
            ticket=ticket.id,
        )
    return decided("answer", payload)


# ---- what the client reads


class Position(NamedTuple):
    """How far a client has read: the id of an event."""

    cursor: str  # of the last commit that was sent whole, or before the run
    phase: Phase = ""  # what is open
    reasoning: int = 0  # characters of the message that is being written
    text: int = 0
    done: int = 0  # events of the next commit
    message: str = ""  # its id; empty: none is being written

    def __str__(self) -> str:
        """Return the position as the id of an event."""
        if self[1:] == ("", 0, 0, 0, ""):
            return self.cursor
        return f"{self.cursor}/{self.phase}.{self.reasoning}.{self.text}.{self.done}/{self.message}"

    @classmethod
    def read(cls, text: str) -> Position:
        """Return the position that an id names; raises `Invalid`."""
        match = _POSITION.fullmatch(text)
        if match is None or (match[2] or "") not in _PHASES:
            raise Invalid(
                "the Last-Event-ID is not the id of an event of this stream; nothing was run.",
                code="cursor_invalid",
                advice="Send the id of the last event that came.",
            )
        if match[2] is None:
            return cls(match[1])
        phase: Phase = match[2]  # pyright: ignore[reportAssignmentType]  # checked above
        return cls(match[1], phase, int(match[3]), int(match[4]), int(match[5]), match[6])


_PHASES = ("", "span", "reasoning", "reasoned", "text", "end")


class EventWriter:
    """Translates the parts of one run into events, each with the position after it."""

    def __init__(self, given: RunAgentInput, at: Position, *, known: Iterable[str] = ()) -> None:
        """Go on from `at`; `known` are the messages of the client's list that the thread has."""
        self._given, self._at = given, at
        self._had = {message.id: message for message in given.had}
        self._calls = {call.id: call.function.arguments for each in given.had for call in each.tool_calls}
        self._unknown = set(self._had) - set(known)  # unless one of them is being written
        self._is_stale = False  # the client has other words than the thread

    def begin(self, *, is_stale: bool) -> Iterator[tuple[Event, str]]:
        """Yield the beginning of the stream; `is_stale`: the client's list is not what the thread has."""
        yield self._named({"type": "RUN_STARTED", "protocolVersion": PROTOCOL}), str(self._at)
        if is_stale:
            yield self._snapshot(self._at.cursor), str(self._at)

    def take(self, part: Part) -> Iterator[tuple[Event, str]]:
        """Yield the events for the next part of the run."""
        match part:
            case LiveText():
                for event in self._live_text(part):
                    yield event, str(self._at)
            case CommittedParts(cursor, parts):
                yield from self._committed(cursor, parts)
            case RunOutcome():
                for event in self._abandon():
                    yield event, str(self._at)
                if self._unknown:
                    yield self._snapshot(self._at.cursor), str(self._at)
                self._at = self._at._replace(phase="end")
                yield self._over(part), str(self._at)

    def fail(self, message: str, code: str) -> tuple[Event, str]:
        """Return the event of an error that ends the stream."""
        return {"type": "RUN_ERROR", "message": message, "code": code}, str(self._at)

    # ---- words of a message that is being written

    def _live_text(self, part: LiveText) -> Iterator[Event]:
        if part.message is None:
            return  # without its id the message is sent when it is durable
        if self._at.message and self._at.message != part.message:
            yield from self._abandon()
        if not self._at.message:
            yield from self._forgotten(part.message)
            reasoning, text = self._sizes(part.message)
            self._at = self._at._replace(message=part.message, reasoning=reasoning, text=text)
        if part.kind == "reasoning" and self._at.text:
            return  # reasoning goes before the text; what came late is sent with the whole message
        sent = self._at.reasoning if part.kind == "reasoning" else self._at.text
        words = part.text[max(0, sent - part.at) :]
        if words:
            yield from self._opened(part.kind)
            yield self._word(part.kind, words)

    def _word(self, kind: Literal["reasoning", "text"], words: str) -> Event:
        at = self._at
        if kind == "text":
            self._at = at._replace(text=at.text + len(words))
            return {"type": "TEXT_MESSAGE_CONTENT", "messageId": at.message, "delta": words}
        self._at = at._replace(reasoning=at.reasoning + len(words))
        return {"type": "REASONING_MESSAGE_CONTENT", "messageId": _reasoning_id(at.message), "delta": words}

    def _opened(self, kind: Literal["reasoning", "text"]) -> Iterator[Event]:
        """Yield what has to come before words of that kind."""
        if self._at.phase == kind:
            return
        if kind == "text":
            yield from self._closed()
            yield self._to(
                "text", {"type": "TEXT_MESSAGE_START", "messageId": self._at.message, "role": "assistant"}
            )
            return
        named = {"messageId": _reasoning_id(self._at.message)}
        if self._at.phase != "span":
            yield from self._closed()
            yield self._to("span", {"type": "REASONING_START", **named})
        yield self._to("reasoning", {"type": "REASONING_MESSAGE_START", **named, "role": "reasoning"})

    def _closed(self) -> Iterator[Event]:
        """Yield the end of what is open."""
        named = {"messageId": _reasoning_id(self._at.message)}
        if self._at.phase == "text":
            yield self._to("", {"type": "TEXT_MESSAGE_END", "messageId": self._at.message})
        if self._at.phase == "reasoning":
            yield self._to("reasoned", {"type": "REASONING_MESSAGE_END", **named})
        if self._at.phase in ("span", "reasoned"):
            yield self._to("", {"type": "REASONING_END", **named})

    def _to(self, phase: Phase, event: Event) -> Event:
        self._at = self._at._replace(phase=phase)
        return event

    def _abandon(self) -> Iterator[Event]:
        """Yield the end of a message that will never be durable, and what takes its words back."""
        if not self._at.message:
            return
        yield from self._closed()
        was_said = bool(self._at.reasoning or self._at.text)
        self._at = Position(self._at.cursor)
        if was_said:
            yield self._snapshot(self._at.cursor)

    def _snapshot(self, cursor: str) -> Event:
        """Return what makes the client's list that of the thread at a cursor; what it had before no longer counts."""
        self._had, self._calls, self._unknown = {}, {}, set[str]()
        return {"type": SNAPSHOT, "at": cursor}

    def _forgotten(self, message: str) -> Iterator[Event]:
        """Yield what removes messages of the client that the thread does not have, once another one is spoken."""
        if message in self._unknown:
            self._unknown.discard(message)
        elif self._unknown:
            yield self._snapshot(self._at.cursor)

    def _sizes(self, message: str) -> tuple[int, int]:
        """Return how many characters the client has of a message: of its reasoning and of its text."""
        return len(self._text_had(_reasoning_id(message))), len(self._text_had(message))

    def _text_had(self, id: str) -> str:
        had = self._had.get(id)
        return had.content if had is not None and isinstance(had.content, str) else ""

    # ---- what is durable

    def _committed(self, cursor: str, parts: Sequence[DurablePart]) -> Iterator[tuple[Event, str]]:
        """Yield the events of a commit; those that the client has, by its position, are left out."""
        start = self._at._replace(done=0)
        done, self._at = self._at.done, start
        events: list[Event] = []
        if start.message and not any(
            isinstance(part, SpokenPart) and part.id == start.message for part in parts
        ):
            events += self._abandon()
        for part in parts:
            events += self._durable(part)
        if self._is_stale:
            self._is_stale = False
            events.append(self._snapshot(cursor))
        for number, event in enumerate(events[done:], done + 1):
            is_last = number == len(events)
            yield event, str(Position(cursor) if is_last else start._replace(done=number))
        self._at = Position(cursor)

    def _durable(self, part: DurablePart) -> Iterator[Event]:
        match part:
            case SpokenPart():
                yield from self._spoken(part)
            case UserMessagePart(id, message) if id not in self._had:
                yield {"type": "TEXT_MESSAGE_START", "messageId": id, "role": "user"}
                yield {
                    "type": "TEXT_MESSAGE_CONTENT",
                    "messageId": id,
                    "delta": "" if message is None else message.text,
                }
                yield {"type": "TEXT_MESSAGE_END", "messageId": id}
            case ResultPart() if part.id not in self._had:
                yield {"type": "TOOL_CALL_RESULT", "messageId": part.id, **_result(part)}
            case UserMessagePart() | ResultPart() | QuestionPart() | DecisionPart():
                pass

    def _spoken(self, part: SpokenPart) -> Iterator[Event]:
        id, whole = part.id, part.text
        if not self._at.message:
            yield from self._forgotten(id)
            reasoning, text = self._sizes(id)
            self._at = self._at._replace(message=id, reasoning=reasoning, text=text)
        has_other = not whole.startswith(self._text_had(id)) or self._at.text > len(whole)
        late = part.reasoning[self._at.reasoning :]
        if late:
            yield from self._opened("reasoning")
            yield self._word("reasoning", late)
        rest = "" if has_other else whole[self._at.text :]
        if rest:
            yield from self._opened("text")
            yield self._word("text", rest)
        yield from self._closed()
        yield from self._called(part)
        self._at = Position(self._at.cursor)
        self._is_stale = self._is_stale or has_other

    def _called(self, part: SpokenPart) -> Iterator[Event]:
        for call in part.tool_calls:
            had = self._calls.get(call.id)
            if had == call.args:
                continue
            named = {"toolCallId": call.id}
            yield {"type": "TOOL_CALL_START", **named, "toolCallName": call.name, "parentMessageId": part.id}
            yield {"type": "TOOL_CALL_ARGS", **named, "delta": call.args[len(had or "") :]}
            yield {"type": "TOOL_CALL_END", **named}

    # ---- the end

    def _named(self, event: Event) -> Event:
        return {**event, "threadId": self._given.thread_id, "runId": self._given.run_id}

    def _over(self, outcome: RunOutcome) -> Event:
        record = outcome.record
        finished = self._named(
            {
                "type": "RUN_FINISHED",
                "result": {"run": record.id, "status": record.state, "why": record.why},
            }
        )
        match record.state:
            case "waiting" if outcome.tickets:
                interrupts = [_interrupt(ticket) for ticket in outcome.tickets]
                return {**finished, "outcome": {"type": "interrupt", "interrupts": interrupts}}
            case "cancelled":
                return {**finished, "outcome": {"type": "cancelled"}}
            case "waiting" | "succeeded" | "stopped":
                return {**finished, "outcome": {"type": "success"}}
            case "failed":
                return self.fail(record.why or "the run failed.", record.kind or "run_failed")[0]
            case _:
                return self.fail(
                    "the process of the run ended before the run did; send the same request again to go on.",
                    "run_interrupted",
                )[0]


def _reasoning_id(message: str) -> str:
    return f"{message}.reasoning"


def _interrupt(ticket: Ticket) -> Event:
    found: Event = {
        "id": ticket.id,
        "reason": "tool_call" if ticket.action in _QUESTIONS else "input_required",
        "message": ticket.message,
        "toolCallId": ticket.call,
        "metadata": {
            "perdure": {
                "action": ticket.action,
                "tool": ticket.tool,
                "parameters": in_json(ticket.parameters),
            }
        },
    }
    schema = in_json(ticket.response_schema)
    if ticket.action in _QUESTIONS:
        edited = in_json(ticket.arguments_schema) or {"type": "object"}
        properties = {"approved": {"type": "boolean"}, "reason": {"type": "string"}, "editedArgs": edited}
        schema = {"type": "object", "properties": properties, "required": ["approved"]}
    if isinstance(schema, dict):
        found["responseSchema"] = schema
    if ticket.expires_at is not None:
        found["expiresAt"] = stamp(ticket.expires_at)
    return found


# ---- messages as the client has them


def messages_of(
    links: MediaLinks, id: str, role: str, parts: Sequence[DurablePart], message: Message | None
) -> list[Event]:
    """Return one message of the thread as messages of the client: reasoning and results are messages of their own."""
    if role == "tool":
        return [{"id": part.id, **_result(part)} for part in parts if isinstance(part, ResultPart)]
    spoken = SpokenPart(id, message)
    if role != "assistant":
        return [{"id": id, "role": role, "content": _content(links, spoken.content)}]
    found: list[Event] = []
    if spoken.reasoning:
        found.append({"id": _reasoning_id(id), "role": "reasoning", "content": spoken.reasoning})
    said: Event = {"id": id, "role": "assistant"}
    if spoken.text:
        said["content"] = spoken.text
    if spoken.tool_calls:
        said["toolCalls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.args}}
            for call in spoken.tool_calls
        ]
    return [*found, said]


def _result(part: ResultPart) -> Event:
    return {
        "role": "tool",
        "toolCallId": part.call,
        "content": text_of(part.result),
        "metadata": {"perdure": {"state": part.state}},
    }


def _content(links: MediaLinks, content: Sequence[Block]) -> str | list[Event]:
    if all(isinstance(block, Text) for block in content):
        return "".join(block.text for block in content if isinstance(block, Text))
    found: list[Event] = []
    for block in content:
        if isinstance(block, Text):
            found.append({"type": "text", "text": block.text})
        elif isinstance(block, Image | File):
            source = {"type": "url", "value": links.to(block.uri), "mimeType": block.mime_type}
            found.append({"type": "image" if isinstance(block, Image) else "document", "source": source})
    return found
