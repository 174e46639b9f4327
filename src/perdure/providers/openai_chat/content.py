"""Reads and writes the parts of a Chat message: text, images, files, sound, reasoning, and unknown parts.

A block that the server does not accept is written as text.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, assert_never, cast

from perdure.model.message import Block, File, Image, ReasoningSummary, Text
from perdure.providers.contract import Loss
from perdure.providers.openai_chat.servers import Server
from perdure.providers.openai_chat.vendor_fields import Beside, Part, merged, objects_of
from perdure.providers.wire.fields.vendor_items import object_of
from perdure.providers.wire.malformed import malformed
from perdure.providers.wire.media import Inline, data_url, inline, is_web, kind_of, media_type_of
from perdure.providers.wire.server_tools import account, is_account, told

__all__ = [
    "part_of",
    "words_for",
    "CACHE_MARKS",
    "IMAGE_TYPES",
    "file_reference",
    "read_part",
    "without_marks",
]


CACHE_MARKS = ("cache_control", "prompt_cache_breakpoint")
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

_AUDIO = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "opus": "audio/opus",
    "ogg": "audio/ogg",
}
_NAMED = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "pdf": "application/pdf",
    "mp4": "video/mp4",
    "txt": "text/plain",
    "csv": "text/csv",
    "md": "text/markdown",
    "html": "text/html",
    "json": "application/json",
}


def without_marks(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part, message or tool without the marks of a prompt cache, and without fields that are null."""
    return {name: value for name, value in part.items() if name not in CACHE_MARKS and value is not None}


def read_part(part: object, where: str, endpoint: str) -> tuple[Block | None, Part]:
    """Return the canonical block of a part, and its other fields; None if it is empty."""
    if isinstance(part, str):
        return (Text(part) if part else None), Part()
    if not isinstance(part, dict):
        raise malformed(where, f"is {type(part).__name__}, not a part of a Chat message")
    known = without_marks(cast("dict[str, Any]", part))
    match known.get("type"):
        case "text" | "input_text" | "output_text" if isinstance(known.get("text"), str):
            return _text_part(known, "text")
        case "refusal" if isinstance(known.get("refusal"), str):
            return _text_part(known, "refusal")
        case "image_url":
            return _media(known, "image_url", where, image=True)
        case "video_url" | "file_url" | "document_url" | "audio_url" as kind:
            return _media(known, kind, where, image=False)
        case "input_audio":
            return _audio_part(known, where)
        case "file":
            return _file_part(known, endpoint)
        case "thinking":
            return _thinking(known)
        case _:
            return _unknown(known)


def file_reference(endpoint: str, id: str) -> str:
    """Return the canonical address of a file that lies with a vendor."""
    return f"file-id://{endpoint}/{id}"


def _text_part(part: dict[str, Any], field: str) -> tuple[Block | None, Part]:
    words = str(part.pop(field))
    kind = part.pop("type")
    if field == "refusal" or kind != "text":
        return (Text(words) if words else None), Part(native={"type": kind} if field == "refusal" else None)
    return (Text(words) if words else None), Part(add=part)


def _media(part: dict[str, Any], field: str, where: str, *, image: bool) -> tuple[Block | None, Part]:
    """Return an address in a field of its own name, either plain or in an object with details."""
    held = part.pop(field, None)
    details = dict(object_of(held))
    address = details.pop("url", None) if isinstance(held, dict) else held
    if not isinstance(address, str) or not address:
        raise malformed(where, f"has no address in '{field}'")
    part.pop("type")
    details = {name: value for name, value in details.items() if value is not None}
    add = part | ({field: details} if details else {})
    uri, media_type = _typed(address, "image/*" if image else _ANY[field])
    return (Image(uri, media_type) if image else File(uri, media_type)), Part(add=add)


_ANY = {"video_url": "video/*", "audio_url": "audio/*"} | dict.fromkeys(
    ("file_url", "document_url"), "application/octet-stream"
)


def _typed(address: str, otherwise: str) -> tuple[str, str]:
    """Return an address with what is known of its type; bytes are named for what they are."""
    if is_web(address) or "://" in address:
        ending = address.partition("?")[0].rpartition(".")[2].lower()
        return address, _NAMED.get(ending, otherwise)
    held = inline(address) or inline(data_url("application/octet-stream", address))
    if held is None:
        return address, otherwise
    return data_url(held.media_type, held.base64), held.media_type


