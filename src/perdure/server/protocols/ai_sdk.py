"""The AI SDK's UI message stream: what `useChat` sends, and the chunks that it reads.

A UI message of the assistant is a whole run, with a step for each of our messages, so its id is the run's.  A stream
that is read again begins with the first chunk of the message and has all of it, as `DefaultChatTransport` expects; the
client then replaces what it had.

Words are sent while the model writes them.  Where they never become durable (another backend took over, the run was
cancelled), `reset-step` takes them back: what the client has at the end is what the thread has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from perdure.errors import Invalid
from perdure.model.message import Block, File, Image, Message, Text, ToolResult
from perdure.model.run import StopKind
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
    "DONE",
    "HEADERS",
    "PROTOCOL",
    "AiSdkBody",
    "ChunkWriter",
    "UiMessage",
    "UiPart",
    "answers_in",
    "input_in",
    "newest",
    "ui_message",
    "user_message",
]

PROTOCOL = "v1"
HEADERS = ((b"x-vercel-ai-ui-message-stream", PROTOCOL.encode()),)
DONE = b"data: [DONE]\n\n"

_FINISH: dict[StopKind, str] = {
    "truncated": "length",
    "refused": "content-filter",
    "guard": "content-filter",
}  # the protocol's words for why a run was stopped; any other is `other`

Chunk = dict[str, Any]


# ---- what the client sends


class UiApproval(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a person to a question about a call."""

    id: str
    approved: bool | None = None
    reason: str | None = None


class UiPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One part of a UI message, as far as it is read."""

    type: str
    text: str | None = None
    url: str | None = None
    media_type: str | None = None
    tool_call_id: str | None = None
    state: str | None = None
    approval: UiApproval | None = None
    output: Any = None
    error_text: str | None = None


class UiMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the client's list."""

    id: str
    role: Literal["system", "user", "assistant"]
    parts: tuple[UiPart, ...] = ()


class AiSdkBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `useChat` sends: its whole list, or the last message alone.  Only the newest message is read."""

    messages: tuple[UiMessage, ...] = ()
    message: UiMessage | None = None
    trigger: str | None = None  # `submit-message` or `regenerate-message`
    # Of the answer to replace, of the message that was edited, or of that with the call decided about; null: the last one.
    message_id: str | None = None


def newest(body: AiSdkBody) -> UiMessage:
    """Return what the client says now; raises `Invalid` if it sent no message.

    That is its last message, or an earlier one of the assistant in which a person has now decided about a call: the
    client names it, and continues it with the answer.
    """
    found = body.message or (body.messages[-1] if body.messages else None)
    if found is None:
        raise Invalid("the request has no message; nothing was run.", code="message_missing")
    if body.trigger == "regenerate-message":
        return found
    by_assistant = [each for each in body.messages if each.role == "assistant"]
    named = next((each for each in by_assistant if each.id == body.message_id), None)
    if named is None and found.role == "assistant":
        named = next((each for each in reversed(by_assistant) if _is_decided(each)), None)
    return named or found


def _is_decided(message: UiMessage) -> bool:
    """True if a person has decided about a call of the message, and the client has no result of it."""
    return any(part.state == "approval-responded" for part in message.parts)


def input_in(message: UiMessage) -> Message:
    """Return the message of a user as it is stored; raises `Invalid` if it has a part that cannot be."""
    blocks: list[Block] = []
    for part in message.parts:
        if part.type == "text" and part.text is not None:
            blocks.append(Text(part.text))
        elif part.type == "file" and part.url is not None and part.media_type is not None:
            blocks.append(media_block(part.url, part.media_type))
        else:
            raise unsupported(part.type)
    return user_input(blocks)


def answers_in(message: UiMessage) -> list[ToolAnswer]:
    """Return what an assistant's message of the client says about calls: approvals, and outputs that it gave."""
    found: list[ToolAnswer] = []
    for part in message.parts:
        call, approval = part.tool_call_id, part.approval
        if call is None:
            continue
        if part.state == "approval-responded" and approval is not None and approval.approved is not None:
            verdict: Verdict = "approve" if approval.approved else "deny"
            found.append(ToolAnswer(call=call, ticket=approval.id, verdict=verdict, why=approval.reason))
        elif part.state == "output-available":
            found.append(ToolAnswer(call=call, ticket=None, verdict="answer", value=part.output))
        elif part.state == "output-error":
            found.append(ToolAnswer(call=call, ticket=None, verdict="deny", why=part.error_text))
    return found


