"""Reads Bedrock's streamed answers from AWS event streams, in pieces of any size.

A frame is: its length and that of its headers, a CRC-32 of these eight bytes, the headers, the
payload, and a CRC-32 of all before it.  Both sums are checked; bytes that fail are no frame.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from binascii import crc32
from collections.abc import Mapping
from typing import Any, TypeAlias, cast
from uuid import UUID

import msgspec

from perdure.providers.bedrock.parse import Raw, as_list, as_object, reply_of
from perdure.providers.contract import CallDelta, Loss, ModelEvent, ReasoningChunk, Reply, TextChunk
from perdure.providers.wire.fields.vendor_items import json_or_text
from perdure.providers.wire.malformed import unreadable
from perdure.providers.wire.stream.reply_events import with_events

__all__ = ["FRAME_BYTES_MAX", "AwsFrame", "Frames", "BedrockStream"]

FRAME_BYTES_MAX = 24 * 1024 * 1024  # headers of 128 KiB and a payload of 16 MiB is what AWS allows

_PRELUDE = struct.Struct(">III")
_FIXED = {2: ">b", 3: ">h", 4: ">i", 5: ">q", 8: ">q"}  # header types of a number, and how it is packed
_SUM_BYTES = 4
_KNOWN_MAX = 64

Headers: TypeAlias = Mapping[str, str | int | bool | bytes]


class AwsFrame(msgspec.Struct, frozen=True):
    """One message of the stream."""

    headers: Headers
    payload: bytes


class Frames:
    """Splits an AWS event stream into frames."""

    __slots__ = ("_held", "_known")

    def __init__(self) -> None:
        self._held = bytearray()
        self._known: dict[bytes, Headers] = {}  # headers that were read: nearly all frames have the same

    @property
    def pending(self) -> int:
        """Return the number of bytes of an incomplete frame."""
        return len(self._held)

    def feed(self, data: bytes) -> list[AwsFrame]:
        """Return the frames that these next bytes complete.  Raises `Invalid` for bytes that are no frame."""
        self._held += data
        found: list[AwsFrame] = []
        at = 0
        while (size := self._size(at)) is not None and len(self._held) - at >= size:
            found.append(self._frame(bytes(self._held[at : at + size])))
            at += size
        del self._held[:at]
        return found

    def _size(self, at: int) -> int | None:
        """Return the length of the frame at `at`; None if its first twelve bytes are incomplete."""
        if len(self._held) - at < _PRELUDE.size:
            return None
        size, headers, told = _PRELUDE.unpack_from(self._held, at)
        if crc32(self._held[at : at + 8]) != told:
            raise unreadable(
                "stream_malformed",
                "these bytes are no AWS event stream: the checksum of a frame's beginning is wrong",
            )
        if not _PRELUDE.size + headers + _SUM_BYTES <= size <= FRAME_BYTES_MAX:
            raise unreadable(
                "stream_malformed",
                f"these bytes are no AWS event stream: a frame claims {size} bytes",
                size=size,
            )
        return size

    def _frame(self, whole: bytes) -> AwsFrame:
        _, headers, _ = _PRELUDE.unpack_from(whole)
        (told,) = struct.unpack_from(">I", whole, len(whole) - _SUM_BYTES)
        if crc32(whole[:-_SUM_BYTES]) != told:
            raise unreadable(
                "stream_malformed", "a frame of the AWS event stream is damaged: its checksum is wrong"
            )
        begin = _PRELUDE.size + headers
        return AwsFrame(self._headers(whole[_PRELUDE.size : begin]), whole[begin:-_SUM_BYTES])

    def _headers(self, body: bytes) -> Headers:
        known = self._known.get(body)
        if known is not None:
            return known
        try:
            found = _headers(body)
        except (struct.error, IndexError, ValueError) as error:
            raise unreadable(
                "stream_malformed",
                f"a frame of the AWS event stream has headers that cannot be read: {error}",
            ) from error
        if len(self._known) < _KNOWN_MAX:
            self._known[body] = found
        return found


def _headers(body: bytes) -> Headers:
    found: dict[str, str | int | bool | bytes] = {}
    at = 0
    while at < len(body):
        end = at + 1 + body[at]
        name = body[at + 1 : end].decode()
        found[name], at = _value(body, end + 1, body[end])
    return found


def _value(body: bytes, at: int, kind: int) -> tuple[str | int | bool | bytes, int]:
    if kind in (0, 1):
        return kind == 0, at
    if kind in _FIXED:
        packed = struct.Struct(_FIXED[kind])
        return packed.unpack_from(body, at)[0], at + packed.size
    if kind == 9:
        return str(UUID(bytes=body[at : at + 16])), at + 16
    if kind not in (6, 7):
        raise IndexError(f"there is no header type {kind}")
    (size,) = struct.unpack_from(">H", body, at)
    raw = body[at + 2 : at + 2 + size]
    if len(raw) != size:
        raise IndexError("a header is cut off")
    return (raw.decode() if kind == 7 else raw), at + 2 + size


class _OpenContentBlock:
    """A block of a stream that is not complete yet."""

    def __init__(self, start: Raw, call: int) -> None:
        self.start = dict(start)
        self.call = call  # which of the step's calls, if it is one
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.signatures: list[str] = []
        self.hidden: list[str] = []
        self.arguments: list[str] = []
        self.results: list[object] = []
        self.citations: list[object] = []
        self.others: dict[str, Any] = {}  # deltas of kinds that are not known
        self.whole = False

    @property
    def is_call(self) -> bool:
        """True if it is a call of a tool that the caller has."""
        use = self.start.get("toolUse")
        return isinstance(use, Mapping) and cast("Raw", use).get("type") != "server_tool_use"

    @property
    def name(self) -> str:
        return str(as_object(self.start["toolUse"], "start.toolUse").get("name"))

    def block(self) -> dict[str, Any] | None:
        """Return the block as in a whole answer; None if it is empty."""
        if "toolUse" in self.start:
            use = as_object(self.start["toolUse"], "start.toolUse")
            return {"toolUse": {**use, "input": {} if self.is_call else json_or_text(self.raw_arguments())}}
        if "toolResult" in self.start:
            return {"toolResult": {**as_object(self.start["toolResult"], "start"), "content": self.results}}
        if self.hidden:
            return {"reasoningContent": {"redactedContent": _joined(self.hidden)}}
        if self.thoughts or self.signatures:
            told = {"text": "".join(self.thoughts)}
            signature = {"signature": "".join(self.signatures)} if self.signatures else {}
            return {"reasoningContent": {"reasoningText": told | signature}}
        return self._said()

    def _said(self) -> dict[str, Any] | None:
        words = "".join(self.texts)
        if self.citations:
            content = {"content": [{"text": words}]} if words else {}
            return {"citationsContent": content | {"citations": self.citations}}
        if words or self.texts:
            return {"text": words}
        return self.others or {key: value for key, value in self.start.items() if value} or None

    def raw_arguments(self) -> str:
        """Return the arguments as they came."""
        return "".join(self.arguments) or "{}"


class BedrockStream:
    """Parses a streamed answer."""

    def __init__(self, *, provider: str | None = None) -> None:
        """Read a stream from the server of `provider`."""
        self._provider = provider
        self._frames = Frames()
        self._begun = False
        self._blocks: dict[int, _OpenContentBlock] = {}
        self._calls = 0
        self._beside: dict[str, Any] = {}
        self._emitted: list[ModelEvent] = []
        self._losses: list[Loss] = []
        self._error: str | None = None

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events that these next bytes complete."""
        told = [event for frame in self._frames.feed(data) for event in self._take(frame)]
        self._emitted += told
        return told

    def close(self) -> Reply:
        """Return the whole answer, at the end of the stream."""
        if not self._begun or (self._error and not self._blocks):
            why = self._error or "it ended before it began"
            raise unreadable(
                "stream_without_answer", f"this stream of Bedrock Converse holds no answer: {why}"
            )
        if self._frames.pending:
            self._lose("the stream", "rest of the answer", "the stream ended in the middle of a frame")
        if self._error:
            self._lose("the stream", "rest of the answer", f"it ended in an error: {self._error}")
        blocks = [(made, block) for block in self._whole_blocks() if (made := block.block()) is not None]
        raw_arguments = {at: block.raw_arguments() for at, (_, block) in enumerate(blocks) if block.is_call}
        body = self._beside | {"output": {"message": {"content": [made for made, _ in blocks]}}}
        losses = tuple(self._losses)
        reply = reply_of(body, provider=self._provider, raw_arguments=raw_arguments, losses=losses)
        return with_events(reply, self._emitted)

    def _whole_blocks(self) -> list[_OpenContentBlock]:
        """Return all blocks but calls that were cut off: words that came stand, half of the arguments mean nothing."""
        kept: list[_OpenContentBlock] = []
        for index in sorted(self._blocks):
            block = self._blocks[index]
            if block.whole or "toolUse" not in block.start or "stopReason" in self._beside:
                kept.append(block)
            else:
                self._lose(f"content[{index}]", "tool call", "the stream ended in the middle of it")
        return kept

    def _lose(self, where: str, what: str, why: str) -> None:
        self._losses.append(Loss(kind="dropped", where=where, what=what, why=why))

    def _take(self, frame: AwsFrame) -> list[ModelEvent]:
        kind = frame.headers.get(":message-type", "event")
        if kind == "error":
            self._error = f"{frame.headers.get(':error-code')}: {frame.headers.get(':error-message')}"
            return []
        payload = _object(frame.payload)
        if kind == "exception":
            self._error = f"{frame.headers.get(':exception-type')}: {payload.get('message')}"
            return []
        return self._event(str(frame.headers.get(":event-type")), payload)

    def _event(self, kind: str, event: Raw) -> list[ModelEvent]:
        self._begun = True
        match kind:
            case "contentBlockStart":
                return self._start(_index(event), as_object(event.get("start") or {}, "start"))
            case "contentBlockDelta":
                return self._delta(_index(event), as_object(event.get("delta"), "delta"))
            case "contentBlockStop":
                self._block(_index(event)).whole = True
            case "messageStop" | "metadata":
                self._beside |= {key: value for key, value in event.items() if key != "p"}
            case "messageStart":
                pass
            case _:
                self._lose("the stream", f"event {kind}", "this kind of event is not known")
        return []

    def _start(self, index: int, start: Raw) -> list[ModelEvent]:
        block = _OpenContentBlock(start, self._calls)
        self._blocks[index] = block
        if not block.is_call:
            return []
        self._calls += 1
        return [CallDelta(block.call, block.name, "")]

    def _block(self, index: int) -> _OpenContentBlock:
        """Return the block; the first delta begins one that is only words."""
        block = self._blocks.get(index)
        if block is None:
            block = self._blocks[index] = _OpenContentBlock({}, self._calls)
        return block

    def _delta(self, index: int, delta: Raw) -> list[ModelEvent]:
        block = self._block(index)
        told: list[ModelEvent] = []
        for kind, value in delta.items():
            match kind:
                case "text" if isinstance(value, str):
                    block.texts.append(value)
                    if value:
                        told.append(TextChunk(value))
                case "toolUse":
                    text = str(as_object(value, "delta.toolUse").get("input") or "")
                    block.arguments.append(text)
                    told += [CallDelta(block.call, block.name, text)] if block.is_call and text else []
                case "reasoningContent":
                    told += _thought(block, as_object(value, "delta.reasoningContent"))
                case "citation":
                    block.citations.append(value)
                case "toolResult":
                    block.results += as_list(value, "delta.toolResult")
                case "type":
                    pass
                case _:
                    block.others[kind] = value
        return told


def _thought(block: _OpenContentBlock, delta: Raw) -> list[ModelEvent]:
    if isinstance(delta.get("signature"), str):
        block.signatures.append(delta["signature"])
    if isinstance(delta.get("redactedContent"), str):
        block.hidden.append(delta["redactedContent"])
    text = delta.get("text")
    if not isinstance(text, str):
        return []
    block.thoughts.append(text)
    return [ReasoningChunk(text)] if text else []


def _index(event: Raw) -> int:
    index = event.get("contentBlockIndex")
    if not isinstance(index, int):
        raise unreadable("stream_malformed", "an event of the stream has no contentBlockIndex")
    return index


def _object(payload: bytes) -> Raw:
    try:
        value: object = json.loads(payload or b"{}")
    except (ValueError, RecursionError) as error:
        raise unreadable("stream_malformed", f"a frame of the stream holds no JSON: {error}") from error
    return as_object(value, "a frame of the stream")


def _joined(parts: list[str]) -> str:
    """Return bytes that came in parts, each in base64."""
    if len(parts) == 1:
        return parts[0]
    try:
        return base64.b64encode(b"".join(base64.b64decode(part) for part in parts)).decode()
    except binascii.Error:
        return "".join(parts)
