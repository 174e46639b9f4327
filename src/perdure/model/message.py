"""Defines messages in the canonical form that belongs to no vendor, and their encoding.

Text from vendors stays as it came: the arguments of a call are the raw JSON text as one
string, and vendorMetadata is a body of its own beside the message.  `view` returns the
documented shape, with both parsed and in place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from perdure.errors import Corrupt, Invalid
from perdure.model import canonical, names
from perdure.model.text import well_formed_json

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
    "check_message",
    "decode_message",
    "encode_message",
    "has_media",
    "plain_body",
    "view",
]

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class _Named(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Renames fields to the documented JSON names: mimeType, toolCalls, callId."""


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
    """A model's summary of its own reasoning."""

    text: str


Block: TypeAlias = Text | Image | File | ReasoningSummary


class ToolCall(_Named, frozen=True):
    """A model's request that a tool act."""

    id: str
    name: str
    args: str  # the JSON text exactly as the model wrote it

    @property
    def arguments(self) -> Any:
        """The arguments, parsed; raises `Invalid` where the text is not JSON."""
        try:
            return json.loads(self.args)
        except (ValueError, RecursionError) as error:
            raise Invalid(
                f"the arguments of call '{self.id}' to {self.name} are not JSON: {error}.",
                code="arguments_not_json",
                call=self.id,
                tool=self.name,
            ) from error


class ToolResult(_Named, frozen=True):
    """The result of a tool call, as the model gets it."""

    call_id: str
    status: Literal["success", "error"]
    content: tuple[Block, ...] = ()


