"""Media at the door: bytes in messages become artifacts on the way in.

A data URL is kept once, by digest, and the message names it: `artifact://sha256/<digest>`.  A
backend that is to see it gets the bytes back (context/media.py).
"""

from __future__ import annotations

from holdfast.context.media import PREFIX, mapped
from holdfast.history import artifacts
from holdfast.history.artifacts import Staged
from holdfast.history.space import Space
from holdfast.model.message import Block, File, Image, Message
from holdfast.providers.wire.media import inline

__all__ = ["SERVER_TOOL", "brought_in"]

SERVER_TOOL = "application/vnd.holdfast.server-tool+json"  # words of a vendor's own tool, not media
INLINE_BYTES_MAX = 1_024  # smaller ones stay in the message


def brought_in(space: Space, message: Message) -> tuple[Message, list[Staged]]:
    """The message with its bytes named by digest, and the artifacts that the same write must hold."""
    staged: list[Staged] = []

    def keep(block: Block) -> Block:
        if not isinstance(block, Image | File) or block.mime_type == SERVER_TOOL:
            return block
        found = inline(block.uri)
        if found is None or len(found.bytes) <= INLINE_BYTES_MAX:
            return block
        kept = artifacts.stage(space, (found.bytes,), media_type=found.media_type)
        staged.append(kept)
        return type(block)(PREFIX + kept.digest, found.media_type)

    return mapped(message, keep), staged
