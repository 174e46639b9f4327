"""Canonical blocks as parts of a Chat message: what the server takes as it is, and what it is told in words."""

from __future__ import annotations

from typing import Any, assert_never

from perdure.model.message import Block, File, Image, ReasoningSummary, Text
from perdure.providers.contract import Loss
from perdure.providers.openai_chat.beside import Beside, merged
from perdure.providers.openai_chat.parts import IMAGE_TYPES, is_kind
from perdure.providers.openai_chat.servers import Server
from perdure.providers.wire.media import Inline, data_url, inline, is_web
from perdure.providers.wire.server_tools import is_account, told

__all__ = ["part_of", "words_for"]

_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3"}
_ENDINGS = {"application/pdf": "pdf", "text/plain": "txt", "text/csv": "csv", "application/json": "json"}


def part_of(
    block: Block, at: str, own: Beside, where: str, place: Server, endpoint: str, losses: list[Loss]
) -> dict[str, Any] | None:
    """The part for a block of a user's message; None where it is left out.  `at` is its place, as `own` knows it."""
    kept = own.parts.get(at)
    if kept is not None and kept.native is not None and not isinstance(block, Text):
        return kept.native
    part = _part(block, where, place, endpoint, losses, mine=kept is not None)
    return part if part is None or kept is None else merged(part, kept.add)


def words_for(block: Image | File, where: str, why: str, losses: list[Loss]) -> str:
    """What a server is told of media that it cannot take."""
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
