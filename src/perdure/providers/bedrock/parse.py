"""Reads Bedrock's answers.

`BedrockBlocks` turns blocks into canonical content, calls and results, with a layout of the fields that only
Bedrock reads.  `stream` assembles a streamed answer, which is read in the same way.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.model.run import Usage
from perdure.providers.contract import Loss, Reply
from perdure.providers.wire.block_order import Piece, shown
from perdure.providers.wire.call_ids import CallNames
from perdure.providers.wire.fields.vendor_metadata import call_ids, keep
from perdure.providers.wire.malformed import malformed, unreadable
from perdure.providers.wire.media import data_url, inline
from perdure.providers.wire.server_tools import account
from perdure.providers.wire.stream.reply_events import count_of, with_events

__all__ = [
    "VENDOR",
    "parse",
    "reply_of",
    "Raw",
    "BedrockBlocks",
    "as_list",
    "as_object",
    "compact",
    "member_of",
    "DOCUMENTS",
    "IMAGES",
    "VIDEOS",
    "AUDIOS",
    "format_of",
    "media_type_of",
    "name_of",
]


IMAGES = {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}

DOCUMENTS = {
    "pdf": "application/pdf",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html",
    "txt": "text/plain",
    "md": "text/markdown",
}

VIDEOS = {
    "mkv": "video/x-matroska",
    "mov": "video/quicktime",
    "mp4": "video/mp4",
    "webm": "video/webm",
    "flv": "video/x-flv",
    "mpeg": "video/mpeg",
    "mpg": "video/mpg",
    "wmv": "video/x-ms-wmv",
    "three_gp": "video/3gpp",
}

AUDIOS = {
    "mp3": "audio/mpeg",
    "opus": "audio/opus",
    "wav": "audio/wav",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "mp4": "audio/mp4",
    "ogg": "audio/ogg",
    "mkv": "audio/x-matroska",
    "mka": "audio/mka",
    "x-aac": "audio/x-aac",
    "m4a": "audio/x-m4a",
    "mpeg": "audio/mpeg",
    "mpga": "audio/mpga",
    "pcm": "audio/pcm",
    "webm": "audio/webm",
}

_KINDS = {"image": IMAGES, "document": DOCUMENTS, "video": VIDEOS, "audio": AUDIOS}


def media_type_of(kind: str, format: object) -> str:
    """Return the media type of a format of images, documents, videos or audio."""
    known = _KINDS[kind]
    return known.get(str(format), "application/octet-stream" if kind == "document" else f"{kind}/{format}")


def format_of(kind: str, media_type: str) -> str | None:
    """Return the format of a media type; None if Bedrock has none."""
    plain = media_type.partition(";")[0].strip().lower()
    return next((name for name, known in _KINDS[kind].items() if known == plain), None)


def name_of(wanted: str, taken: set[str]) -> str:
    """Return a document's name as Bedrock takes it: few characters, no two spaces, none twice in a request."""
    plain = re.sub(r"\s+", " ", re.sub(r"[^a-zA-Z0-9\s_()\[\]-]", " ", wanted)).strip()[:180] or "document"
    made, number = plain, 1
    while made in taken:
        number += 1
        made = f"{plain}-{number}"
    taken.add(made)
    return made


Raw: TypeAlias = Mapping[str, Any]


