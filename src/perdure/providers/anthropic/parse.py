"""Reads Anthropic's answers, whole or streamed in pieces of any size.

`AnthropicBlocks` turns blocks into canonical content, calls and results, with a layout of the fields that
only Anthropic reads.  A stream is assembled into a whole answer and read in the same way.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.model.run import Usage
from perdure.providers.contract import CallDelta, Loss, ModelEvent, ReasoningChunk, Reply, TextChunk
from perdure.providers.wire.block_order import Piece, shown
from perdure.providers.wire.call_ids import CallNames
from perdure.providers.wire.fields.vendor_items import json_or_text
from perdure.providers.wire.fields.vendor_metadata import call_ids, keep
from perdure.providers.wire.malformed import malformed, unreadable
from perdure.providers.wire.media import data_url, inline
from perdure.providers.wire.server_tools import account
from perdure.providers.wire.stream.reply_events import GrowingTexts, count_of, with_events
from perdure.providers.wire.stream.sse import Events, ServerEvent

__all__ = [
    "PAUSED",
    "VENDOR",
    "parse",
    "reply_of",
    "usage_of",
    "FILE_ID",
    "Raw",
    "AnthropicBlocks",
    "as_list",
    "as_object",
    "compact",
    "AnthropicStream",
]


Raw: TypeAlias = Mapping[str, Any]

FILE_ID = "file-id://anthropic/"

_NEVER_KEPT = frozenset({"cache_control"})  # marks for the prompt cache are made on render


class AnthropicBlocks:
    """Reads the blocks of one message."""

    def __init__(self, ids: CallNames, *, where: str) -> None:
        """Take the ids of the whole request or reply; `where` names the place in errors and losses."""
        self.content: list[Block] = []
        self.calls: list[ToolCall] = []
        self.results: list[ToolResult] = []
        self.pieces: list[Piece] = []
        self.losses: list[Loss] = []
        self._ids = ids
        self._where = where
        self._server_tools: dict[
            object, str
        ] = {}  # the names of server-side tools, by the ids of their calls

    def read(self, blocks: object, raw_arguments: Mapping[int, str] | None = None) -> None:
        """Read all blocks of a message; `raw_arguments` are the arguments of calls that arrived as text."""
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        for at, block in enumerate(as_list(blocks, self._where)):
            place = f"{self._where}[{at}]"
            raw = as_object(block, place)
            kind = raw.get("type")
            if not isinstance(kind, str):
                raise malformed(place, "has no type; it is no block of Anthropic Messages")
            _READERS.get(kind, _reader_of(kind))(self, raw, place)
            if kind == "tool_use" and raw_arguments and at in raw_arguments:
                call = self.calls.pop()
                self.calls.append(ToolCall(id=call.id, name=call.name, args=raw_arguments[at]))

    def _say(self, block: Block, *, add: dict[str, Any] | None = None) -> None:
        self.pieces.append(Piece(content=len(self.content), add=add))
        self.content.append(block)

    def _keep(self, block: Block, native: Raw, *, fill: str | None = None) -> None:
        bare = {key: value for key, value in native.items() if key not in _NEVER_KEPT and key != fill}
        self.pieces.append(Piece(content=len(self.content), native=bare, fill=fill))
        self.content.append(block)

    def text(self, raw: Raw, place: str) -> None:
        self._say(Text(_text_of(raw, "text", place)), add=_more(raw, "text"))

    def thinking(self, raw: Raw, place: str) -> None:
        """Read thinking with the signature that its model demands back."""
        self._keep(ReasoningSummary(_text_of(raw, "thinking", place)), raw, fill="thinking")

    def redacted(self, raw: Raw, place: str) -> None:
        del place
        self._keep(ReasoningSummary(""), raw)

    def call(self, raw: Raw, place: str) -> None:
        """Read a call of the caller's tool."""
        name = _text_of(raw, "name", place)
        self.pieces.append(Piece(call=len(self.calls), add=_more(raw, "id", "name", "input")))
        self.calls.append(
            ToolCall(id=self._ids.call(raw.get("id")), name=name, args=compact(raw.get("input", {})))
        )

    def result(self, raw: Raw, place: str) -> None:
        inner = AnthropicBlocks(self._ids, where=f"{place}.content")
        inner.read(raw.get("content") or [])
        self.losses += inner.losses
        inside = None if all(piece.plain for piece in inner.pieces) else tuple(inner.pieces)
        more = _more(raw, "tool_use_id", "content", "is_error")
        self.pieces.append(Piece(result=len(self.results), add=more, inside=inside))
        status = "error" if raw.get("is_error") else "success"
        call_id = self._ids.result(_text_of(raw, "tool_use_id", place))
        self.results.append(ToolResult(call_id=call_id, status=status, content=tuple(inner.content)))

    def image(self, raw: Raw, place: str) -> None:
        source = as_object(raw.get("source"), f"{place}.source")
        match source.get("type"):
            case "base64":
                uri, mime_type = _inlined(source, place)
                self._say(Image(uri, mime_type), add=_more(raw, "source"))
            case "url":
                uri = _text_of(source, "url", place)
                self._say(Image(uri, _image_type(uri)), add=_more(raw, "source"))
            case "file":
                uri = FILE_ID + _text_of(source, "file_id", place)
                self._say(Image(uri, "image/*"), add=_more(raw, "source"))
            case _:
                self.opaque(raw, place)

    def document(self, raw: Raw, place: str) -> None:
        """Read a document, in one of five forms."""
        source = as_object(raw.get("source"), f"{place}.source")
        match source.get("type"):
            case "base64":
                self._say(File(*_inlined(source, place)), add=_more(raw, "source"))
            case "text":
                body = _text_of(source, "data", place).encode("utf-8", "replace")
                uri = data_url("text/plain", base64.b64encode(body).decode())
                self._say(File(uri, "text/plain"), add=_more(raw, "source"))
            case "url":
                uri = _text_of(source, "url", place)
                self._say(File(uri, "application/pdf"), add=_more(raw, "source"))
            case "file":
                uri = FILE_ID + _text_of(source, "file_id", place)
                self._say(File(uri, "application/octet-stream"), add=_more(raw, "source"))
            case "content":
                self._keep(Text(_words_of(raw, source.get("content"))), raw)
            case _:
                self.opaque(raw, place)

    def search_result(self, raw: Raw, place: str) -> None:
        """Read a result of the caller's own search, which can be cited."""
        del place
        self._keep(Text(_words_of(raw, raw.get("content"))), raw)

    def upload(self, raw: Raw, place: str) -> None:
        """Read a file for the container in which code runs."""
        uri = FILE_ID + _text_of(raw, "file_id", place)
        self._keep(File(uri, "application/octet-stream"), raw)

    def server_call(self, raw: Raw, place: str) -> None:
        """Read a call of a tool that Anthropic runs itself."""
        name = _text_of(raw, "name", place)
        self._server_tools[str(raw.get("id"))] = name
        self._keep(account(str(raw["type"]), name, input=raw.get("input")), raw)

    def server_result(self, raw: Raw, place: str) -> None:
        del place
        kind = str(raw["type"])
        name = self._server_tools.get(str(raw.get("tool_use_id"))) or kind.removesuffix("_tool_result")
        self._keep(account(kind, name, result=raw.get("content")), raw)

    def account(self, raw: Raw, place: str) -> None:
        """Add a readable description of one of Anthropic's own blocks."""
        del place
        kind = str(raw["type"])
        told = raw.get("content") or {key: value for key, value in raw.items() if key != "type"}
        self._keep(account(kind, kind, result=told), raw)

    def opaque(self, raw: Raw, place: str) -> None:
        """Keep a block of an unknown kind for Anthropic, and report it."""
        self.account(raw, place)
        why = "this kind of block is not known; it is kept as it is for Anthropic"
        self.losses.append(Loss(kind="converted", where=place, what=str(raw["type"]), why=why))