def _audio_part(part: dict[str, Any], where: str) -> tuple[Block | None, Part]:
    held = part.pop("input_audio", None)
    details = dict(object_of(held)) or {"data": held}
    data, format = details.pop("data", None), details.pop("format", None)
    if not isinstance(data, str) or not data:
        raise malformed(where, "has no sound in 'input_audio'")
    part.pop("type")
    media_type = _AUDIO.get(str(format), f"audio/{format}" if format else "audio/*")
    uri = data
    if not is_web(data):
        found = inline(data)
        uri = data_url(media_type, found.base64 if found else data)
    return File(uri, media_type), Part(add=part | ({"input_audio": details} if details else {}))


def _file_part(part: dict[str, Any], endpoint: str) -> tuple[Block | None, Part]:
    held = part.pop("file", None)
    details = dict(object_of(held))
    id = details.pop("file_id", None) or part.pop("file_id", None)
    data, declared = details.pop("file_data", None), details.pop("mime_type", None)
    part.pop("type")
    details = {name: value for name, value in details.items() if value is not None}
    add = part | ({"file": details} if details else {})
    if isinstance(data, str) and data:
        known = declared if isinstance(declared, str) and declared else "application/octet-stream"
        uri, media_type = _typed(data, known)
        return File(uri, media_type), Part(add=add)
    if isinstance(id, str) and id:
        return File(file_reference(endpoint, id), "application/octet-stream"), Part(add=add)
    return _unknown({"type": "file", "file": held, **part})


def _thinking(part: dict[str, Any]) -> tuple[Block | None, Part]:
    """Read reasoning as text; its other fields are stored unchanged."""
    chunks = part.get("thinking")
    listed = objects_of(chunks) or [{"type": "text", "text": chunks}]
    words = [chunk.get("text") for chunk in listed]
    told = "".join(word for word in words if isinstance(word, str))
    plain = all(set(chunk) <= {"type", "text"} for chunk in listed)
    if not plain:
        return (ReasoningSummary(told) if told else None), Part(native=part)
    more = {name: value for name, value in part.items() if name not in ("type", "thinking")}
    return (ReasoningSummary(told) if told else None), Part(add=more)


def _unknown(part: dict[str, Any]) -> tuple[Block | None, Part]:
    """Return the block for a part that no other format knows: described in text, stored unchanged."""
    kind = str(part.get("type") or "part")
    rest = {name: value for name, value in part.items() if name != "type"}
    return account(kind, kind, input=rest or None), Part(native=part)


def sound_of(encoded: str, media_type: str) -> str:
    """Return the data URL of sound that a server spoke; its bytes say what they are."""
    try:
        body = base64.b64decode(encoded[:8_192] + "=" * (-len(encoded[:8_192]) % 4))
    except (binascii.Error, ValueError):
        body = b""
    return data_url(media_type_of(media_type, body), encoded)


def is_kind(block: File, kind: str) -> bool:
    """True if a file is `audio`, `video`, …"""
    return kind_of(block.mime_type, block.uri) == kind


_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3"}
_ENDINGS = {"application/pdf": "pdf", "text/plain": "txt", "text/csv": "csv", "application/json": "json"}


def part_of(
    block: Block, at: str, own: Beside, where: str, place: Server, endpoint: str, losses: list[Loss]
) -> dict[str, Any] | None:
    """Return the part for a block of a user's message; None where it is left out.  `at` is its place, as `own` knows it."""
    kept = own.parts.get(at)
    if kept is not None and kept.native is not None and not isinstance(block, Text):
        return kept.native
    part = _part(block, where, place, endpoint, losses, mine=kept is not None)
    return part if part is None or kept is None else merged(part, kept.add)


def words_for(block: Image | File, where: str, why: str, losses: list[Loss]) -> str:
    """Return the text that replaces media which a server does not accept."""
    kind = "image" if isinstance(block, Image) else "file"
    held = inline(block.uri)
    losses.append(
        Loss(
            kind="dropped" if held or block.uri.startswith("data:") else "converted",
            where=where,
            what=kind,
            why=why,
        )
    )
    if held is None:
        address = "unreadable data" if block.uri.startswith("data:") else block.uri
        return f"[{kind}: {address}]"
    return f"[{kind}: {held.media_type}, {len(held.bytes)} bytes]"


