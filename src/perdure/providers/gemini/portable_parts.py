"""Writes messages as parts of the Gemini API, without the fields that only Google reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never, cast

from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers.contract import Loss
from perdure.providers.wire.blocks import parsed
from perdure.providers.wire.media import inline, is_web
from perdure.providers.wire.server_tools import is_account, told
from perdure.providers.wire.tool_names import name_of_call

__all__ = ["PartWriter", "plain_parts"]

_PICTURES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")
_FILES = ("application/pdf", "application/json")
_FILE_ID = "file-id://google/"
_ENDINGS = {"png": "image/png", "webp": "image/webp", "pdf": "application/pdf", "mp4": "video/mp4"}

Part = dict[str, Any]


class PartWriter:
    """Writes messages as parts, and reports what changed."""

    def __init__(
        self,
        losses: list[Loss],
        *,
        id_of: Callable[[str], str] = str,
        name_of: Callable[[str], str] = str,
        media_in_results: bool = True,
    ) -> None:
        """Take the ids and names of the request; older models accept no media in results."""
        self.losses, self.id_of, self.name_of = losses, id_of, name_of
        self._media_in_results = media_in_results

    def message(self, message: Message, where: str) -> list[Part]:
        """Return the parts of a message and its calls, without the results."""
        parts = [self.part(block, f"{where}.content[{at}]") for at, block in enumerate(message.content)]
        calls = [self.call(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(message.tool_calls)]
        return [*(part for part in parts if part), *calls]

    def call(self, call: ToolCall, where: str) -> Part:
        """Return a call."""
        name, args = self.tool_name(call, where), self.args(call.args, where)
        return {"functionCall": {"id": self.id_of(call.id), "name": name, "args": args}}

    def tool_name(self, call: ToolCall, where: str) -> str:
        """Return the name of the tool of a call here, and report another one."""
        return name_of_call(call, where, self.name_of, self.losses)

    def args(self, args: str, where: str) -> dict[str, Any]:
        """Return arguments as the object that they have to be."""
        value: object = parsed(args) if args.strip() else {}
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        self._lose("repaired", where, "arguments", "they are no JSON object; the text stands under 'input'")
        return {"input": args}

    def result(self, call: ToolCall, result: ToolResult, where: str) -> tuple[Part, list[Part]]:
        """Return a result, and the media that stand behind it where it cannot hold them."""
        texts, media = self._split(result.content, where)
        answer: dict[str, Any] = {
            "id": self.id_of(call.id),
            "name": self.name_of(call.name),
            "response": _response("\n".join(texts), error=result.status == "error"),
        }
        if media and self._media_in_results:
            return {"functionResponse": {**answer, "parts": media}}, []
        if media:
            why = "this model takes no media in results; it stands behind them"
            self._lose("converted", where, "media in a result", why)
        return {"functionResponse": answer}, media

    def part(self, block: Block, where: str) -> Part | None:
        """Return a block as a part."""
        match block:
            case Text("") | ReasoningSummary(""):
                return None
            case Text(text):
                return {"text": text}
            case ReasoningSummary():
                self._lose("dropped", where, "reasoning", "only the model that made it can use it")
                return None
            case Image(uri, kind):
                return self._media("image", uri, kind, where)
            case File(uri, kind):
                if is_account(block):
                    self._lose(
                        "converted", where, "server tool", "another vendor's tool; it is written as text"
                    )
                    return {"text": told(block)}
                return self._media("file", uri, kind, where)
            case _:
                assert_never(block)

    def _split(self, blocks: Sequence[Block], where: str) -> tuple[list[str], list[Part]]:
        texts: list[str] = []
        media: list[Part] = []
        for at, block in enumerate(blocks):
            part = self.part(block, f"{where}.content[{at}]")
            if part is not None and "text" in part:
                texts.append(part["text"])
            elif part is not None:
                media.append(part)
        return texts, media

    def _media(self, what: str, uri: str, kind: str, where: str) -> Part:
        if uri.startswith(_FILE_ID):
            return {"fileData": {"fileUri": uri.removeprefix(_FILE_ID), "mimeType": kind}}
        if is_web(uri):
            return {"fileData": {"fileUri": uri, "mimeType": _named(uri, kind)}}
        held = inline(uri)
        if held is not None and kind in _PICTURES and held.media_type.startswith("image/"):
            kind = held.media_type  # the detected type, not the declared one
        is_what_it_says = held is not None and (kind not in _PICTURES or held.media_type == kind)
        if held is not None and is_what_it_says and _is_taken(kind):
            return {"inlineData": {"mimeType": kind, "data": held.base64}}
        at = "" if uri.startswith("data:") else f" {uri}"
        self._lose("converted", where, what, f"{kind} cannot be shown here; it is named in words")
        return {"text": f"[{what} {kind}{at}]"}

    def _lose(self, kind: str, where: str, what: str, why: str) -> None:
        self.losses.append(Loss(kind=kind, where=where, what=what, why=why))  # pyright: ignore[reportArgumentType]


def plain_parts(message: Message) -> list[Part]:
    """Return the parts of a message that was just read, for comparison: with its own ids and names."""
    writer = PartWriter([])
    results = [
        writer.result(ToolCall(result.call_id, "", ""), result, "")[0] for result in message.tool_results
    ]
    return [*results, *writer.message(message, "")]


def _response(text: str, *, error: bool) -> dict[str, Any]:
    if error:
        return {"error": text}
    value = parsed(text)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"result": text}


def _is_taken(kind: str) -> bool:
    top = kind.partition("/")[0]
    return kind in _PICTURES or kind in _FILES or top in ("audio", "video", "text")


def _named(uri: str, kind: str) -> str:
    """Return the media type, which has to be a whole one."""
    if kind and not kind.endswith("/*") and kind != "application/octet-stream":
        return kind
    fallback = "image/jpeg" if kind == "image/*" else "application/pdf"
    return _ENDINGS.get(uri.partition("?")[0].rpartition(".")[2].lower(), fallback)