_Reader: TypeAlias = Callable[[AnthropicBlocks, Raw, str], None]

_READERS: dict[str, _Reader] = {
    "text": AnthropicBlocks.text,
    "thinking": AnthropicBlocks.thinking,
    "redacted_thinking": AnthropicBlocks.redacted,
    "tool_use": AnthropicBlocks.call,
    "tool_result": AnthropicBlocks.result,
    "image": AnthropicBlocks.image,
    "document": AnthropicBlocks.document,
    "search_result": AnthropicBlocks.search_result,
    "container_upload": AnthropicBlocks.upload,
    "server_tool_use": AnthropicBlocks.server_call,
    "mcp_tool_use": AnthropicBlocks.server_call,
    "compaction": AnthropicBlocks.account,
    "tool_reference": AnthropicBlocks.account,
    "tool_addition": AnthropicBlocks.account,
}


def _reader_of(kind: str) -> _Reader:
    return AnthropicBlocks.server_result if kind.endswith("_tool_result") else AnthropicBlocks.opaque


def as_object(value: object, where: str) -> Raw:
    """Return a JSON object, or `Invalid`."""
    if not isinstance(value, Mapping):
        raise malformed(where, "is not an object; this is no Anthropic Messages format")
    return cast("Raw", value)


def as_list(value: object, where: str) -> Sequence[object]:
    """Return a JSON array, or `Invalid`."""
    if not isinstance(value, list | tuple):
        raise malformed(where, "is not a list; this is no Anthropic Messages format")
    return cast("Sequence[object]", value)