def _part(
    block: Block, where: str, place: Server, endpoint: str, losses: list[Loss], *, mine: bool
) -> dict[str, Any] | None:
    match block:
        case Text("") | ReasoningSummary(""):
            return None
        case Text():
            return _text(block.text)
        case Image():
            return _image(block, where, place, losses)
        case File() if is_account(block):
            losses.append(
                Loss(kind="converted", where=where, what="server-side tool", why="only its vendor has it")
            )
            return _text(told(block))
        case File():
            return _file(block, where, place, endpoint, losses, mine=mine)
        case ReasoningSummary():
            losses.append(Loss(kind="dropped", where=where, what="reasoning", why="it is another's"))
            return None
        case _:
            assert_never(block)


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _image(block: Image, where: str, place: Server, losses: list[Loss]) -> dict[str, Any]:
    if is_web(block.uri):
        if place.web_images:
            return {"type": "image_url", "image_url": {"url": block.uri}}
        return _text(words_for(block, where, "this server takes images as bytes only", losses))
    held = inline(block.uri)
    if held is None:
        return _text(words_for(block, where, "its bytes are not here", losses))
    if held.media_type not in IMAGE_TYPES:
        return _text(words_for(block, where, f"{held.media_type} is no image that this server takes", losses))
    return {"type": "image_url", "image_url": {"url": data_url(held.media_type, held.base64)}}


def _file(
    block: File, where: str, place: Server, endpoint: str, losses: list[Loss], *, mine: bool
) -> dict[str, Any]:
    reference = f"file-id://{endpoint}/"
    if block.uri.startswith(reference):
        return _by_id(block.uri.removeprefix(reference), place)
    held = inline(block.uri)
    if held is None and not is_web(block.uri):
        return _text(words_for(block, where, "its bytes are not here", losses))
    if is_kind(block, "audio"):
        return _audio(block, held, where, place, losses)
    if is_kind(block, "video"):
        if place.video:
            return {"type": "video_url", "video_url": {"url": block.uri}}
        return _text(words_for(block, where, "this server takes no video", losses))
    return _document(block, held, where, place, losses, mine=mine)


def _by_id(id: str, place: Server) -> dict[str, Any]:
    return (
        {"type": "file", "file_id": id}
        if place.files == "document_url"
        else {"type": "file", "file": {"file_id": id}}
    )


def _audio(block: File, held: Inline | None, where: str, place: Server, losses: list[Loss]) -> dict[str, Any]:
    format = _FORMATS.get(block.mime_type)
    if place.audio == "text" and (held is not None or is_web(block.uri)):
        return {"type": "input_audio", "input_audio": held.base64 if held else block.uri}
    if place.audio == "none" or held is None or format is None:
        return _text(words_for(block, where, "this server takes no such sound", losses))
    return {"type": "input_audio", "input_audio": {"data": held.base64, "format": format}}


def _document(
    block: File, held: Inline | None, where: str, place: Server, losses: list[Loss], *, mine: bool
) -> dict[str, Any]:
    if held is None and not place.web_files:
        return _text(words_for(block, where, "this server takes documents as bytes only", losses))
    if held is not None and not held.bytes:
        return _text(words_for(block, where, "it is empty", losses))
    if held is not None and not mine and held.media_type.startswith("text/"):
        losses.append(Loss(kind="converted", where=where, what="file", why="its text is given as text"))
        return _text(held.bytes.decode("utf-8", "replace"))
    if not place.files or (place.documents and held and not mine and held.media_type not in place.documents):
        return _text(words_for(block, where, "this server takes no such documents", losses))
    match place.files:
        case "file_url":
            return {"type": "file_url", "file_url": {"url": held.base64 if held else block.uri}}
        case "document_url":
            return {"type": "document_url", "document_url": block.uri}
        case _:
            name = f"file.{_ENDINGS.get(block.mime_type, 'bin')}"
            data = data_url(held.media_type, held.base64) if held else block.uri
            return {"type": "file", "file": {"file_data": data, "filename": name}}
