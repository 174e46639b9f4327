"""Prepares media for a model: artifacts become bytes, and media that the model does not accept become words.

Only addresses `artifact://sha256/…` of the thread itself are followed.  The history keeps media that are named in
words, and a model that accepts them is shown them again.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence

import msgspec

from perdure.errors import Forgotten, NotFound
from perdure.history import artifacts
from perdure.history.space import Space
from perdure.model.digest import Digest
from perdure.model.message import Block, File, Image, Message, Text, ToolResult
from perdure.providers.contract import Loss
from perdure.providers.wire.media import data_url, kind_of
from perdure.providers.wire.server_tools import is_account

__all__ = ["PREFIX", "mapped", "taken_out", "KINDS", "lost", "named"]


PREFIX = "artifact://sha256/"


def taken_out(space: Space, message: Message) -> Message:
    """Return the message with the bytes of its artifacts; an artifact that is gone stays a name."""

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
    """Apply `change` to each block of a message; return the same message if none changes."""
    content = tuple(change(block) for block in message.content)
    results = tuple(
        ToolResult(each.call_id, each.status, tuple(change(block) for block in each.content))
        for each in message.tool_results
    )
    if content == message.content and results == message.tool_results:
        return message
    return msgspec.structs.replace(message, content=content, tool_results=results)


KINDS = ("image", "file", "audio", "video")

_NOUNS = {"image": "a picture", "file": "a file", "audio": "a sound", "video": "a film"}


def named(messages: Sequence[Message], unseen: Sequence[str]) -> Sequence[Message]:
    """Replace media of the kinds `unseen` by words; return the same messages if there are none."""

    def in_words(block: Block) -> Block:
        kind = _kind(block)
        return Text(_words(block, kind)) if kind in unseen else block

    return tuple(mapped(message, in_words) for message in messages) if unseen else messages


def lost(messages: Sequence[Message], unseen: Sequence[str]) -> tuple[Loss, ...]:
    """Return a loss for each block of these messages that is named in words."""
    if not unseen:
        return ()
    return tuple(
        Loss(
            kind="converted",
            where=where,
            what=kind,
            why="the model takes none; it is named in words, and stays in the history",
        )
        for where, block in _places(messages)
        if (kind := _kind(block)) in unseen
    )


def _places(messages: Sequence[Message]) -> Iterator[tuple[str, Block]]:
    for at, message in enumerate(messages):
        yield from (
            (f"messages[{at}].content[{index}]", block) for index, block in enumerate(message.content)
        )
        for number, result in enumerate(message.tool_results):
            where = f"messages[{at}].toolResults[{number}].content"
            yield from ((f"{where}[{index}]", block) for index, block in enumerate(result.content))


def _kind(block: Block) -> str:
    """Return the kind of a block's medium; empty for text."""
    match block:
        case Image():
            return "image"
        case File() if not is_account(block):
            return kind_of(block.mime_type, block.uri)
        case _:
            return ""


def _words(block: Block, kind: str) -> str:
    assert isinstance(block, Image | File)
    where = f" at {block.uri}" if block.uri.startswith((PREFIX, "http://", "https://")) else ""
    return f"[Here is {_NOUNS[kind]} ({block.mime_type}){where}, which this model cannot be shown.]"