# ---- what the client reads


class ChunkWriter:
    """Translates the parts of one run into the chunks of one UI message.

    What is about a call whose own message is missing (it was forgotten, or lies before what is read) is left out: the
    client has no part that it could go to.
    """

    def __init__(self, links: MediaLinks, run: str, *, after: Iterable[str] = ()) -> None:
        """Begin the message; `after` are tickets that the client has answered: it has all that came up to them."""
        self._links, self._run = links, run
        self._after = set(after)
        self._answered = frozenset(self._after)
        self._asked: set[str] = set()  # tickets whose decision the client does not know
        self._calls: set[str] = set()  # that the client has a part of: it takes nothing about another one
        self._is_started = self._is_in_step = False
        self._is_reset = False  # the step that is open has nothing in it
        self._message: str | None = None
        self._is_writing = False  # a message whose words are not durable yet
        self._open: str | None = None  # the part that words go to: text or reasoning
        self._said = {"reasoning": "", "text": ""}  # of that message
        self._is_mixed = False  # the model reasoned on after it had begun to write

    def take(self, part: Part) -> list[Chunk]:
        """Return the chunks for the next part of the run."""
        is_known = bool(self._after)
        match part:
            case LiveText():
                chunks = self._live_text(part)
            case CommittedParts(parts=parts):
                chunks = self._abandoned(parts)
                for each in parts:
                    chunks += self._durable(each)
                    if isinstance(each, QuestionPart):
                        self._after.discard(each.ticket.id)
            case RunOutcome():
                chunks, is_known = self._over(part), False
        if is_known:
            return []
        if not self._is_started:
            self._is_started = True
            chunks.insert(0, {"type": "start", "messageId": self._run})
        return chunks

    def _live_text(self, part: LiveText) -> list[Chunk]:
        chunks: list[Chunk] = []
        if self._is_writing and part.message != self._message:
            chunks += self._reset()
        if not self._is_writing:
            self._is_writing, self._message = True, part.message
            chunks += self._step()
        new = part.text[max(0, len(self._said[part.kind]) - part.at) :]
        if part.kind == "reasoning" and self._said["text"]:
            self._is_mixed = (
                True  # one part has all reasoning, before the text: it is sent once more at the end
            )
            return chunks
        return chunks + self._words(part.kind, new)

    def _words(self, kind: Literal["reasoning", "text"], words: str) -> list[Chunk]:
        if not words:
            return []
        chunks: list[Chunk] = []
        if self._open != kind:
            chunks += self._close()
            self._open = kind
            chunks.append({"type": f"{kind}-start", "id": self._part_id(kind)})
        self._said[kind] += words
        return [*chunks, {"type": f"{kind}-delta", "id": self._part_id(kind), "delta": words}]

    def _close(self) -> list[Chunk]:
        """End the part that words go to; it names our message."""
        kind, self._open = self._open, None
        if kind is None:
            return []
        named = {} if self._message is None else {"providerMetadata": {"perdure": {"message": self._message}}}
        return [{"type": f"{kind}-end", "id": self._part_id(kind), **named}]

    def _part_id(self, kind: str) -> str:
        return f"{self._message or self._run}/{kind}"

    def _step(self) -> list[Chunk]:
        if self._is_reset:
            self._is_reset = False
            return []
        ended: list[Chunk] = [{"type": "finish-step"}] if self._is_in_step else []
        self._is_in_step = True
        return [*ended, {"type": "start-step"}]

    def _reset(self) -> list[Chunk]:
        """Take back the words of a message that did not become durable, or not as they were sent."""
        chunks: list[Chunk] = [{"type": "reset-step"}] if any(self._said.values()) else []
        self._forget()
        self._is_reset = True
        return chunks

    def _forget(self) -> None:
        self._message, self._is_writing, self._open, self._is_mixed = None, False, None, False
        self._said = {"reasoning": "", "text": ""}

    def _abandoned(self, parts: Sequence[DurablePart]) -> list[Chunk]:
        is_kept = any(isinstance(part, SpokenPart) and part.id == self._message for part in parts)
        return self._reset() if self._is_writing and self._message is not None and not is_kept else []

    def _durable(self, part: DurablePart) -> list[Chunk]:
        match part:
            case SpokenPart():
                return self._spoken(part)
            case UserMessagePart(id, message):
                parts = [] if message is None else _ui_parts(self._links, message.content)
                return [{"type": "steering-message", "id": id, "parts": parts}] if parts else []
            case QuestionPart(ticket):
                if ticket.call not in self._calls:
                    return []
                if ticket.id not in self._answered:
                    self._asked.add(ticket.id)
                return [_approval_request(ticket)]
            case DecisionPart(ticket=ticket, is_approved=is_approved, why=why):
                reason = {} if why is None else {"reason": why}
                answer = {"approvalId": ticket, "approved": is_approved, **reason}
                return [{"type": "tool-approval-response", **answer}] if ticket in self._asked else []
            case ResultPart():
                return [_output(self._links, part)] if part.call in self._calls else []

    def _spoken(self, part: SpokenPart) -> list[Chunk]:
        """Send what is left of a message that has become durable."""
        reasoning, text = part.reasoning, part.text
        is_same = text.startswith(self._said["text"]) and reasoning.startswith(self._said["reasoning"])
        chunks: list[Chunk] = []
        if self._is_writing and (self._is_mixed or not is_same):
            chunks += self._reset()
        elif not self._is_writing:
            chunks += self._step()
        self._is_writing, self._message = True, part.id
        if len(reasoning) > len(self._said["reasoning"]) and self._said["text"]:
            chunks += self._reset()
            self._message = part.id
        chunks += self._words("reasoning", reasoning[len(self._said["reasoning"]) :])
        chunks += self._words("text", text[len(self._said["text"]) :])
        chunks += self._close()
        self._forget()
        self._is_reset = False
        chunks += _files(self._links, part.content)
        for call in part.tool_calls:
            self._calls.add(call.id)
            chunks.append(
                {
                    "type": "tool-input-available",
                    "toolCallId": call.id,
                    "toolName": call.name,
                    "input": in_json(call.args),
                }
            )
        return chunks

    def _over(self, outcome: RunOutcome) -> list[Chunk]:
        record = outcome.record
        chunks = self._reset() if self._is_writing else []
        if self._is_in_step:
            chunks.append({"type": "finish-step"})
        match record.state:
            case "failed":
                return [*chunks, {"type": "error", "errorText": record.why or "the run failed."}]
            case "cancelled":
                return [*chunks, {"type": "abort", "reason": record.why or "cancelled"}]
            case "waiting":
                reason = "tool-calls" if outcome.tickets else "other"
            case "succeeded":
                reason = "stop"
            case "stopped":
                reason = "other" if record.stop is None else _FINISH.get(record.stop.reason, "other")
            case _:
                text = "the process of the run ended before the run did; send the message again to go on."
                return [*chunks, {"type": "error", "errorText": text}]
        return [*chunks, {"type": "finish", "finishReason": reason}]


