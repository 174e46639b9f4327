"""Anthropic's answers, whole ones; streams are put together and read in the same way.

From Anthropic's blocks to canonical content, calls and results, with a layout of what only Anthropic reads.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from perdure.errors import Invalid
from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.model.run import Usage
from perdure.providers.contract import Loss, Reply
from perdure.providers.wire.block_order import Piece, shown
from perdure.providers.wire.call_ids import CallNames
from perdure.providers.wire.fields.vendor_metadata import call_ids, keep
from perdure.providers.wire.media import data_url, inline
from perdure.providers.wire.server_tools import account
from perdure.providers.wire.stream.reply_events import count_of, with_events

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
]


Raw: TypeAlias = Mapping[str, Any]

FILE_ID = "file-id://anthropic/"

_NEVER_KEPT = frozenset({"cache_control"})  # marks for the prompt cache are made on render


class AnthropicBlocks:
    """The blocks of one message, as far as they were read."""

    def __init__(self, ids: CallNames, *, where: str) -> None:
        """`ids` are those of the whole request or reply; `where` is for errors and losses."""
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
        """Take all blocks of a message; `raw_arguments` are the texts of calls, where they came as text."""
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        for at, block in enumerate(as_list(blocks, self._where)):
            place = f"{self._where}[{at}]"
            raw = as_object(block, place)
            kind = raw.get("type")
            if not isinstance(kind, str):
                raise Invalid(f"{place} has no type; it is no block of Anthropic Messages. Nothing was read.")
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
        """Words, and what they cite."""
        self._say(Text(_text_of(raw, "text", place)), add=_more(raw, "text"))

    def thinking(self, raw: Raw, place: str) -> None:
        """Thinking, with the signature that its model demands back."""
        self._keep(ReasoningSummary(_text_of(raw, "thinking", place)), raw, fill="thinking")

    def redacted(self, raw: Raw, place: str) -> None:
        """Thinking that nobody is shown."""
        del place
        self._keep(ReasoningSummary(""), raw)

    def call(self, raw: Raw, place: str) -> None:
        """A call of a tool that the caller has."""
        name = _text_of(raw, "name", place)
        self.pieces.append(Piece(call=len(self.calls), add=_more(raw, "id", "name", "input")))
        self.calls.append(
            ToolCall(id=self._ids.call(raw.get("id")), name=name, args=compact(raw.get("input", {})))
        )

    def result(self, raw: Raw, place: str) -> None:
        """What such a tool gave."""
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
        """A picture."""
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
        """A document, in one of five ways."""
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
        """Something found by the caller's own search, which can be cited."""
        del place
        self._keep(Text(_words_of(raw, raw.get("content"))), raw)

    def upload(self, raw: Raw, place: str) -> None:
        """A file for the container in which code runs."""
        uri = FILE_ID + _text_of(raw, "file_id", place)
        self._keep(File(uri, "application/octet-stream"), raw)

    def server_call(self, raw: Raw, place: str) -> None:
        """A call of a tool that Anthropic runs itself."""
        name = _text_of(raw, "name", place)
        self._server_tools[str(raw.get("id"))] = name
        self._keep(account(str(raw["type"]), name, input=raw.get("input")), raw)

    def server_result(self, raw: Raw, place: str) -> None:
        """What such a tool gave."""
        del place
        kind = str(raw["type"])
        name = self._server_tools.get(str(raw.get("tool_use_id"))) or kind.removesuffix("_tool_result")
        self._keep(account(kind, name, result=raw.get("content")), raw)

    def account(self, raw: Raw, place: str) -> None:
        """Something of Anthropic's own whose words others may be told."""
        del place
        kind = str(raw["type"])
        told = raw.get("content") or {key: value for key, value in raw.items() if key != "type"}
        self._keep(account(kind, kind, result=told), raw)

    def opaque(self, raw: Raw, place: str) -> None:
        """A block of a kind that is not known here: kept for Anthropic, and told."""
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
    """A JSON object, or `Invalid`."""
    if not isinstance(value, Mapping):
        raise Invalid(f"{where} is not an object; this is no Anthropic Messages format. Nothing was read.")
    return cast("Raw", value)


def as_list(value: object, where: str) -> Sequence[object]:
    """A JSON array, or `Invalid`."""
    if not isinstance(value, list | tuple):
        raise Invalid(f"{where} is not a list; this is no Anthropic Messages format. Nothing was read.")
    return cast("Sequence[object]", value)


def compact(value: object) -> str:
    """A value that came parsed, as JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _text_of(raw: Raw, key: str, place: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str):
        raise Invalid(f"{place}.{key} is not text; this is no Anthropic Messages format. Nothing was read.")
    return value


def _more(raw: Raw, *known: str) -> dict[str, Any] | None:
    """What a block says beyond its known fields; nothing where those are empty."""
    skipped = {"type", *known, *_NEVER_KEPT}
    more = {key: value for key, value in raw.items() if key not in skipped and value not in (None, [])}
    return more or None


def _inlined(source: Raw, place: str) -> tuple[str, str]:
    """The data URL of a base64 source, by what its bytes are."""
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
    """The words of a document or search result that is made of blocks."""
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
    """A whole answer."""
    raw = as_object(body, "the answer")
    if raw.get("type") == "error":
        told = as_object(raw.get("error") or {}, "error")
        raise Invalid(
            f"Anthropic answered with an error, no message: {told.get('type')}: {told.get('message')}."
        )
    if raw.get("type", "message") != "message" or "content" not in raw:
        raise Invalid("this is no answer of Anthropic Messages: it has no type 'message' with content.")
    return with_events(reply_of(raw, provider=provider))


def reply_of(
    raw: Raw,
    *,
    provider: str | None = None,
    raw_arguments: Mapping[int, str] | None = None,
    losses: tuple[Loss, ...] = (),
) -> Reply:
    """The reply that an answer's fields make, without events."""
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
    """What the answer took; Anthropic counts what came from the cache beside the input."""
    told = as_object(raw or {}, "usage")
    more = as_object(told.get("output_tokens_details") or {}, "usage.output_tokens_details")
    return Usage(
        input_tokens=count_of(told.get("input_tokens")),
        output_tokens=count_of(told.get("output_tokens")),
        cached_tokens=count_of(told.get("cache_read_input_tokens")),
        reasoning_tokens=count_of(more.get("thinking_tokens")),
    )
