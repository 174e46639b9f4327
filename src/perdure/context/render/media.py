"""Media of messages: bytes become artifacts before a message is stored, and bytes again when a model is shown it.

The bytes of a data URL are stored once, by digest, and the message names them: `artifact://sha256/<digest>`.  A block
that has no valid data URL is stored as it came.

    brought_in     by users and programs: with the media type that the bytes have, whatever was declared
    said           by a model: exactly as it wrote it, so that the next model is shown the same

Vendor metadata is stored as it came, even if it holds the same bytes once more.

For a model, `taken_out` puts the bytes of artifacts back; only addresses of the thread itself are followed.  Media that
the model does not accept become words.  The history keeps media that are named in words, and a model that accepts them
is shown them again.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence

import msgspec

from perdure.errors import Forgotten, Invalid, NotFound
from perdure.history import artifacts
from perdure.history.artifacts import Staged
from perdure.history.space import Space
from perdure.model.artifact import check_media_type, sniff
from perdure.model.digest import Digest
from perdure.model.message import Block, File, Image, Message, Text, ToolResult, encode_message, has_media
from perdure.providers.contract import Loss
from perdure.providers.wire import server_tools
from perdure.providers.wire.media import Inline, data_url, inline, kind_of, media_type_of

__all__ = ["brought_in", "said", "taken_out", "named", "lost", "PREFIX"]

PREFIX = "artifact://sha256/"

_ANY = "application/octet-stream"


def brought_in(space: Space, message: Message) -> tuple[Message, list[Staged]]:
    """Return the message with its bytes named by digest, and the artifacts that the same write must hold.

    Raises `Invalid` if it is no message, or the bytes are more than an artifact may have.
    """
    return _stored(space, message, _media_type)


def said(space: Space, message: Message) -> tuple[Message, list[Staged]]:
    """Do the same for a model's message; bytes whose data URL could not be rebuilt exactly stay in the message.

    If there are more bytes than fit into the write of a turn, some artifacts are published before it.
    """
    kept, staged = _stored(space, message, _as_said)
    return kept, _within_turn(space, staged)


def _stored(
    space: Space, message: Message, named: Callable[[Image | File, Inline], str | None]
) -> tuple[Message, list[Staged]]:
    """Name the bytes of a message by digest, under the media type that `named` returns; None leaves a block as it is."""
    staged: list[Staged] = []
    if not has_media(message):
        return message, staged
    encode_message(message)  # types are not checked when a message is made

    def keep(block: Block) -> Block:
        if not isinstance(block, Image | File) or block.mime_type == server_tools.MEDIA_TYPE:
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


def _within_turn(space: Space, staged: list[Staged]) -> list[Staged]:
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


def taken_out(space: Space, message: Message) -> Message:
    """Return the message with the bytes of its artifacts; an artifact that is gone stays a name."""
    if not has_media(message):
        return message

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
        case File() if not server_tools.is_account(block):
            return kind_of(block.mime_type, block.uri)
        case _:
            return ""


def _words(block: Block, kind: str) -> str:
    assert isinstance(block, Image | File)
    where = f" at {block.uri}" if block.uri.startswith((PREFIX, "http://", "https://")) else ""
    return f"[Here is {_NOUNS[kind]} ({block.mime_type}){where}, which this model cannot be shown.]"
