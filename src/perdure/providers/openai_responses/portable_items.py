"""Writes messages as items of the Responses API, without the fields that only OpenAI reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers.contract import Loss
from perdure.providers.wire.call_pairs import NO_PLACE
from perdure.providers.wire.fields.vendor_items import is_object, object_of
from perdure.providers.wire.media import inline, is_web
from perdure.providers.wire.server_tools import is_account, told
from perdure.providers.wire.tool_names import name_of_call

__all__ = ["ItemWriter", "plain_items"]

_PICTURES = ("image/png", "image/jpeg", "image/webp", "image/gif", "image/*")
_NAMES = {
    "application/pdf": "file.pdf",
    "application/json": "file.json",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "file.pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "file.xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "file.docx",
    "text/csv": "file.csv",
    "text/html": "file.html",
    "text/markdown": "file.md",
}
_FILE_ID = "file-id://openai/"


class ItemWriter:
    """Writes messages as items, and reports what changed."""

    def __init__(
        self,
        losses: list[Loss],
        *,
        id_of: Callable[[str], str] = str,
        name_of: Callable[[str], str] = str,
        is_custom: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """Take the ids and names of the request; a custom tool takes text, not JSON."""
        self.losses, self.id_of, self.name_of, self.is_custom = losses, id_of, name_of, is_custom

    def message(self, message: Message, where: str) -> list[dict[str, Any]]:
        """Return the items of a message and its calls, without the results."""
        match message.role:
            case "assistant":
                return self._assistant(message, where)
            case "user" | "tool":
                return self._spoken("user", message.content, where)
            case "system":
                return self._spoken("system", message.content, where)
            case _:
                assert_never(message.role)

    def moved(self, message: Message, where: str) -> list[dict[str, Any]]:
        """Return the assistant's pictures and files as a message of the user after its turn."""
        if message.role != "assistant" or all(isinstance(block, Text) for block in message.content):
            return []
        media = [
            (at, block)
            for at, block in enumerate(message.content)
            if isinstance(block, Image | File) and not is_account(block)
        ]
        if not media:
            return []
        parts = [self.part(block, f"{where}.content[{at}]") for at, block in media]
        note = {"type": "input_text", "text": "From the assistant's message above:"}
        return [{"role": "user", "content": [note, *(part for part in parts if part)]}]

    def call(self, call: ToolCall, where: str) -> dict[str, Any]:
        """Return a call."""
        at = {"call_id": self.id_of(call.id), "name": self.tool_name(call, where)}
        if self.is_custom(call.name):
            return {"type": "custom_tool_call", **at, "input": _custom_input(call.args)}
        return {"type": "function_call", **at, "arguments": self._arguments(call.args, where)}

    def tool_name(self, call: ToolCall, where: str) -> str:
        """Return the name of the tool of a call here, and report another one."""
        return name_of_call(call, where, self.name_of, self.losses)

    def result(self, call: ToolCall, result: ToolResult, where: str) -> dict[str, Any]:
        """Return a result."""
        kind = "custom_tool_call_output" if self.is_custom(call.name) else "function_call_output"
        output = self._output(result.content, where)
        if result.status == "error":
            output = _as_error(output)
            if where != NO_PLACE:
                why = "results have no mark of failure here; the words say it"
                self._lose("converted", where, "tool error", why)
        return {"type": kind, "call_id": self.id_of(call.id), "output": output}

    def part(self, block: Block, where: str) -> dict[str, Any] | None:
        """Return a block as a part of a message of the user's."""
        match block:
            case Text("") | ReasoningSummary(""):
                return None
            case Text(text):
                return {"type": "input_text", "text": text}
            case ReasoningSummary():
                self._lose("dropped", where, "reasoning", "only the model that made it can use it")
                return None
            case Image():
                return self._picture(block, where)
            case File():
                return self._file(block, where)
            case _:
                assert_never(block)

    def _assistant(self, message: Message, where: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        for at, block in enumerate(message.content):
            place = f"{where}.content[{at}]"
            match block:
                case Text("") | ReasoningSummary(""):
                    continue
                case Text(text):
                    items.append({"type": "message", "role": "assistant", "content": text})
                case ReasoningSummary():
                    self._lose("dropped", place, "reasoning", "only the model that made it can use it")
                case File() if is_account(block):
                    items.append(
                        {"type": "message", "role": "assistant", "content": self._line(block, place)}
                    )
                case Image() | File():
                    why = "an assistant says words alone here; it stands in a message of the user's behind the turn"
                    self._lose("converted", place, _what(block), why)
                case _:
                    assert_never(block)
        calls = [self.call(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(message.tool_calls)]
        return [*items, *calls]

    def _spoken(self, role: str, blocks: Sequence[Block], where: str) -> list[dict[str, Any]]:
        parts = [self.part(block, f"{where}.content[{at}]") for at, block in enumerate(blocks)]
        said = [part for part in parts if part]
        if role == "system":
            said = [self._worded(part, where) for part in said]
        if len(said) == 1 and said[0]["type"] == "input_text":
            return [{"role": role, "content": said[0]["text"]}]
        return [{"role": role, "content": said}] if said else []

    def _worded(self, part: dict[str, Any], where: str) -> dict[str, Any]:
        if part["type"] == "input_text":
            return part
        self._lose("converted", where, part["type"], "a system message says words alone here")
        return {"type": "input_text", "text": f"[{part['type'].removeprefix('input_')}]"}

    def _output(self, blocks: Sequence[Block], where: str) -> Any:
        parts = [self.part(block, f"{where}.content[{at}]") for at, block in enumerate(blocks)]
        said = [part for part in parts if part]
        if not said:
            return ""
        return said[0]["text"] if len(said) == 1 and said[0]["type"] == "input_text" else said

    def _arguments(self, args: str, where: str) -> str:
        if is_object(args):
            return args
        if not args.strip():
            return "{}"
        self._lose("repaired", where, "arguments", "they are no JSON object; the text stands under 'input'")
        return json.dumps({"input": args})

    def _picture(self, block: Image, where: str) -> dict[str, Any]:
        if block.uri.startswith(_FILE_ID):
            return {"type": "input_image", "detail": "auto", "file_id": block.uri.removeprefix(_FILE_ID)}
        if is_web(block.uri) or (inline(block.uri) is not None and block.mime_type in _PICTURES):
            return {"type": "input_image", "detail": "auto", "image_url": block.uri}
        return self._in_words(block, where)

    def _file(self, block: File, where: str) -> dict[str, Any]:
        if is_account(block):
            return {"type": "input_text", "text": self._line(block, where)}
        if block.uri.startswith(_FILE_ID):
            return {"type": "input_file", "file_id": block.uri.removeprefix(_FILE_ID)}
        kind = block.mime_type.partition("/")[0]
        if kind == "image" and (is_web(block.uri) or block.mime_type in _PICTURES):
            return self._picture(Image(uri=block.uri, mime_type=block.mime_type), where)
        if kind not in ("audio", "video", "image"):
            if is_web(block.uri):
                return {"type": "input_file", "file_url": block.uri}
            if inline(block.uri) is not None:
                name = _NAMES.get(block.mime_type, "file.txt" if kind == "text" else "file")
                return {"type": "input_file", "filename": name, "file_data": block.uri}
        return self._in_words(block, where)

    def _in_words(self, block: Image | File, where: str) -> dict[str, Any]:
        told_uri = "" if block.uri.startswith("data:") else f" {block.uri}"
        self._lose(
            "converted", where, _what(block), f"{block.mime_type} cannot be shown here; it is named in words"
        )
        return {"type": "input_text", "text": f"[{_what(block)} {block.mime_type}{told_uri}]"}

    def _line(self, block: File, where: str) -> str:
        self._lose("converted", where, "server tool", "another vendor's tool; it is written as text")
        return told(block)

    def _lose(self, kind: str, where: str, what: str, why: str) -> None:
        self.losses.append(Loss(kind=kind, where=where, what=what, why=why))  # pyright: ignore[reportArgumentType]


def plain_items(message: Message) -> list[dict[str, Any]]:
    """Return the items of a message that was just read, for comparison: with its own ids and names."""
    writer = ItemWriter([])
    if message.tool_results:
        result = message.tool_results[0]
        return [writer.result(ToolCall(result.call_id, "", ""), result, "")]
    return writer.message(message, "")


def _as_error(output: Any) -> Any:
    if isinstance(output, str):
        return output if output.casefold().startswith("error") else f"Error: {output}".rstrip(": ")
    return [{"type": "input_text", "text": "Error:"}, *output]


def _custom_input(args: str) -> str:
    try:
        parsed = object_of(json.loads(args))
    except (ValueError, RecursionError):
        return args
    value = parsed.get("input")
    return value if len(parsed) == 1 and isinstance(value, str) else args


def _what(block: Image | File) -> str:
    return "image" if isinstance(block, Image) else "file"
