"""Media at the door: bytes in messages become artifacts on the way in, and bytes again on the way out.

A data URL is kept once, by digest, and the message names it: `artifact://sha256/<digest>`.  A
backend that is to see it gets the bytes back.  No other address is ever followed.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

import msgspec

from holdfast.errors import Forgotten, NotFound
from holdfast.history import artifacts
from holdfast.history.artifacts import Staged
from holdfast.history.space import Space
from holdfast.model.digest import Digest
from holdfast.model.message import Block, File, Image, Message, ToolResult
from holdfast.providers.wire.media import data_url, inline

__all__ = ["SERVER_TOOL", "brought_in", "taken_out"]

PREFIX = "artifact://sha256/"
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

    return _mapped(message, keep), staged


def taken_out(space: Space, message: Message) -> Message:
    """The message with the bytes of its artifacts in it; one that is gone stays a name."""

    def give(block: Block) -> Block:
        if not isinstance(block, Image | File) or not block.uri.startswith(PREFIX):
            return block
        try:
            body = b"".join(artifacts.get(space, Digest(block.uri.removeprefix(PREFIX))))
        except (Forgotten, NotFound):
            return block
        return type(block)(data_url(block.mime_type, base64.b64encode(body).decode()), block.mime_type)

    return _mapped(message, give)


def _mapped(message: Message, change: Callable[[Block], Block]) -> Message:
    content = tuple(change(block) for block in message.content)
    results = tuple(
        ToolResult(each.call_id, each.status, tuple(change(block) for block in each.content))
        for each in message.tool_results
    )
    if content == message.content and results == message.tool_results:
        return message
    return msgspec.structs.replace(message, content=content, tool_results=results)