class BedrockBlocks:
    """Reads the blocks of one message."""

    def __init__(self, ids: CallNames, *, where: str, assistant: bool) -> None:
        """Take the ids of the whole request or reply; `where` names the place in errors and losses."""
        self.content: list[Block] = []
        self.calls: list[ToolCall] = []
        self.results: list[ToolResult] = []
        self.pieces: list[Piece] = []
        self.losses: list[Loss] = []
        self._ids, self._where, self._assistant = ids, where, assistant
        self._server_tools: dict[object, str] = {}

    def read(self, blocks: object, raw_arguments: Mapping[int, str] | None = None) -> None:
        """Read all blocks of a message; `raw_arguments` are the arguments of calls that arrived as text."""
        for at, block in enumerate(as_list(blocks, self._where)):
            place = f"{self._where}[{at}]"
            raw = as_object(block, place)
            kind = member_of(raw, place)
            calls = len(self.calls)
            _READERS.get(kind, BedrockBlocks.opaque)(self, raw, f"{place}.{kind}")
            if len(self.calls) > calls and raw_arguments and at in raw_arguments:
                call = self.calls.pop()
                self.calls.append(ToolCall(id=call.id, name=call.name, args=raw_arguments[at]))

    def _say(self, block: Block, *, add: dict[str, Any] | None = None) -> None:
        self.pieces.append(Piece(content=len(self.content), add=add or None))
        self.content.append(block)

    def _keep(self, block: Block, native: Raw, *, fill: str | None = None) -> None:
        self.pieces.append(Piece(content=len(self.content), native=dict(native), fill=fill))
        self.content.append(block)

    def text(self, raw: Raw, place: str) -> None:
        if not isinstance(raw["text"], str):
            raise malformed(place, "is not text; this is no Bedrock Converse format")
        self._say(Text(raw["text"]))

    def cache_point(self, raw: Raw, place: str) -> None:
        """Skip a mark for the prompt cache; render sets them."""

    def image(self, raw: Raw, place: str) -> None:
        self._media("image", as_object(raw["image"], place), place)

    def video(self, raw: Raw, place: str) -> None:
        self._media("video", as_object(raw["video"], place), place)

    def audio(self, raw: Raw, place: str) -> None:
        self._media("audio", as_object(raw["audio"], place), place)

    def document(self, raw: Raw, place: str) -> None:
        """Read a document, in one of four forms."""
        document = as_object(raw["document"], place)
        source = as_object(document.get("source"), f"{place}.source")
        if "content" in source:
            words = [as_object(each, place).get("text", "") for each in as_list(source["content"], place)]
            self._keep(Text("\n".join([str(document.get("name") or ""), *map(str, words)])), raw)
        else:
            self._media("document", document, place)

    def _media(self, kind: str, media: Raw, place: str) -> None:
        source = as_object(media.get("source"), f"{place}.source")
        named = media_type_of(kind, media.get("format", "txt" if "text" in source else None))
        more = {
            key: value
            for key, value in media.items()
            if key not in ("format", "source") and value is not None
        }
        if isinstance(source.get("bytes"), str):
            held = inline(data_url(named, source["bytes"]))
            named = named if held is None else held.media_type
            uri = data_url(named, source["bytes"])
        elif isinstance(source.get("text"), str):
            uri = data_url(named, base64.b64encode(source["text"].encode("utf-8", "replace")).decode())
            more["source"] = "text"
        elif isinstance(source.get("s3Location"), Mapping):
            place_of = as_object(source["s3Location"], place)
            uri = str(place_of.get("uri"))
            more |= {"bucketOwner": place_of["bucketOwner"]} if place_of.get("bucketOwner") else {}
        else:
            raise malformed(f"{place}.source", "is none of Bedrock Converse")
        self._say(Image(uri, named) if kind == "image" else File(uri, named), add=more)

    def reasoning(self, raw: Raw, place: str) -> None:
        """Read thinking with the signature that its model demands back, or encrypted thinking."""
        content = as_object(raw["reasoningContent"], place)
        if "reasoningText" not in content:
            self._keep(ReasoningSummary(""), raw)
            return
        told = as_object(content["reasoningText"], f"{place}.reasoningText")
        bare = {key: value for key, value in told.items() if key != "text"}
        native = {"reasoningContent": {"reasoningText": bare}}
        self._keep(ReasoningSummary(str(told.get("text") or "")), native, fill="text")

    def call(self, raw: Raw, place: str) -> None:
        """Read a call of a tool: the caller's, or one that Bedrock runs itself."""
        use = as_object(raw["toolUse"], place)
        name = use.get("name")
        if not isinstance(name, str):
            raise malformed(f"{place}.name", "is not text; this is no Bedrock Converse format")
        if use.get("type") == "server_tool_use":
            self._server_tools[str(use.get("toolUseId"))] = name
            self._keep(account("toolUse", name, input=use.get("input")), raw)
            return
        self.pieces.append(Piece(call=len(self.calls)))
        self.calls.append(ToolCall(self._ids.call(use.get("toolUseId")), name, compact(use.get("input", {}))))

    def result(self, raw: Raw, place: str) -> None:
        told = as_object(raw["toolResult"], place)
        if self._assistant:
            name = self._server_tools.get(str(told.get("toolUseId"))) or str(told.get("type") or "toolResult")
            self._keep(account("toolResult", name, result=told.get("content")), raw)
            return
        inner = BedrockBlocks(self._ids, where=f"{place}.content", assistant=False)
        inner.read(told.get("content") or [])
        self.losses += inner.losses
        inside = None if all(piece.plain for piece in inner.pieces) else tuple(inner.pieces)
        known = ("toolUseId", "content", "status")
        more = {key: value for key, value in told.items() if key not in known and value is not None}
        self.pieces.append(Piece(result=len(self.results), add=more or None, inside=inside))
        status = "error" if told.get("status") == "error" else "success"
        call_id = self._ids.result(str(told.get("toolUseId")))
        self.results.append(ToolResult(call_id=call_id, status=status, content=tuple(inner.content)))

    def json(self, raw: Raw, place: str) -> None:
        del place
        self._say(Text(compact(raw["json"])), add={"json": True})

    def guarded(self, raw: Raw, place: str) -> None:
        """Read text or a picture for a guardrail."""
        content = as_object(raw["guardContent"], place)
        told = as_object(content.get("text") or {}, place).get("text")
        block = (
            Text(told) if isinstance(told, str) else account("guardContent", "guardContent", result="image")
        )
        self._keep(block, raw)

    def cited(self, raw: Raw, place: str) -> None:
        """Read text with citations, or the citations of the text before."""
        content = as_object(raw["citationsContent"], place)
        texts = [as_object(each, place).get("text") for each in as_list(content.get("content") or [], place)]
        words = "".join(text for text in texts if isinstance(text, str))
        if words:
            self._keep(Text(words), raw)
        else:
            self._keep(account("citationsContent", "citations", result=content.get("citations")), raw)

    def search_result(self, raw: Raw, place: str) -> None:
        """Read a result of the caller's own search, which can be cited."""
        found = as_object(raw["searchResult"], place)
        texts = [as_object(each, place).get("text") for each in as_list(found.get("content") or [], place)]
        heads = [found.get("title"), found.get("source")]
        self._keep(Text("\n".join(text for text in (*heads, *texts) if isinstance(text, str))), raw)

    def opaque(self, raw: Raw, place: str) -> None:
        """Keep a block of an unknown kind for Bedrock, and report it."""
        kind = member_of(raw, place)
        self._keep(account(kind, kind, result=raw[kind]), raw)
        why = "this kind of block is not known; it is kept as it is for Bedrock"
        self.losses.append(Loss(kind="converted", where=place, what=kind, why=why))


