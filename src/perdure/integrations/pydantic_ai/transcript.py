"""The messages of pydantic-ai as messages of a thread's transcript, and back.

A request of pydantic-ai holds what several parties say: system prompts, the user's words, results of tools.  Each party's
words become a message of their own, in the order of the parts.  What a transcript has no place for (instructions, signatures
of thoughts, a provider's own tools, …) stays whole in the entry that is stored beside it, and is listed by `said_by`.

The other way, each message of a transcript that another framework or a run of ours wrote becomes one message of pydantic-ai.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

from pydantic_ai import messages as pm

from perdure.integrations import foreign_ids
from perdure.model.message import (
    Block,
    File,
    Image,
    Message,
    ReasoningSummary,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from perdure.projections.transcript import TranscriptEntry
from perdure.providers.contract import Loss

__all__ = ["Fetch", "model_message", "said_by", "tool_names"]

Fetch: TypeAlias = Callable[[str], bytes]
"""Returns the content of an artifact by its reference."""

_ERRORS = ("failed", "retried")
_SIGNED = ("signature", "provider_details", "citations", "id")


def said_by(message: pm.ModelMessage) -> tuple[list[Message], list[Loss]]:
    """Return the messages that a transcript has for a message of pydantic-ai, and what has no place there."""
    losses: list[Loss] = []
    if isinstance(message, pm.ModelRequest):
        if message.instructions:
            losses.append(_kept("instructions", "instructions"))
        return _of_request(message.parts, losses), losses
    return _of_response(message.parts, losses), losses


def _kept(where: str, what: str) -> Loss:
    return Loss(
        kind="dropped",
        where=where,
        what=what,
        why="a transcript has no place for it; it is in the stored entry",
    )


def _of_request(parts: Sequence[Any], losses: list[Loss]) -> list[Message]:
    found: list[Message] = []
    for number, part in enumerate(parts):
        where = f"parts[{number}]"
        match part.part_kind:
            case "tool-return":
                _add(found, "tool", results=(_result(part, where, losses),))
            case "retry-prompt" if part.tool_name is not None:
                _add(found, "tool", results=(_result_of(part.tool_call_id, "error", part.model_response()),))
            case "system-prompt":
                _add(found, "system", (Text(part.content),))
            case "user-prompt":
                given = [part.content] if isinstance(part.content, str) else part.content
                _add(found, "user", tuple(_blocks(given, where, losses)))
            case "retry-prompt" | "retry-feedback":
                _add(found, "user", (Text(part.model_response()),))
            case "compaction":
                _add(found, "user", (Text(part.content or "[summary]"),))
            case "speech":
                _add(found, "user", tuple(_speech(part)))
            case kind:
                losses.append(_kept(where, kind))
    return [each for each in found if each.content or each.tool_results]


def _add(
    found: list[Message],
    role: Role,
    blocks: tuple[Block, ...] = (),
    *,
    results: tuple[ToolResult, ...] = (),
) -> None:
    """Add words to the last message, if the same party said it; else as a message of their own."""
    last = found[-1] if found and found[-1].role == role else None
    if last is not None:
        found[-1] = Message(role, last.content + blocks, (), last.tool_results + results)
    else:
        found.append(Message(role, blocks, (), results))


def _blocks(content: Sequence[Any], where: str, losses: list[Loss]) -> Iterable[Block]:
    for number, item in enumerate(content):
        at = f"{where}.content[{number}]"
        if isinstance(item, str):
            if item:
                yield Text(item)
        elif isinstance(item, pm.TextContent):
            yield Text(item.content)
        elif isinstance(item, pm.BinaryContent):
            yield _media(item.data_uri, item.media_type)
        elif isinstance(item, pm.FileUrl):
            yield _media(item.url, _type_of(item))
        else:
            losses.append(_kept(at, item.kind))
            if item.kind != "cache-point":  # a mark is no content
                yield Text(f"[{item.kind}]")


def _type_of(url: pm.FileUrl) -> str:
    try:
        return url.media_type
    except ValueError:  # neither given nor to be seen in the address
        return "image/*" if isinstance(url, pm.ImageUrl) else "application/octet-stream"


def _media(uri: str, media_type: str) -> Block:
    return Image(uri, media_type) if media_type.startswith("image/") else File(uri, media_type)


def _speech(part: pm.SpeechPart) -> Iterable[Block]:
    yield Text(part.transcript or "[speech]")
    if part.audio is not None:
        yield _media(part.audio.data_uri, part.audio.media_type)


def _result(part: pm.ToolReturnPart, where: str, losses: list[Loss]) -> ToolResult:
    if part.files:
        losses.append(_kept(f"{where}.content", "files of a tool"))
    status = "error" if part.outcome in _ERRORS else "success"
    return _result_of(part.tool_call_id, status, part.model_response_str(wrap_if_error=False))


def _result_of(call: str, status: Any, text: str) -> ToolResult:
    return ToolResult(foreign_ids.thread_id(call), status, (Text(text),) if text else ())


def _of_response(parts: Sequence[Any], losses: list[Loss]) -> list[Message]:
    blocks: list[Block] = []
    calls: list[ToolCall] = []
    for number, part in enumerate(parts):
        where = f"parts[{number}]"
        if any(getattr(part, each, None) for each in _SIGNED):
            losses.append(_kept(where, "what only the provider reads"))
        match part.part_kind:
            case "text" if part.content:
                blocks.append(Text(part.content))
            case "thinking" if part.content:
                blocks.append(ReasoningSummary(part.content))
            case "tool-call":
                id = foreign_ids.thread_id(part.tool_call_id)
                calls.append(ToolCall(id, part.tool_name, part.args_as_json_str()))
            case "file":
                blocks.append(_media(part.content.data_uri, part.content.media_type))
            case "speech":
                blocks += _speech(part)
            case "compaction" if part.content:
                blocks.append(Text(part.content))
            case "text" | "thinking":
                pass  # it is empty
            case kind:
                losses.append(_kept(where, kind))
    return [Message("assistant", tuple(blocks), tuple(calls))] if blocks or calls else []


def tool_names(entries: Iterable[TranscriptEntry]) -> dict[str, str]:
    """Return the names of the tools that messages ask for, by the ids of the calls."""
    asked = (call for entry in entries if entry.words is not None for call in entry.words.tool_calls)
    return {call.id: call.name for call in asked}


def model_message(
    entry: TranscriptEntry, tools: Mapping[str, str], fetch: Fetch, *, conversation_id: str
) -> pm.ModelMessage:
    """Return a message of a transcript as a message of pydantic-ai; `tools` has the names of the tools of calls."""
    words, at = entry.message, datetime.fromtimestamp(entry.at / 1e6, UTC)
    if words.role == "assistant":
        return pm.ModelResponse(
            list(_response_parts(words, fetch)),
            model_name=entry.model,
            provider_name=entry.provider,
            timestamp=at,
            conversation_id=conversation_id,
        )
    parts: list[Any] = []
    if words.role == "system":
        parts.append(pm.SystemPromptPart(words.text, timestamp=at))
    elif words.content:
        content = [_user_content(each, fetch) for each in words.content]
        only = content[0] if len(content) == 1 and isinstance(content[0], str) else content
        parts.append(pm.UserPromptPart(cast("Any", only), timestamp=at))
    for result in words.tool_results:
        content = [_user_content(each, fetch) for each in result.content]
        parts.append(
            pm.ToolReturnPart(
                tool_name=tools.get(result.call_id, "unknown"),
                content=cast("Any", content[0] if len(content) == 1 else content or ""),
                tool_call_id=result.call_id,
                timestamp=at,
                outcome="failed" if result.status == "error" else "success",
            )
        )
    return pm.ModelRequest(parts, timestamp=at, conversation_id=conversation_id)


def _response_parts(words: Message, fetch: Fetch) -> Iterable[Any]:
    for block in words.content:
        if isinstance(block, Text):
            yield pm.TextPart(block.text)
        elif isinstance(block, ReasoningSummary):
            yield pm.ThinkingPart(block.text)
        elif block.uri.startswith("artifact:"):
            yield pm.FilePart(pm.BinaryContent(fetch(block.uri), media_type=block.mime_type))
        else:
            yield pm.TextPart(f"[{block.mime_type}: {block.uri}]")
    for call in words.tool_calls:
        yield pm.ToolCallPart(call.name, call.args, call.id)


def _user_content(block: Block, fetch: Fetch) -> Any:
    if isinstance(block, Text | ReasoningSummary):
        return block.text
    if block.uri.startswith("artifact:"):
        return pm.BinaryContent(fetch(block.uri), media_type=block.mime_type)
    kind = pm.ImageUrl if isinstance(block, Image) else pm.DocumentUrl
    return kind(block.uri, media_type=block.mime_type)