class Message(_Named, frozen=True):
    """A message of one party: a role and content blocks."""

    role: Role
    content: tuple[Block, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    vendor_metadata: str | None = (
        None  # raw JSON text; stored as a body of its own, not in the message's bytes
    )

    @property
    def text(self) -> str:
        """The text of all text blocks."""
        return "".join([block.text for block in self.content if isinstance(block, Text)])


ROLES: tuple[Role, ...] = get_args(Role)
BLOCKS = frozenset(get_args(Block))
_MEDIA = (Image, File)
_STATUSES = ("success", "error")

_sorted = msgspec.json.Encoder(order="sorted")
_encode_sorted = _sorted.encode
_decode_plain = msgspec.json.Decoder(Message).decode


def check_message(message: Message) -> None:
    """Raise `Invalid` unless `message` and its parts have the declared types: the constructors do not check them."""
    if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _refused(f"a message is a perdure.Message, not {_shown(message)}", "Use say() for plain words.")
    if message.role not in ROLES:
        raise _refused(f"{_shown(message.role)} is not a role", f"Use one of {', '.join(ROLES)}.")
    vendor = message.vendor_metadata
    if vendor is not None and not isinstance(vendor, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _refused(
            f"vendor_metadata is JSON text, not {_shown(vendor)}",
            "Give it to json.dumps first.",
        )
    if message.content != ():
        _check_blocks(message.content)
    if message.tool_calls != ():
        for call in _listed("tool_calls", message.tool_calls):
            _check_call(call)
    if message.tool_results != ():
        _check_results(message.tool_results)


def _check_results(results: Sequence[object]) -> None:
    for result in _listed("tool_results", results):
        if not isinstance(result, ToolResult):
            raise _refused(f"{_shown(result)} is not a tool result", "Make it with perdure.ToolResult.")
        names.check_id("call id", result.call_id)
        _check_blocks(result.content)


def plain_body(message: Message) -> bytes | None:
    """Return the canonical bytes of a message of words and calls that `check_message` accepts, without media.

    None: the message has other parts, or something is wrong with it; `check_message` and `encode_message` tell.
    """
    if type(message) is not Message or message.vendor_metadata is not None or not _is_exact(message):
        return None
    for call in message.tool_calls:
        if not names.is_plain_id(call.id) or not 0 < len(call.name) <= names.ID_BYTES_MAX // 4:
            return None
    for result in message.tool_results:
        if not names.is_plain_id(result.call_id):
            return None
    try:
        return _encode_sorted(message)
    except (TypeError, ValueError, RecursionError):
        return None  # lone surrogates, or no message


def encode_message(message: Message) -> bytes:
    """Return the message's canonical bytes, without vendorMetadata; raises `Invalid` if they could not be read back.

    Lone surrogates become U+FFFD in text, and stay as they are in the raw arguments of calls.
    """
    if message.vendor_metadata is not None:
        message = msgspec.structs.replace(message, vendor_metadata=None)
    try:
        body = _sorted.encode(message)
        if not _is_exact(message):
            _decode_plain(body)
        return body
    except (TypeError, ValueError, RecursionError):
        pass  # lone surrogates, or no message: the long way tells which
    try:
        body = _encode(message)
        _decode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refused(
            f"this is not a message: {error}", "Give every part the type that it is declared with."
        ) from error
    return body


def _is_exact(message: Message) -> bool:
    """True if every part is words or a call and certainly has its declared type: its bytes need not be read to know that."""
    content, calls, results = message.content, message.tool_calls, message.tool_results
    if not type(content) is type(calls) is type(results) is tuple:
        return False
    for call in calls:
        if type(call) is not ToolCall or not type(call.id) is type(call.name) is type(call.args) is str:
            return False
    for result in results:
        if (
            type(result) is not ToolResult
            or type(result.call_id) is not str
            or result.status not in _STATUSES
            or type(result.content) is not tuple
        ):
            return False
        content += result.content
    for block in content:
        if type(block) is not Text or type(block.text) is not str:
            return False
    return message.role in ROLES


def has_media(message: Message) -> bool:
    """True if the message has images or files."""
    for block in message.content:
        if type(block) in _MEDIA:
            return True
    for result in message.tool_results:
        for block in result.content:
            if type(block) in _MEDIA:
                return True
    return False


def decode_message(body: bytes, vendor_metadata: bytes | None = None) -> Message:
    """Return the message that `body` holds; raises `Corrupt` if it is not one."""
    try:
        message = _decode_plain(body)
    except (ValueError, RecursionError):
        message = _decode_odd(body)
    if vendor_metadata is None:
        return message
    raw = vendor_metadata.decode("utf-8", "surrogatepass")
    return msgspec.structs.replace(message, vendor_metadata=raw)


def view(message: Message) -> dict[str, Any]:
    """Return the documented shape of a message: parsed args and vendorMetadata in place."""
    shape: dict[str, Any] = {"content": []} | well_formed_json(msgspec.to_builtins(message))
    for result in shape.get("toolResults", ()):
        result.setdefault("content", [])
    for call, raw in zip(shape.get("toolCalls", ()), message.tool_calls, strict=True):
        call["args"] = _parsed(raw.args)
    if message.vendor_metadata is not None:
        shape["vendorMetadata"] = _parsed(message.vendor_metadata)
    return shape


def _listed(what: str, parts: Sequence[object]) -> Sequence[object]:
    if not isinstance(parts, tuple | list):
        raise _refused(f"{what} is a list, not {_shown(parts)}", "Put it into a list.")
    return parts


def _check_blocks(content: Sequence[object]) -> None:
    for block in _listed("content", content):
        if type(block) not in BLOCKS:
            raise _refused(
                f"{_shown(block)} is not a content block",
                "Use Text, Image, File or ReasoningSummary; plain words are given as they are, not in a list.",
            )


def _check_call(call: object) -> None:
    if not isinstance(call, ToolCall):
        raise _refused(f"{_shown(call)} is not a tool call", "Make it with perdure.ToolCall.")
    names.check_id("call id", call.id)
    if not 0 < len(str(call.name).encode("utf-8", "replace")) <= names.ID_BYTES_MAX:
        raise _refused(f"a tool's name has 1 to {names.ID_BYTES_MAX} bytes", "Give another.")
    if not isinstance(call.args, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _refused(
            f"the arguments of call '{call.id}' are {_shown(call.args)}, not text",
            "Give the JSON text exactly as the model wrote it, or json.dumps(…).",
        )


def _shown(part: object) -> str:
    shown = ascii(part)
    return f"{shown if len(shown) <= 60 else shown[:57] + '…'} ({type(part).__name__})"


def _refused(what: str, advice: str) -> Invalid:
    return Invalid(f"{what}; nothing was written.", code="message_invalid", advice=advice)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text  # not JSON, or deeper than Python reads: shown as text rather than lost


def _encode(message: Message) -> bytes:
    try:
        return canonical.encode_struct(message)
    except Invalid:
        return _encode_surrogates(message)


def _encode_surrogates(message: Message) -> bytes:
    shape = msgspec.to_builtins(message)
    words = {key: well_formed_json(value) for key, value in shape.items()}
    for call, raw in zip(words.get("toolCalls", ()), message.tool_calls, strict=False):
        call["args"] = raw.args
    text = json.dumps(words, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _decode(body: bytes) -> Message:
    try:
        return _decode_plain(body)
    except UnicodeDecodeError:
        return msgspec.convert(json.loads(body.decode("utf-8", "surrogatepass")), Message)


def _decode_odd(body: bytes) -> Message:
    try:
        return _decode(body)
    except (ValueError, RecursionError) as error:
        raise Corrupt(
            f"a stored message cannot be read: {error}.",
            code="record_unreadable",
            advice="Run `perdure verify`.",
            what="message",
        ) from error
