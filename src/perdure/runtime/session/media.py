"""Turns the media in messages into artifacts before the messages are stored.

The bytes of a data URL are stored once, by digest, and the message names them: `artifact://sha256/<digest>`.
A backend that is shown the message gets the bytes back (context/render/media.py).  A block that has no valid
data URL is stored as it came.

    brought in     by users and programs: with the media type that the bytes have, whatever was declared
    said           by a model: exactly as it wrote it, so that the next model is shown the same

Vendor metadata is stored as it came, even if it holds the same bytes once more.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from perdure.context.render.media import PREFIX, mapped
from perdure.errors import Invalid
from perdure.history import artifacts
from perdure.history.artifacts import Staged
from perdure.history.space import Space
from perdure.model.artifact import check_media_type, sniff
from perdure.model.message import Block, File, Image, Message, encode_message
from perdure.providers.wire.media import Inline, data_url, inline, media_type_of

__all__ = ["SERVER_TOOL", "brought_in", "has_media", "said"]

SERVER_TOOL = "application/vnd.perdure.server-tool+json"  # text of a vendor's own tool, not media

_ANY = "application/octet-stream"


def brought_in(space: Space, message: Message) -> tuple[Message, list[Staged]]:
    """Return the message with its bytes named by digest, and the artifacts that the same write must hold.

    Raises `Invalid` if it is no message, or the bytes are more than an artifact may have.
    """
    return _kept(space, message, _media_type)


def said(space: Space, message: Message) -> tuple[Message, list[Staged]]:
    """Do the same for a model's message; bytes whose data URL could not be rebuilt exactly stay in the message.

    If there are more bytes than fit into the write of a turn, some artifacts are published before it.
    """
    kept, staged = _kept(space, message, _as_said)
    return kept, _within(space, staged)


def has_media(message: Message) -> bool:
    """True if the message has images or files."""
    for block in message.content:
        if isinstance(block, Image | File):
            return True
    for result in message.tool_results:
        for block in result.content:
            if isinstance(block, Image | File):
                return True
    return False


def _kept(
    space: Space, message: Message, named: Callable[[Image | File, Inline], str | None]
) -> tuple[Message, list[Staged]]:
    """Name the bytes of a message by digest, under the media type that `named` returns; None leaves a block as it is."""
    staged: list[Staged] = []
    if not has_media(message):
        return message, staged
    encode_message(message)  # types are not checked when a message is made

    def keep(block: Block) -> Block:
        if not isinstance(block, Image | File) or block.mime_type == SERVER_TOOL:
            return block
        found = inline(block.uri)
        media_type = None if found is None else named(block, found)
        if found is None or media_type is None:
            return block
        kept = artifacts.stage(space, (found.bytes,), media_type=_media_type(block, found))
        staged.append(kept)
        return type(block)(PREFIX + kept.digest, media_type)

    return mapped(message, keep), staged


def _as_said(block: Image | File, found: Inline) -> str | None:
    """Return the block's own media type, if that and the bytes make the same data URL again."""
    again = data_url(block.mime_type, base64.b64encode(found.bytes).decode())
    return block.mime_type if again == block.uri else None


def _within(space: Space, staged: list[Staged]) -> list[Staged]:
    """Return the artifacts that the write of a turn has room for; publish the others at once."""
    room = space.limits.write_bytes_max // 4  # the write also has text, results and vendor metadata
    left: list[Staged] = []
    for each in staged:
        size = sum(len(whole.body) for whole in each.objects)
        if size <= room:
            room -= size
            left.append(each)
        else:
            artifacts.publish(space, each)
    return left


def _media_type(block: Image | File, found: Inline) -> str:
    """Return the media type of the bytes: by themselves, else by the data URL, else by the block; no parameters."""
    untyped = block.uri[len("data:") :].startswith((";", ",")) or found.declared == _ANY
    declared = block.mime_type if untyped and block.mime_type else found.declared
    known = media_type_of(declared, found.bytes).partition(";")[0].strip()
    try:
        return check_media_type(known)
    except Invalid:
        return sniff(found.bytes, whole=True).partition(";")[0]
