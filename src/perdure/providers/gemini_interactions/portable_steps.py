"""Writes messages as steps of the Interactions API, without the fields that only Google reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, assert_never, cast

from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers.contract import Loss, LossKind
from perdure.providers.wire.blocks import parsed
from perdure.providers.wire.media import inline, is_web, kind_of
from perdure.providers.wire.server_tools import is_account, told
from perdure.providers.wire.tool_names import name_of_call

__all__ = ["Step", "Writer", "plain_steps"]

_FILE_ID = "file-id://google/"
# The media types that the API takes as bytes, by the kind of content.
_TAKEN = {
    "image": re.compile(r"image/(png|jpeg|webp|heic|heif|gif|bmp|tiff)"),
    "audio": re.compile(r"audio/(wav|mp3|aiff|aac|ogg|flac|mpeg|m4a|l16|opus|alaw|mulaw|webm)(;.*)?"),
    "video": re.compile(r"video/(mp4|mpeg|mpg|mov|avi|x-flv|webm|wmv|3gpp)"),
    "document": re.compile(r"application/(pdf|msword|vnd\.(ms-|oasis\.|openxmlformats-).+)|text/csv"),
}

Step = dict[str, Any]


class Writer:
    """Writes messages as steps, and reports what changed."""

    def __init__(
        self,
        losses: list[Loss],
        *,
        id_of: Callable[[str], str] = str,
        name_of: Callable[[str], str] = str,
    ) -> None:
        """`id_of` and `name_of` give the ids of calls and the names of tools that the request uses."""
        self.losses, self.id_of, self.name_of = losses, id_of, name_of

    def message(self, message: Message, where: str) -> list[Step]:
        """Return the steps of a message and its calls, without the results."""
        contents = [self.content(block, f"{where}.content[{at}]") for at, block in enumerate(message.content)]
        said = [content for content in contents if content]
        calls = [self.call(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(message.tool_calls)]
        kind = "model_output" if message.role == "assistant" else "user_input"
        return [*([{"type": kind, "content": said}] if said else []), *calls]

    def call(self, call: ToolCall, where: str) -> Step:
        """Return a call."""
        name, arguments = self.tool_name(call, where), self.arguments(call.args, where)
        return {"type": "function_call", "id": self.id_of(call.id), "name": name, "arguments": arguments}

    def tool_name(self, call: ToolCall, where: str) -> str:
        """Return the name of the tool of a call here, and report another one."""
        return name_of_call(call, where, self.name_of, self.losses)

    def arguments(self, args: str, where: str) -> dict[str, Any]:
        """Return arguments as the object that they have to be."""
        value: object = parsed(args) if args.strip() else {}
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        self.lose("repaired", where, "arguments", "they are no JSON object; the text stands under 'input'")
        return {"input": args}

    def result(self, call: ToolCall, result: ToolResult, where: str) -> Step:
        """Return a result; one that is a single text is written as text, all others as a list of contents."""
        contents = [self.content(block, f"{where}.content[{at}]") for at, block in enumerate(result.content)]
        said = [content for content in contents if content]
        is_text = len(said) == 1 and said[0]["type"] == "text"
        step: Step = {"type": "function_result", "call_id": self.id_of(call.id)}
        if call.name:
            step["name"] = self.name_of(call.name)
        step["result"] = said[0]["text"] if is_text else said or ""
        return {**step, "is_error": True} if result.status == "error" else step

    def content(self, block: Block, where: str) -> dict[str, Any] | None:
        """Return a block as a content; None if it has nothing to send."""
        match block:
            case Text("") | ReasoningSummary(""):
                return None
            case Text(text):
                return {"type": "text", "text": text}
            case ReasoningSummary():
                self.lose("dropped", where, "reasoning", "only the model that made it can use it")
                return None
            case File() if is_account(block):
                self.lose("converted", where, "server tool", "another vendor's tool; it is written as text")
                return {"type": "text", "text": told(block)}
            case Image(uri, media_type):
                return self._media("image", uri, media_type, where)
            case File(uri, media_type):
                return self._media("file", uri, media_type, where)
            case _:
                assert_never(block)

    def _media(self, what: str, uri: str, media_type: str, where: str) -> dict[str, Any]:
        top = "image" if what == "image" else kind_of(media_type)
        kind = top if top in ("image", "audio", "video") else "document"
        if is_web(uri) or uri.startswith(_FILE_ID):
            is_exact = media_type not in ("", "application/octet-stream") and not media_type.endswith("/*")
            named = {"mime_type": media_type} if is_exact else {}
            return {"type": kind, "uri": uri.removeprefix(_FILE_ID), **named}
        held = inline(uri)
        if held is not None:
            exact = held.media_type if kind == "image" else media_type
            if _TAKEN[kind].fullmatch(exact):
                return {"type": kind, "data": held.base64, "mime_type": exact}
            if top == "text" and (words := _words(held.bytes)):
                why = f"{media_type} cannot be shown as a file here; its words are text"
                self.lose("converted", where, what, why)
                return {"type": "text", "text": words}
        at = "" if uri.startswith("data:") else f" {uri}"
        self.lose("converted", where, what, f"{media_type} cannot be shown here; it is named in words")
        return {"type": "text", "text": f"[{what} {media_type}{at}]"}

    def lose(self, kind: LossKind, where: str, what: str, why: str) -> None:
        """Record a loss."""
        self.losses.append(Loss(kind=kind, where=where, what=what, why=why))


def plain_steps(message: Message) -> list[Step]:
    """Return the steps of a message that was just read, for comparison: with its own ids and names."""
    writer = Writer([])
    results: Sequence[ToolResult] = message.tool_results
    return [
        *(writer.result(ToolCall(result.call_id, "", ""), result, "") for result in results),
        *writer.message(message, ""),
    ]


def _words(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return ""