def compact(value: object) -> str:
    """Return a value that came parsed, as JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _text_of(raw: Raw, key: str, place: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str):
        raise malformed(f"{place}.{key}", "is not text; this is no Anthropic Messages format")
    return value


def _more(raw: Raw, *known: str) -> dict[str, Any] | None:
    """Return a block's fields beyond the known ones, without empty values."""
    skipped = {"type", *known, *_NEVER_KEPT}
    more = {key: value for key, value in raw.items() if key not in skipped and value not in (None, [])}
    return more or None


def _inlined(source: Raw, place: str) -> tuple[str, str]:
    """Return the data URL of a base64 source, by what its bytes are."""
    data = _text_of(source, "data", place)
    declared = str(source.get("media_type") or "application/octet-stream")
    held = inline(data_url(declared, data))
    named = declared if held is None else held.media_type
    return data_url(named, data), named


def _image_type(uri: str) -> str:
    ending = uri.partition("?")[0].rpartition(".")[2].lower()
    known = {"png": "png", "jpg": "jpeg", "jpeg": "jpeg", "gif": "gif", "webp": "webp"}
    return f"image/{known.get(ending, '*')}"


def _words_of(raw: Raw, content: object) -> str:
    """Return the words of a document or search result that is made of blocks."""
    blocks = cast("Sequence[object]", content) if isinstance(content, list | tuple) else ()
    texts = [str(cast("Raw", block).get("text", "")) for block in blocks if isinstance(block, Mapping)]
    if isinstance(content, str):
        texts = [content]
    heads = [str(raw[key]) for key in ("title", "source") if isinstance(raw.get(key), str)]
    return "\n".join([*heads, *texts])


VENDOR = "anthropic"
PAUSED = ("pause_turn", "compaction")  # the turn is sent back as it is, and goes on

_BESIDE = ("stop_sequence", "stop_details", "container", "context_management", "usage")


def parse(body: Raw, *, provider: str | None = None) -> Reply:
    """Return a whole answer."""
    raw = as_object(body, "the answer")
    if raw.get("type") == "error":
        told = as_object(raw.get("error") or {}, "error")
        raise unreadable(
            "error_answer",
            f"Anthropic answered with an error, no message: {told.get('type')}: {told.get('message')}",
        )
    if raw.get("type", "message") != "message" or raw.get("content") is None:
        raise unreadable(
            "not_an_answer", "this is no answer of Anthropic Messages: it has no type 'message' with content"
        )
    return with_events(reply_of(raw, provider=provider))


def reply_of(
    raw: Raw,
    *,
    provider: str | None = None,
    raw_arguments: Mapping[int, str] | None = None,
    losses: tuple[Loss, ...] = (),
) -> Reply:
    """Return the reply that an answer's fields make, without events."""
    reading = AnthropicBlocks(CallNames(), where="content")
    reading.read(raw.get("content") or [], raw_arguments)
    stop = raw.get("stop_reason")
    facts: dict[str, Any] = {
        "endpoint": provider or VENDOR,
        "model": raw.get("model"),
        "message_id": raw.get("id"),
        "blocks": shown(reading.pieces),
        "call_ids": call_ids(reading.calls),
        "stop_reason": stop if stop in PAUSED else None,
        **{name: raw.get(name) for name in _BESIDE},
    }
    message = Message(
        role="assistant",
        content=tuple(reading.content),
        tool_calls=tuple(reading.calls),
        vendor_metadata=keep(VENDOR, facts),
    )
    return Reply(
        message=message,
        stop=stop if isinstance(stop, str) else None,
        usage=usage_of(raw.get("usage")),
        losses=(*reading.losses, *losses),
    )


