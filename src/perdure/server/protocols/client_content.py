"""What the chat protocols share: how a client's message becomes one of ours, and where a client finds our media."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from perdure.errors import Invalid
from perdure.model.artifact import REFERENCE
from perdure.model.message import Block, File, Image, Message, Text, ToolResult
from perdure.model.ticket import Verdict

__all__ = ["MediaLinks", "ToolAnswer", "media_block", "text_of", "unsupported", "user_input"]


class ToolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the client says about a call that may wait."""

    call: str
    ticket: str | None  # None: it gives a result for the call, whatever the question was
    verdict: Verdict
    value: Any = None
    why: str | None = None


def user_input(blocks: Sequence[Block]) -> Message:
    """Return a message of the user; raises `Invalid` if it says nothing."""
    if not blocks:
        raise Invalid(
            "the message is empty; nothing was run.",
            code="message_missing",
            advice="Send a message with a text or a file.",
        )
    return Message("user", tuple(blocks))


def media_block(uri: str, media_type: str) -> Block:
    """Return a picture or a file that a client sends with its bytes, or by a web address; raises `Invalid` for others."""
    if not uri.startswith(("data:", "https:", "http:")):
        raise unsupported("file")
    return (Image if media_type.startswith("image/") else File)(uri, media_type)


def unsupported(part: str) -> Invalid:
    """Return the error for a part that cannot be stored as a client sent it."""
    return Invalid(
        f"a part of the type '{part}' cannot be stored as it was sent; nothing was run.",
        code="message_part_unsupported",
        advice="A message has texts, and files with their bytes or a web address.",
        part=part,
    )


def text_of(result: ToolResult) -> str:
    """Return the words of a result."""
    return "".join(block.text for block in result.content if isinstance(block, Text))


class MediaLinks(NamedTuple):
    """Where the clients of one thread find the content of its pictures and files."""

    thread: str
    root: str = ""  # the path under which clients reach the server

    def to(self, uri: str) -> str:
        """Return the address of the content of a block: that of an artifact is on this server."""
        digest = uri.removeprefix(REFERENCE)
        if digest == uri:
            return uri
        return f"{self.root}/v1/artifacts/{digest}?thread={quote(self.thread, safe='')}"