_Reader: TypeAlias = Callable[[BedrockBlocks, Raw, str], None]

_READERS: dict[str, _Reader] = {
    "text": BedrockBlocks.text,
    "image": BedrockBlocks.image,
    "document": BedrockBlocks.document,
    "video": BedrockBlocks.video,
    "audio": BedrockBlocks.audio,
    "toolUse": BedrockBlocks.call,
    "toolResult": BedrockBlocks.result,
    "json": BedrockBlocks.json,
    "guardContent": BedrockBlocks.guarded,
    "cachePoint": BedrockBlocks.cache_point,
    "reasoningContent": BedrockBlocks.reasoning,
    "citationsContent": BedrockBlocks.cited,
    "searchResult": BedrockBlocks.search_result,
}


def member_of(raw: Raw, place: str) -> str:
    """Return the member of the union that a block holds."""
    members = [key for key in raw if key != "type"]
    known = [key for key in members if key in _READERS]
    if len(known or members) != 1:
        raise malformed(place, f"is no block of Bedrock Converse: it has {len(members)} members")
    return (known or members)[0]


def as_object(value: object, where: str) -> Raw:
    """Return a JSON object, or `Invalid`."""
    if not isinstance(value, Mapping):
        raise malformed(where, "is not an object; this is no Bedrock Converse format")
    return cast("Raw", value)


def as_list(value: object, where: str) -> Sequence[object]:
    """Return a JSON array, or `Invalid`."""
    if not isinstance(value, list | tuple):
        raise malformed(where, "is not a list; this is no Bedrock Converse format")
    return cast("Sequence[object]", value)


def compact(value: object) -> str:
    """Return a value that came parsed, as JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


VENDOR = "bedrock"

# The fields of an answer beside its message that are stored.
_BESIDE = ("additionalModelResponseFields", "trace", "performanceConfig", "serviceTier", "metrics", "usage")


def parse(body: Raw, *, provider: str | None = None) -> Reply:
    """Return a whole answer."""
    raw = as_object(body, "the answer")
    if "output" not in raw:
        told = raw.get("message") or raw.get("Message")
        raise unreadable(
            "not_an_answer",
            f"this is no answer of Bedrock Converse: it has no output. It says: {told or 'nothing'}",
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
    said = as_object(as_object(raw["output"], "output").get("message") or {}, "output.message")
    reading = BedrockBlocks(CallNames(), where="output.message.content", assistant=True)
    reading.read(said.get("content") or [], raw_arguments)
    headers = as_object(as_object(raw.get("ResponseMetadata") or {}, "it").get("HTTPHeaders") or {}, "it")
    facts: dict[str, Any] = {
        "endpoint": provider or VENDOR,
        "model": raw.get("modelId"),  # an answer does not name it; the caller may add it
        "response_id": raw.get("requestId") or headers.get("x-amzn-requestid"),
        "blocks": shown(reading.pieces),
        "call_ids": call_ids(reading.calls),
        **{name: raw.get(name) for name in _BESIDE},
    }
    message = Message(
        role="assistant",
        content=tuple(reading.content),
        tool_calls=tuple(reading.calls),
        vendor_metadata=keep(VENDOR, facts),
    )
    stop = raw.get("stopReason")
    return Reply(
        message=message,
        stop=stop if isinstance(stop, str) else None,
        usage=_usage(as_object(raw.get("usage") or {}, "usage")),
        losses=(*reading.losses, *losses),
    )


def _usage(told: Raw) -> Usage:
    """Return the usage; Bedrock counts the tokens of a cache beside the input, here they are a part of it."""
    read, written = count_of(told.get("cacheReadInputTokens")), count_of(told.get("cacheWriteInputTokens"))
    return Usage(
        input_tokens=count_of(told.get("inputTokens")) + read + written,
        output_tokens=count_of(told.get("outputTokens")),
        cached_tokens=read,
        cache_write_tokens=written,
    )