def usage_of(raw: object) -> Usage:
    """Return the usage; Anthropic counts the tokens of a cache beside the input, here they are a part of it."""
    told = as_object(raw or {}, "usage")
    more = as_object(told.get("output_tokens_details") or {}, "usage.output_tokens_details")
    read = count_of(told.get("cache_read_input_tokens"))
    written = count_of(told.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=count_of(told.get("input_tokens")) + read + written,
        output_tokens=count_of(told.get("output_tokens")),
        cached_tokens=read,
        reasoning_tokens=count_of(more.get("thinking_tokens")),
        cache_write_tokens=written,
    )


_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


class _OpenBlock:
    """A block of a stream that is not complete yet."""

    def __init__(self, start: Raw, call: int) -> None:
        self.start = dict(start)
        self.call = call  # which of the step's calls, if it is one
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.arguments: list[str] = []
        self.cited: list[object] | None = None  # its citations, once more of them came
        self.growing = GrowingTexts()
        self.whole = False

    @property
    def kind(self) -> str:
        return str(self.start.get("type"))

    def block(self) -> dict[str, Any]:
        """Return the block as a whole answer would have it."""
        self.growing.settle()
        made = dict(self.start)
        if self.texts:
            made["text"] = str(made.get("text") or "") + "".join(self.texts)
        if self.thoughts:
            made["thinking"] = str(made.get("thinking") or "") + "".join(self.thoughts)
        if self.arguments and self.kind != "tool_use":
            made["input"] = json_or_text("".join(self.arguments))
        return made

    def cite(self, citation: object) -> None:
        """Add a citation to those that the block has."""
        if self.cited is None:
            known = as_list(self.start.get("citations") or [], "content_block.citations")
            self.cited = self.start["citations"] = list(known)
        self.cited.append(citation)

    def raw_arguments(self) -> str:
        """Return the arguments as they came."""
        return "".join(self.arguments) or compact(self.start.get("input") or {})


