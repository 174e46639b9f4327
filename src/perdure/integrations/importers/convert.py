"""Turns the parts of an entry of another tool into messages that can be stored, and says what was lost.

Parts are messages already, or items in the wire format of their session, which its adapter reads.  A part that cannot be
read is left out and named; the others of its entry are kept.  Files beside the session are read here, when a message
that names them is written.  What the source says beside a message goes where no vendor looks.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, cast

import msgspec

from perdure.errors import PerdureError
from perdure.integrations.importers.session import (
    ForeignSession,
    Json,
    SessionEntry,
    SourcePart,
    as_list,
    as_object,
    as_text,
    shortened,
)
from perdure.model.artifact import sniff
from perdure.model.message import (
    Block,
    File,
    Image,
    Message,
    ReasoningSummary,
    ToolCall,
    ToolResult,
    check_message,
)
from perdure.model.names import ID_BYTES_MAX
from perdure.providers.contract import Loss
from perdure.providers.wire.fields.vendor_metadata import made_by, parsed_metadata
from perdure.providers.wire.media import data_url, media_type_of
from perdure.runtime.import_messages import read

__all__ = ["converted", "shown_error"]

_ANY = "application/octet-stream"


def converted(
    session: ForeignSession, parts: Sequence[SourcePart], entry: SessionEntry
) -> tuple[list[Message], tuple[Loss, ...]]:
    """Return the messages of some parts of an entry, and what was lost; parts that cannot be read are left out."""
    try:
        return _converted(session, parts, entry)
    except (PerdureError, ValueError, TypeError, RecursionError) as error:
        if len(parts) == 1:
            why = f"it cannot be read: {shown_error(error)}; it is kept in the original"
            loss = Loss(kind="dropped", where=parts[0].where, what="message", why=why)
            return [], (loss,)
    found: list[Message] = []
    losses: list[Loss] = []
    for part in parts:
        messages, lost = converted(session, (part,), entry)
        found += messages
        losses += lost
    return found, tuple(losses)


def shown_error(error: Exception) -> str:
    """Return what an error says in a sentence of the report."""
    return str(error).split(";")[0][:200] or type(error).__name__


def _converted(
    session: ForeignSession, parts: Sequence[SourcePart], entry: SessionEntry
) -> tuple[list[Message], tuple[Loss, ...]]:
    messages: list[Message] = []
    losses: tuple[Loss, ...] = ()
    items = [part.item for part in parts if not isinstance(part.item, Message)]
    thoughts: list[Message] = []
    if session.api == "openai-responses":
        items, thoughts = _with_followers(items)
    if items:
        context, losses = read(_combined(session.api, items), session.api)
        messages += context.messages
    messages += thoughts
    messages += [part.item for part in parts if isinstance(part.item, Message)]
    where = parts[0].where
    losses = tuple(msgspec.structs.replace(loss, where=f"{where}: {loss.where}") for loss in losses)
    failed = {str(cast("Any", part.item).get("call_id")) for part in parts if part.is_error}
    sound = [_sound(each, failed) for each in messages if each.role != "system"]
    if entry.model:
        sound = [made_by(each, entry.model) if each.role == "assistant" else each for each in sound]
    sound, lost = _with_files(session, sound, where)
    for message in sound:
        check_message(message)
    if sound:
        sound[0] = _with_facts(sound[0], session.format, [dict(part.facts) for part in parts if part.facts])
    return sound, (*losses, *lost)


def _with_files(
    session: ForeignSession, messages: Sequence[Message], where: str
) -> tuple[list[Message], list[Loss]]:
    """Return messages with the bytes of the files that they name; one that cannot be read is left out, and a loss."""
    losses: list[Loss] = []
    if not session.files:
        return list(messages), losses

    def given(blocks: Sequence[Block]) -> Iterator[Block]:
        for block in blocks:
            if not isinstance(block, File) or block.uri not in session.files:
                yield block
                continue
            file = session.files[block.uri]
            try:
                yield _medium(block.mime_type, file.read())
            except PerdureError as error:
                why = f"it cannot be read: {shown_error(error)}"
                losses.append(Loss(kind="dropped", where=where, what=file.name[:80], why=why))

    found: list[Message] = []
    for message in messages:
        results = [
            msgspec.structs.replace(each, content=tuple(given(each.content))) for each in message.tool_results
        ]
        content = tuple(given(message.content))
        if content or results or message.tool_calls or not message.content:
            found.append(msgspec.structs.replace(message, content=content, tool_results=tuple(results)))
    return found, losses


def _medium(declared: str, body: bytes) -> Block:
    """Return bytes as a block of the type that they have."""
    media_type = media_type_of(declared, body)
    if media_type == _ANY:
        media_type = sniff(body[:4_096], whole=len(body) <= 4_096).partition(";")[0]
    uri = data_url(media_type, base64.b64encode(body).decode())
    return Image(uri, media_type) if media_type.startswith("image/") else File(uri, media_type)


def _combined(api: str, items: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the items of one entry as the wire format has them: Anthropic's blocks are in one message."""
    if api != "anthropic-messages":
        return list(items)
    blocks = [block for item in items for block in item["content"]]
    return [{"role": items[0]["role"], "content": blocks}]


def _with_followers(items: Sequence[Json]) -> tuple[list[Json], list[Message]]:
    """Return items as OpenAI takes them back, and thoughts that nothing followed as plain messages.

    The API refuses reasoning without the item that it led to, and an id of reasoning whose item has lost its own.
    """
    found = list(items)
    thoughts: list[Message] = []
    while found and found[-1].get("type") == "reasoning":
        told = [as_text(as_object(each).get("text")) for each in as_list(found.pop().get("summary"))]
        blocks = tuple(ReasoningSummary(text) for text in told if text)
        thoughts[:0] = [Message("assistant", blocks)] if blocks else []
    for at, item in enumerate(found):
        if item.get("type") == "reasoning" and "id" in item:
            led_to = next(each for each in found[at:] if each.get("type") != "reasoning")
            if not as_text(led_to.get("id")):
                found[at] = {field: value for field, value in item.items() if field != "id"}
    return found, thoughts


def _sound(message: Message, failed: Set[str]) -> Message:
    """Return the message with ids and names of calls that can be stored; the calls in `failed` ended in an error."""
    calls = [
        ToolCall(
            shortened(call.id or "-", ID_BYTES_MAX), shortened(call.name or "-", ID_BYTES_MAX), call.args
        )
        for call in message.tool_calls
    ]
    results = [
        ToolResult(
            shortened(result.call_id or "-", ID_BYTES_MAX),
            "error" if result.call_id in failed else result.status,
            result.content,
        )
        for result in message.tool_results
    ]
    return msgspec.structs.replace(message, tool_calls=tuple(calls), tool_results=tuple(results))


def _with_facts(message: Message, format: str, facts: list[dict[str, Any]]) -> Message:
    """Return the message with what the source says beside it, where no vendor looks."""
    if not facts:
        return message
    told = parsed_metadata(message)
    vendors = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    text = json.dumps({**vendors, format: facts}, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return msgspec.structs.replace(message, vendor_metadata=text)
