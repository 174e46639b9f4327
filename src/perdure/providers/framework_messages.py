"""Reads messages of frameworks as Chat messages: those of LangChain.

No framework is imported: its messages come in the three forms in which they are saved.  A failed call has
`"status": "error"` in its result, as LangChain writes it.  What a Chat message has no place for is a loss with its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from perdure.providers.contract import Loss

__all__ = ["chat_messages", "is_of_framework", "vendor_fields"]

Fields: TypeAlias = Mapping[str, Any]
ChatMessage: TypeAlias = dict[str, Any]

_VENDORS = "only the model or the server that made it can use it"

_MEDIA = {
    "image": "image/png",
    "audio": "audio/wav",
    "video": "video/mp4",
    "document": "application/pdf",
    "file": "application/octet-stream",
    "media": "application/octet-stream",
}
# Fields of a block that are read, or say nothing of what was said.
_BLOCK_READ = frozenset(
    {
        *(
            "type",
            "text",
            "id",
            "index",
            "status",
            "cache_control",
            "detail",
            "reasoning",
            "thinking",
            "summary",
        ),
        *("image_url", "input_audio", "base64", "data", "url", "mime_type", "source", "source_type"),
        *("file", "filename", "name", "title"),
    }
)


def is_of_framework(message: object) -> bool:
    """True for a message in the words of one of the frameworks."""
    return _is_langchain(message)


def chat_messages(messages: Sequence[object], losses: list[Loss]) -> list[object] | None:
    """Return messages of a framework as Chat messages; None if none of them is one.

    Other messages stay, for the adapter to read or to refuse.
    """
    if not any(map(is_of_framework, messages)):
        return None
    return [_of_langchain(message, f"messages[{at}]", losses) for at, message in enumerate(messages)]


def vendor_fields(block: Fields) -> Iterator[tuple[str, str]]:
    """Yield the fields of a block of LangChain that only a vendor can use, each with what it is."""
    extras = _mapping(block.get("extras"))
    for fields, prefix in ((block, ""), (extras, "extras.")):
        for name, held in fields.items():
            if held and name not in _BLOCK_READ and name != "extras":
                yield f"{prefix}{name}", "citations" if name in ("annotations", "citations") else name


def _lose(losses: list[Loss], where: str, what: str, why: str) -> None:
    losses.append(Loss(kind="dropped", where=where, what=what[:80], why=why))


def _media_part(media_type: str, *, data: object, url: object, name: object = None) -> ChatMessage | None:
    """Return the part of a picture or a file; None if there are neither bytes nor an address."""
    address = f"data:{media_type};base64,{data}" if isinstance(data, str) and data else url
    if not isinstance(address, str) or not (address.startswith("data:") or "://" in address):
        return None
    if media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": address}}
    named = {"filename": name} if isinstance(name, str) and name else {}
    return {"type": "file", "file": {"file_data": address, "mime_type": media_type, **named}}


def _call(id: object, name: object, arguments: object) -> ChatMessage:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def _result(call: object, content: object, *, failed: bool) -> ChatMessage:
    result = {"role": "tool", "tool_call_id": call, "content": content}
    return {**result, "status": "error"} if failed else result


def _mapping(value: object) -> Fields:
    return cast("Fields", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


# ---- LangChain

_ROLES = {
    "human": "user",
    "user": "user",
    "ai": "assistant",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
_CLASSES = {f"{role.title()}Message": role for role in ("human", "system", "tool", "function")} | {
    "AIMessage": "ai"
}
# Blocks of calls, which `tool_calls` repeats.
_REPEATED = frozenset({"tool_use", "tool_call", "function_call", "tool_call_chunk", "invalid_tool_call"})
# Fields of a message that are read, or say nothing.
_READ = frozenset(
    {
        *(
            "role",
            "type",
            "content",
            "tool_calls",
            "invalid_tool_calls",
            "tool_call_chunks",
            "chunk_position",
        ),
        *("tool_call_id", "id", "name", "example", "status", "additional_kwargs"),
    }
)
_KWARGS_READ = frozenset({"reasoning_content", "tool_calls", "function_call"})


def _is_langchain(message: object) -> bool:
    """True for a message in LangChain's words: a role or type such as `human`, data in `data`, or a constructor."""
    fields = _mapping(message)
    if fields.get("type") == "constructor" and "lc" in fields:
        return True
    if "role" in fields:
        return fields["role"] in ("human", "ai")
    return _role(fields.get("type")) is not None and ("content" in fields or "data" in fields)