class AnthropicStream:
    """Parses a streamed answer."""

    def __init__(self, *, provider: str | None = None) -> None:
        """Read a stream from the server of `provider`."""
        self._provider = provider
        self._events = Events()
        self._message: dict[str, Any] | None = None
        self._blocks: dict[int, _OpenBlock] = {}
        self._calls = 0
        self._emitted: list[ModelEvent] = []
        self._losses: list[Loss] = []
        self._error: str | None = None

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events that these next bytes complete."""
        return self._take(self._events.feed(data))

    def close(self) -> Reply:
        """Return the whole answer, at the end of the stream."""
        self._take(self._events.rest())
        if self._message is None or (self._error and not self._blocks):
            why = self._error or "it ended before it began"
            raise unreadable(
                "stream_without_answer", f"this stream of Anthropic Messages holds no answer: {why}"
            )
        blocks = self._whole_blocks()
        raw_arguments = {
            at: block.raw_arguments() for at, block in enumerate(blocks) if block.kind == "tool_use"
        }
        body = self._message | {"content": [block.block() for block in blocks]}
        reply = reply_of(
            body, provider=self._provider, raw_arguments=raw_arguments, losses=tuple(self._losses)
        )
        return with_events(reply, self._emitted)

    def _whole_blocks(self) -> list[_OpenBlock]:
        """Return all blocks but calls that were cut off: words that came stand, half of the arguments mean nothing."""
        if self._error:
            self._lose("the stream", "rest of the answer", f"it ended in an error: {self._error}")
        kept: list[_OpenBlock] = []
        for index in sorted(self._blocks):
            block = self._blocks[index]
            if block.whole or block.kind not in _CALLS:
                kept.append(block)
            else:
                self._lose(f"content[{index}]", "tool call", "the stream ended in the middle of it")
        return kept

    def _lose(self, where: str, what: str, why: str) -> None:
        self._losses.append(Loss(kind="dropped", where=where, what=what, why=why))

    def _take(self, events: list[ServerEvent]) -> list[ModelEvent]:
        told: list[ModelEvent] = []
        for event in events:
            if event.data.strip() and event.data.strip() != "[DONE]":
                told += self._event(_object(event.data))
        self._emitted += told
        return told

    def _event(self, event: Raw) -> list[ModelEvent]:
        match event.get("type"):
            case "message_start":
                self._begin(as_object(event.get("message"), "message_start.message"))
            case "content_block_start":
                return self._start(_index(event), as_object(event.get("content_block"), "content_block"))
            case "content_block_delta":
                return self._delta(_index(event), as_object(event.get("delta"), "delta"))
            case "content_block_stop":
                return self._stop(self._block(_index(event)))
            case "message_delta":
                self._finish(event)
            case "error":
                told = as_object(event.get("error") or {}, "error")
                self._error = f"{told.get('type')}: {told.get('message')}"
            case "ping" | "message_stop":
                pass
            case kind:
                if kind is None:
                    raise unreadable(
                        "stream_malformed",
                        "an event of the stream has no type; it is none of Anthropic Messages",
                    )
                self._lose("the stream", f"event {kind}", "this kind of event is not known")
        return []

    def _begin(self, message: Raw) -> None:
        if self._message is not None:
            self._lose("the stream", "message", "another one begins after it")
            self._blocks.clear()
        self._message = dict(message)

    def _start(self, index: int, start: Raw) -> list[ModelEvent]:
        if self._message is None:
            raise unreadable(
                "stream_malformed",
                "the stream has a block before its message_start; it is none of Anthropic Messages",
            )
        block = _OpenBlock(start, self._calls)
        self._blocks[index] = block
        match block.kind:
            case "tool_use":
                self._calls += 1
                return [CallDelta(block.call, str(start.get("name")), "")]
            case "text":
                return [TextChunk(text)] if (text := str(start.get("text") or "")) else []
            case "thinking":
                return [ReasoningChunk(text)] if (text := str(start.get("thinking") or "")) else []
            case _:
                return []

    def _delta(self, index: int, delta: Raw) -> list[ModelEvent]:
        block = self._block(index)
        match delta.get("type"):
            case "text_delta":
                block.texts.append(text := _words(delta, "text"))
                return [TextChunk(text)] if text else []
            case "thinking_delta":
                block.thoughts.append(text := _words(delta, "thinking"))
                return [ReasoningChunk(text)] if text else []
            case "input_json_delta":
                block.arguments.append(text := _words(delta, "partial_json"))
                is_call = block.kind == "tool_use" and text
                return [CallDelta(block.call, str(block.start.get("name")), text)] if is_call else []
            case "signature_delta":
                block.growing.add(block.start, "signature", _words(delta, "signature"))
            case "citations_delta":
                block.cite(delta.get("citation"))
            case "compaction_delta":
                _extend(block, delta)
            case kind:
                self._unknown(block, index, str(kind), delta)
        return []

    def _stop(self, block: _OpenBlock) -> list[ModelEvent]:
        """End a block; return the event of a call that arrived in one piece."""
        block.whole = True
        if block.kind != "tool_use" or block.arguments or not block.start.get("input"):
            return []
        return [CallDelta(block.call, str(block.start.get("name")), block.raw_arguments())]

    def _unknown(self, block: _OpenBlock, index: int, kind: str, delta: Raw) -> None:
        """Keep a delta of an unknown kind with its block."""
        _extend(block, delta)
        why = "this kind of delta is not known; it is kept with its block for Anthropic"
        self._losses.append(Loss(kind="converted", where=f"content[{index}]", what=kind, why=why))

    def _block(self, index: int) -> _OpenBlock:
        if index not in self._blocks:
            raise unreadable(
                "stream_malformed", f"the stream goes on with block {index}, which it never began"
            )
        return self._blocks[index]

    def _finish(self, event: Raw) -> None:
        if self._message is None:
            raise unreadable("stream_malformed", "the stream has a message_delta before its message_start")
        self._message |= as_object(event.get("delta") or {}, "message_delta.delta")
        if "context_management" in event:
            self._message["context_management"] = event["context_management"]
        told = as_object(event.get("usage") or {}, "message_delta.usage")
        before = as_object(self._message.get("usage") or {}, "message.usage")
        self._message["usage"] = {
            **before,
            **{key: value for key, value in told.items() if value is not None},
        }


def _extend(block: _OpenBlock, delta: Raw) -> None:
    for key, value in delta.items():
        if key == "type":
            continue
        if isinstance(block.start.get(key), str) and isinstance(value, str):
            block.growing.add(block.start, key, value)
        else:
            block.growing.put(block.start, key, value)


def _index(event: Raw) -> int:
    index = event.get("index")
    if not isinstance(index, int):
        raise unreadable("stream_malformed", f"a {event.get('type')} of the stream has no index")
    return index


def _words(delta: Raw, key: str) -> str:
    value = delta.get(key)
    if not isinstance(value, str):
        raise unreadable("stream_malformed", f"a {delta.get('type')} of the stream has no {key}")
    return value


def _object(text: str) -> Raw:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unreadable("stream_malformed", f"an event of the stream is not JSON: {error}") from error
    return as_object(value, "an event of the stream")