def _approval_request(ticket: Ticket) -> Chunk:
    about = {
        "action": ticket.action,
        "tool": ticket.tool,
        "parameters": in_json(ticket.parameters),
        "responseSchema": in_json(ticket.response_schema),
        "expiresAt": None if ticket.expires_at is None else stamp(ticket.expires_at),
    }
    return {
        "type": "tool-approval-request",
        "approvalId": ticket.id,
        "toolCallId": ticket.call,
        "reason": ticket.message,
        "approvalDescriptor": {name: value for name, value in about.items() if value is not None},
    }


def _output(links: MediaLinks, settled: ResultPart) -> Chunk:
    call = {"toolCallId": settled.call}
    if settled.state == "denied":
        return {"type": "tool-output-denied", **call}
    if settled.result.status == "error":
        return {"type": "tool-output-error", **call, "errorText": text_of(settled.result)}
    return {"type": "tool-output-available", **call, "output": _value(links, settled.result)}


def _value(links: MediaLinks, result: ToolResult) -> Any:
    """Return a result: the JSON object or array that its text is, else the text; with media, its parts."""
    if any(not isinstance(block, Text) for block in result.content):
        return _ui_parts(links, result.content)
    text = text_of(result)
    return in_json(text) if text.lstrip()[:1] in ("{", "[") else text


