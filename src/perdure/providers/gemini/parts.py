"""Parts of the Gemini API, read: each adds its blocks and calls to a turn and leaves a shell."""

from __future__ import annotations

import json
from typing import Any

from perdure.errors import Invalid
from perdure.model.message import File, Image
from perdure.providers.contract import Loss
from perdure.providers.gemini.names import camel, listed
from perdure.providers.wire.media import data_url, inline
from perdure.providers.wire.server_tools import account
from perdure.providers.wire.shells import Turn, object_of, text_of

__all__ = ["CALL", "DATA", "FILES", "native_part", "read_part"]

CALL = "#call"  # in the shell of a call: which of the message's calls it is
DATA = (
    "text",
    "functionCall",
    "functionResponse",
    "inlineData",
    "fileData",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
FILES = ("https://generativelanguage.googleapis.com/", "gs://")  # what lives on Google's servers
_SERVER = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
_DEFAULT_TYPE = "application/octet-stream"


def native_part(part: object, where: str) -> dict[str, Any]:
    """A part with all of the API's own names in camelCase."""
    if isinstance(part, str):
        return {"text": part}
    told = camel(part)
    if not told:
        raise Invalid(f"{where} is no part of the Gemini API: it is {type(part).__name__}, not an object.")
    for name in ("inlineData", "fileData", "functionCall", "videoMetadata", *_SERVER):
        if name in told:
            told[name] = camel(told[name])
    if "functionResponse" in told:
        answer = camel(told["functionResponse"])
        if "parts" in answer:
            answer["parts"] = [
                native_part(each, f"{where}.parts[{at}]") for at, each in enumerate(listed(answer["parts"]))
            ]
        told["functionResponse"] = answer
    return told


def read_part(part: dict[str, Any], turn: Turn, losses: list[Loss], where: str, *, model: bool) -> Any:
    """Add what a part says to its turn; its shell.  What a model says piece by piece is one text."""
    match next((name for name in DATA if name in part), None):
        case "text":
            return {**part, "text": _words(part, turn, model=model)}
        case "functionCall":
            return {**part, "functionCall": _call(object_of(part["functionCall"]), turn, where)}
        case "inlineData":
            return _inline(part, object_of(part["inlineData"]), turn)
        case "fileData":
            return _file(part, object_of(part["fileData"]), turn)
        case "executableCode" | "codeExecutionResult" | "toolCall" | "toolResponse" as kind:
            _server(kind, object_of(part[kind]), turn)
            return part
        case _:
            return _unknown(part, turn, losses, where)


def _words(part: dict[str, Any], turn: Turn, *, model: bool) -> Any:
    words = text_of(part["text"])
    if part.get("thought"):
        return turn.more_reasoning(words)
    return turn.more_text(words) if model else turn.text(words)


def _call(call: dict[str, Any], turn: Turn, where: str) -> dict[str, Any]:
    name = call.get("name")
    if not isinstance(name, str) or not name:
        raise Invalid(f"{where} is a call that names no tool.")
    args = json.dumps(call.get("args") or {}, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    at = turn.call(text_of(call.get("id")), name, args)
    rest = {key: value for key, value in call.items() if key not in ("args", "name")}
    return {**rest, CALL: at, **({} if "args" in call else {"args": None})}


def _inline(part: dict[str, Any], data: dict[str, Any], turn: Turn) -> Any:
    declared = text_of(data.get("mimeType")) or _DEFAULT_TYPE
    text = text_of(data.get("data"))
    held = inline(data_url(declared, text.replace("-", "+").replace("_", "/")))
    if held is None:
        turn.add(account("inlineData", declared))
        return part
    kind = held.media_type if ";" not in declared else declared
    block = (Image if kind.startswith("image/") else File)(data_url(held.media_type, held.base64), kind)
    exact = {} if kind == declared else {"mimeType": kind}
    hole = turn.media(block, base64=True)
    return {**part, "inlineData": {**data, **exact, "data": hole}}


def _file(part: dict[str, Any], data: dict[str, Any], turn: Turn) -> Any:
    uri, kind = text_of(data.get("fileUri")), text_of(data.get("mimeType"))
    block = Image if kind.startswith("image/") else File
    if uri.startswith(FILES):
        turn.add(block(f"file-id://google/{uri}", kind or _DEFAULT_TYPE))
        return part
    return {**part, "fileData": {**data, "fileUri": turn.media(block(uri, kind or _DEFAULT_TYPE))}}


def _server(kind: str, told: dict[str, Any], turn: Turn) -> None:
    match kind:
        case "executableCode":
            turn.add(account(kind, "code_execution", input=told.get("code")))
        case "codeExecutionResult":
            turn.add(account(kind, "code_execution", result=told.get("output") or told.get("outcome")))
        case "toolCall":
            turn.add(account(kind, _tool(told), input=told.get("args")))
        case _:
            turn.add(account(kind, _tool(told), result=told.get("response")))


def _tool(told: dict[str, Any]) -> str:
    return text_of(told.get("toolType")).lower() or "tool"


def _unknown(part: dict[str, Any], turn: Turn, losses: list[Loss], where: str) -> Any:
    told = {name: value for name, value in part.items() if name not in ("thought", "thoughtSignature")}
    if told:
        name = next(iter(told))
        turn.add(account(name, name, input=told[name] if len(told) == 1 else told))
        why = "its kind is not known; it is kept as it came for Google"
        losses.append(Loss(kind="converted", where=where, what=name, why=why))
    return part