def _role(kind: object) -> str | None:
    name = kind.removesuffix("Chunk") if isinstance(kind, str) else ""
    return _ROLES.get(_CLASSES.get(name, name))


def _of_langchain(message: object, where: str, losses: list[Loss]) -> object:
    fields = _mapping(message)
    kind = fields.get("type")
    if kind == "constructor" and "lc" in fields:
        kind, fields = (_list(fields.get("id")) or [""])[-1], _mapping(fields.get("kwargs"))
    elif isinstance(fields.get("data"), dict):
        fields = _mapping(fields["data"])
    role = _role(fields.get("role") or kind)
    return message if role is None else _chat_message(role, fields, where, losses)


def _chat_message(role: str, fields: Fields, where: str, losses: list[Loss]) -> ChatMessage:
    more = _mapping(fields.get("additional_kwargs"))
    reasoning = [each for each in (more.get("reasoning_content"),) if isinstance(each, str) and each]
    content = fields.get("content")
    made: ChatMessage = {"role": role, "content": content}
    if isinstance(content, list):
        made["content"] = _chat_parts(cast("list[Any]", content), f"{where}.content", reasoning, losses)
    if role == "assistant":
        _spoken(made, fields, more, reasoning)
    if role == "tool":
        failed = fields.get("status") == "error"
        made = _result(fields.get("tool_call_id"), made["content"], failed=failed)
    if isinstance(fields.get("id"), str):
        made["id"] = fields["id"]
    if fields.get("name") and (role != "tool" or not fields.get("tool_call_id")):
        made["name"] = fields["name"]
    for name in (name for name, held in fields.items() if held and name not in _READ):
        _lose(losses, f"{where}.{name}", name, "it is LangChain's own, and no part of a message")
    for name in (name for name, held in more.items() if held and name not in _KWARGS_READ):
        _lose(losses, f"{where}.additional_kwargs.{name}", name, _VENDORS)
    return made


def _spoken(made: ChatMessage, fields: Fields, more: Fields, reasoning: list[str]) -> None:
    """Add what only an assistant's message has: its thoughts and its calls."""
    if reasoning:
        made["reasoning_content"] = "\n\n".join(reasoning)
    asked = map(_mapping, [*_list(fields.get("tool_calls")), *_list(fields.get("invalid_tool_calls"))])
    calls = [_call(call.get("id"), call.get("name"), call.get("args")) for call in asked]
    if not calls and more.get("function_call"):
        made["function_call"] = more["function_call"]
    elif calls := calls or _list(more.get("tool_calls")):
        made["tool_calls"] = calls
    if calls:
        made["content"] = made["content"] or None


def _chat_parts(content: list[Any], where: str, reasoning: list[str], losses: list[Loss]) -> list[Any]:
    found: list[Any] = []
    for at, block in enumerate(content):
        part, place = _mapping(block), f"{where}[{at}]"
        kind = part.get("type")
        if isinstance(block, str):
            found.append({"type": "text", "text": block})
            continue
        if kind in _REPEATED:
            continue
        if kind in ("reasoning", "thinking"):
            reasoning += [thought] if (thought := _thought(part)) else []
        elif (made := _part(part)) is not None:
            found.append(made)
        else:
            _lose(losses, place, str(kind), "this kind of content has no form in a Chat message")
            continue
        for name, what in vendor_fields(part):
            _lose(losses, f"{place}.{name}", what, _VENDORS)
    return found


def _thought(part: Fields) -> str:
    held = part.get("reasoning") or part.get("thinking")
    if isinstance(held, str):
        return held
    summary = [_mapping(each).get("text") for each in _list(part.get("summary"))]
    return "\n\n".join(each for each in summary if isinstance(each, str))


def _part(part: Fields) -> ChatMessage | None:
    """Return a block of text, a picture or a file as a part; None if it has no form there."""
    kind, source = part.get("type"), _mapping(part.get("source"))
    if kind in ("text", "text-plain") and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind in ("image_url", "input_audio") or (kind == "file" and "file" in part):
        return {name: held for name, held in part.items() if name in ("type", kind)}
    if source.get("type") == "text" and isinstance(source.get("data"), str):
        return {"type": "text", "text": source["data"]}
    if kind not in _MEDIA:
        return None
    media_type = part.get("mime_type") or source.get("media_type") or _MEDIA[str(kind)]
    data = part.get("base64") or part.get("data") or source.get("data")
    name = part.get("filename") or part.get("name") or part.get("title")
    name = name or _mapping(part.get("extras")).get("filename")
    return _media_part(str(media_type), data=data, url=part.get("url") or source.get("url"), name=name)
