"""Messages: what one party said, in the canonical form that belongs to no vendor.

What others wrote is kept as they wrote it: the arguments of a call are the raw JSON
text as one string, and vendorMetadata is a body of its own beside the message.
`view` gives the shape of the documents, with both parsed and in place.
"""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias, cast

import msgspec

from holdfast.errors import Corrupt, Invalid
from holdfast.model import canonical

__all__ = [
    "Block",
    "File",
    "Image",
    "Message",
    "ReasoningSummary",
    "Role",
    "Text",
    "ToolCall",
    "ToolResult",
    "decode_message",
    "encode_message",
    "view",
]

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class _Named(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """JSON names are the documents' own: mimeType, toolCalls, callId."""


class Text(_Named, frozen=True, tag_field="type", tag="text"):
    """Words."""

    text: str


class Image(_Named, frozen=True, tag_field="type", tag="image"):
    """A picture, by reference."""

    uri: str
    mime_type: str


class File(_Named, frozen=True, tag_field="type", tag="file"):
    """A document or a recording, by reference."""

    uri: str
    mime_type: str


class ReasoningSummary(_Named, frozen=True, tag_field="type", tag="reasoning_summary"):
    """What a model said about its own thinking."""

    text: str


Block: TypeAlias = Text | Image | File | ReasoningSummary


class ToolCall(_Named, frozen=True):
    """A model's request that a tool act."""

    id: str
    name: str
    args: str  # the JSON text exactly as it came

    @property
    def arguments(self) -> Any:
        """The arguments, parsed; raises `Invalid` where the text is not JSON."""
        try:
            return json.loads(self.args)
        except (ValueError, RecursionError) as error:
            raise Invalid(
                f"the arguments of call '{self.id}' to {self.name} are not JSON: {error}."
            ) from error


class ToolResult(_Named, frozen=True):
    """What a tool gave back to the model."""

    call_id: str
    status: Literal["success", "error"]
    content: tuple[Block, ...] = ()


class Message(_Named, frozen=True):
    """What one party said: a role and content blocks."""

    role: Role
    content: tuple[Block, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    vendor_metadata: str | None = None  # raw JSON text; kept as a body of its own, not in the message's bytes

    @property
    def text(self) -> str:
        """The words of all text blocks."""
        return "".join(block.text for block in self.content if isinstance(block, Text))


_decoder = msgspec.json.Decoder(Message)


def encode_message(message: Message) -> bytes:
    """The message's canonical bytes, without vendorMetadata.

    Lone surrogates become U+FFFD in words, and stay as they came in the raw arguments of calls.
    """
    bare = (
        msgspec.structs.replace(message, vendor_metadata=None)
        if message.vendor_metadata is not None
        else message
    )
    try:
        return canonical.encode_struct(bare)
    except Invalid:
        return _encode_surrogates(bare)


def decode_message(body: bytes, vendor_metadata: bytes | None = None) -> Message:
    """The message that `body` holds; raises `Corrupt` if it is not one."""
    try:
        message = _decode(body)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"a stored message cannot be read: {error}. Run `holdfast verify`.") from error
    if vendor_metadata is None:
        return message
    raw = vendor_metadata.decode("utf-8", "surrogatepass")
    return msgspec.structs.replace(message, vendor_metadata=raw)


def view(message: Message) -> dict[str, Any]:
    """The documents' shape of a message: parsed args and vendorMetadata in place."""
    shape: dict[str, Any] = {"content": []} | _well_formed(msgspec.to_builtins(message))
    for result in shape.get("toolResults", ()):
        result.setdefault("content", [])
    for call, raw in zip(shape.get("toolCalls", ()), message.tool_calls, strict=True):
        call["args"] = _parsed(raw.args)
    if message.vendor_metadata is not None:
        shape["vendorMetadata"] = _parsed(message.vendor_metadata)
    return shape


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text  # not JSON, or deeper than Python reads: shown as it came rather than lost


def _encode_surrogates(message: Message) -> bytes:
    shape = msgspec.to_builtins(message)
    words = {key: _well_formed(value) for key, value in shape.items()}
    for call, raw in zip(words.get("toolCalls", ()), message.tool_calls, strict=False):
        call["args"] = raw.args
    text = json.dumps(words, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _decode(body: bytes) -> Message:
    try:
        return _decoder.decode(body)
    except UnicodeDecodeError:
        return msgspec.convert(json.loads(body.decode("utf-8", "surrogatepass")), Message)


def _well_formed(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list() | tuple():
            return [_well_formed(item) for item in cast("list[Any]", value)]
        case dict():
            return {key: _well_formed(item) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return value
