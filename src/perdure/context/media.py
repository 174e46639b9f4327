"""Media on the way out: a picture that the history keeps by digest is shown with its bytes.

No address but `artifact://sha256/…` of the thread itself is ever followed.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

import msgspec

from perdure.errors import Forgotten, NotFound
from perdure.history import artifacts
from perdure.history.space import Space
from perdure.model.digest import Digest
from perdure.model.message import Block, File, Image, Message, ToolResult
from perdure.providers.wire.media import data_url

__all__ = ["PREFIX", "mapped", "taken_out"]

PREFIX = "artifact://sha256/"


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

    return mapped(message, give)


def mapped(message: Message, change: Callable[[Block], Block]) -> Message:
    """The message with each of its blocks changed; itself if none of them is."""
    content = tuple(change(block) for block in message.content)
    results = tuple(
        ToolResult(each.call_id, each.status, tuple(change(block) for block in each.content))
        for each in message.tool_results
    )
    if content == message.content and results == message.tool_results:
        return message
    return msgspec.structs.replace(message, content=content, tool_results=results)