def _ui_parts(links: MediaLinks, content: Sequence[Block]) -> list[Chunk]:
    found: list[Chunk] = []
    for block in content:
        if isinstance(block, Text):
            found.append({"type": "text", "text": block.text})
        else:
            found += _files(links, [block])
    return found


def _files(links: MediaLinks, content: Iterable[Block]) -> list[Chunk]:
    return [
        {"type": "file", "url": links.to(block.uri), "mediaType": block.mime_type}
        for block in content
        if isinstance(block, Image | File)
    ]


# ---- messages as the client has them


def user_message(links: MediaLinks, id: str, role: str, message: Message | None) -> Chunk:
    """Return a message of the user, or the system, as a UI message."""
    return {"id": id, "role": role, "parts": [] if message is None else _ui_parts(links, message.content)}


def ui_message(chunks: Iterable[Chunk]) -> Chunk:
    """Return the UI message that the client makes of the chunks of a run."""
    found: Chunk = {"id": "", "role": "assistant", "parts": []}
    parts: list[Chunk] = found["parts"]
    tools: dict[str, Chunk] = {}
    for chunk in chunks:
        match chunk["type"]:
            case "start":
                found["id"] = chunk["messageId"]
            case "start-step":
                parts.append({"type": "step-start"})
            case "reset-step":
                while parts[-1]["type"] != "step-start":
                    parts.pop()
            case "text-start" | "reasoning-start" as kind:
                name = kind.removesuffix("-start")
                parts.append({"type": name, "text": "", "state": "streaming"})
                if name == "reasoning":
                    parts[-1]["id"] = chunk["id"]
            case "text-delta" | "reasoning-delta":
                parts[-1]["text"] += chunk["delta"]
            case "text-end" | "reasoning-end":
                parts[-1] |= {"state": "done", "providerMetadata": chunk["providerMetadata"]}
            case "file" | "steering-message":
                parts.append(chunk)
            case "tool-input-available":
                tools[chunk["toolCallId"]] = part = {
                    "type": f"tool-{chunk['toolName']}",
                    "toolCallId": chunk["toolCallId"],
                    "state": "input-available",
                    "input": chunk["input"],
                }
                parts.append(part)
            case _:
                _apply_to_tool(tools, chunk)
    return found


def _apply_to_tool(tools: dict[str, Chunk], chunk: Chunk) -> None:
    """Apply a chunk about a call to its part; any other chunk changes nothing."""
    match chunk["type"]:
        case "tool-approval-request":
            approval = {
                "id": chunk["approvalId"],
                "descriptor": chunk["approvalDescriptor"],
                "requestReason": chunk["reason"],
            }
            tools[chunk["toolCallId"]] |= {"state": "approval-requested", "approval": approval}
        case "tool-approval-response":
            part = next(
                each for each in tools.values() if each.get("approval", {}).get("id") == chunk["approvalId"]
            )
            reason = {"reason": chunk["reason"]} if "reason" in chunk else {}
            part["state"] = "approval-responded"
            part["approval"] |= {"approved": chunk["approved"], **reason}
        case "tool-output-available":
            tools[chunk["toolCallId"]] |= {"state": "output-available", "output": chunk["output"]}
        case "tool-output-error":
            tools[chunk["toolCallId"]] |= {"state": "output-error", "errorText": chunk["errorText"]}
        case "tool-output-denied":
            tools[chunk["toolCallId"]]["state"] = "output-denied"
        case _:
            pass
