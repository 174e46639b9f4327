"""Media at the door: bytes in messages become artifacts on the way in.

A data URL of whatever size is kept once, by digest, and the message names it: `artifact://sha256/<digest>`.
A backend that is to see it gets the bytes back (context/media.py).  What is no data URL, or cannot be read as
one, stays as it came.

    brought in     by users and programs: with the media type that the bytes have, whatever was declared
    said           by a model: as it said it, so that whoever is shown it next is shown the very same

What only a vendor can read is left as it came, even if it holds the same bytes once more.
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

SERVER_TOOL = "application/vnd.perdure.server-tool+json"  # words of a vendor's own tool, not media

_ANY = "application/octet-stream"


def brought_in(space: Space, message: Message) -> tuple[Message, list[Staged]]:
    """The message with its bytes named by digest, and the artifacts that the same write must hold.

    Raises `Invalid` if it is no message, or the bytes are more than an artifact may have.
    """
    return _kept(space, message, _media_type)


def said(space: Space, message: Message) -> tuple[Message, list[Staged]]:
    """The same for what a model says: bytes whose address could not be given back as it was stay in the message.

    Of more bytes than fit into the write of a turn, some become visible before it, by writes of their own.
    """
    kept, staged = _kept(space, message, _as_said)
    return kept, _within(space, staged)


def has_media(message: Message) -> bool:
    """Whether there is anything but words, as there seldom is."""
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
    """The message with its bytes named by digest under the media type `named`; None leaves a block as it came."""
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
    """The block's own media type, if with it the bytes make the address again that the block has."""
    again = data_url(block.mime_type, base64.b64encode(found.bytes).decode())
    return block.mime_type if again == block.uri else None


def _within(space: Space, staged: list[Staged]) -> list[Staged]:
    """Those that the write of a turn has room for; the others are made visible at once."""
    state_view = (
        space.limits.write_bytes_max // 4
    )  # words, results and what only the vendor reads are in it, too
    left: list[Staged] = []
    for each in staged:
        size = sum(len(whole.body) for whole in each.objects)
        if size <= state_view:
            state_view -= size
            left.append(each)
        else:
            artifacts.publish(space, each)
    return left


def _media_type(block: Image | File, found: Inline) -> str:
    """What the bytes are, by themselves, else by their address, else by the block; without parameters."""
    untyped = block.uri[len("data:") :].startswith((";", ",")) or found.declared == _ANY
    declared = block.mime_type if untyped and block.mime_type else found.declared
    known = media_type_of(declared, found.bytes).partition(";")[0].strip()
    try:
        return check_media_type(known)
    except Invalid:
        return sniff(found.bytes, whole=True).partition(";")[0]
