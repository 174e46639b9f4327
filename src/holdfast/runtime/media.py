"""Media at the door: bytes in messages become artifacts on the way in.

A data URL of whatever size is kept once, by digest, and the message names it: `artifact://sha256/<digest>`,
with the media type that the bytes have, whatever was declared.  A backend that is to see it gets the
bytes back (context/media.py).  What is no data URL, or cannot be read as one, stays as it came.
"""

from __future__ import annotations

from holdfast.context.media import PREFIX, mapped
from holdfast.errors import Invalid
from holdfast.history import artifacts
from holdfast.history.artifacts import Staged
from holdfast.history.space import Space
from holdfast.model.artifact import check_media_type, sniff
from holdfast.model.message import Block, File, Image, Message, encode_message
from holdfast.providers.wire.media import Inline, inline, media_type_of

__all__ = ["SERVER_TOOL", "brought_in"]

SERVER_TOOL = "application/vnd.holdfast.server-tool+json"  # words of a vendor's own tool, not media

_ANY = "application/octet-stream"


def brought_in(space: Space, message: Message) -> tuple[Message, list[Staged]]:
    """The message with its bytes named by digest, and the artifacts that the same write must hold.

    Raises `Invalid` if it is no message, or the bytes are more than an artifact may have.
    """
    staged: list[Staged] = []
    if not _has_media(message):
        return message, staged
    encode_message(message)  # types are not checked when a message is made

    def keep(block: Block) -> Block:
        if not isinstance(block, Image | File) or block.mime_type == SERVER_TOOL:
            return block
        found = inline(block.uri)
        if found is None:
            return block
        kept = artifacts.stage(space, (found.bytes,), media_type=_media_type(block, found))
        staged.append(kept)
        return type(block)(PREFIX + kept.digest, kept.artifact.media_type)

    return mapped(message, keep), staged


def _has_media(message: Message) -> bool:
    """Whether there is anything but words, as there seldom is."""
    for block in message.content:
        if isinstance(block, Image | File):
            return True
    for result in message.tool_results:
        for block in result.content:
            if isinstance(block, Image | File):
                return True
    return False


def _media_type(block: Image | File, found: Inline) -> str:
    """What the bytes are, by themselves, else by their address, else by the block; without parameters."""
    untyped = block.uri[len("data:") :].startswith((";", ",")) or found.declared == _ANY
    declared = block.mime_type if untyped and block.mime_type else found.declared
    known = media_type_of(declared, found.bytes).partition(";")[0].strip()
    try:
        return check_media_type(known)
    except Invalid:
        return sniff(found.bytes, whole=True).partition(";")[0]
