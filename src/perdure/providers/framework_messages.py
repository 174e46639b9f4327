"""Reads messages of frameworks as Chat messages: those of LangChain, of pydantic-ai, and of the AI SDK's `useChat`.

No framework is imported.  LangChain's messages come in the three forms in which they are saved, pydantic-ai's as its
`ModelMessagesTypeAdapter` writes them, UI messages as the client of `useChat` has them.  A message that holds what
several parties say becomes several.  A failed call has `"status": "error"` in its result, as LangChain writes it.

What a Chat message has no place for is a loss with its place; ids, times and usage are facts about an answer, and none.
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
_NO_PLACE = "a Chat message has no place for it"

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
    is_ui = _is_ui_message(message) and bool(_mapping(message)["parts"])
    return is_ui or _is_langchain(message) or _is_pydantic(message)


def chat_messages(messages: Sequence[object], losses: list[Loss]) -> list[object] | None:
    """Return messages of a framework as Chat messages; None if none of them is one.

    Other messages stay, for the adapter to read or to refuse.
    """
    if not any(map(is_of_framework, messages)):
        return None
    found: list[object] = []
    for at, message in enumerate(messages):
        where, fields = f"messages[{at}]", _mapping(message)
        if _is_pydantic(message):
            found += _of_pydantic(fields, where, losses, is_first=not found)
        elif _is_ui_message(message):
            found += _of_ui_message(fields, where, losses)
        else:
            found.append(_of_langchain(message, where, losses))
    return found


def vendor_fields(block: Fields) -> Iterator[tuple[str, str]]:
    """Yield the fields of a block of LangChain that only a vendor can use, each with what it is."""
    extras = _mapping(block.get("extras"))
    for fields, prefix in ((block, ""), (extras, "extras.")):
        for name, held in fields.items():
            if held and name not in _BLOCK_READ and name != "extras":
                yield f"{prefix}{name}", "citations" if name in ("annotations", "citations") else name


def _lose(losses: list[Loss], where: str, what: str, why: str = _NO_PLACE) -> None:
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


def _text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


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


# ---- pydantic-ai

_FAILED = ("failed", "retried", "denied", "interrupted")
_URLS = {
    "image-url": "image/*",
    "audio-url": "audio/*",
    "video-url": "video/*",
    "document-url": _MEDIA["file"],
}


def _is_pydantic(message: object) -> bool:
    fields = _mapping(message)
    is_kind = fields.get("kind") in ("request", "response") and isinstance(fields.get("parts"), list)
    return is_kind and all("part_kind" in _mapping(part) for part in _list(fields.get("parts")))


def _of_pydantic(fields: Fields, where: str, losses: list[Loss], *, is_first: bool) -> list[ChatMessage]:
    found: list[ChatMessage] = []
    instructions, parts = fields.get("instructions"), list(map(_mapping, _list(fields.get("parts"))))
    if instructions and is_first:
        found.append({"role": "system", "content": instructions})
    elif instructions:
        _lose(losses, f"{where}.instructions", "instructions", "those of the first request are kept")
    if fields.get("metadata"):
        _lose(losses, f"{where}.metadata", "metadata")
    places = [f"{where}.parts[{at}]" for at in range(len(parts))]
    if fields["kind"] == "response":
        return [*found, *_response(parts, places, losses)]
    for part, place in zip(parts, places, strict=True):
        message = _request_part(part, place, losses)
        if message is None:
            _lose(losses, place, str(part.get("part_kind")))
        else:
            found.append(message)
    return found


def _request_part(part: Fields, where: str, losses: list[Loss]) -> ChatMessage | None:
    content, call = part.get("content"), part.get("tool_call_id")
    match part.get("part_kind"):
        case "system-prompt":
            return {"role": "system", "content": content}
        case "user-prompt":
            return {"role": "user", "content": _user_content(content, where, losses)}
        case "tool-return":
            return _result(call, _returned(content), failed=part.get("outcome") in _FAILED)
        case "retry-prompt" if part.get("tool_name") is not None:
            return _result(call, _text(content), failed=True)
        case "retry-prompt" | "retry-feedback" | "compaction" if content:
            return {"role": "user", "content": _text(content)}
        case "speech":
            return {"role": "user", "content": _speech(part)}
        case _:
            return None


def _user_content(content: object, where: str, losses: list[Loss]) -> object:
    if not isinstance(content, list):
        return content
    found: list[Any] = []
    for at, item in enumerate(cast("list[object]", content)):
        made = _user_item(item)
        if made is not None:
            found.append(made)
        elif _mapping(item).get("kind") != "cache-point":
            _lose(losses, f"{where}.content[{at}]", str(_mapping(item).get("kind")))
    return found


def _user_item(item: object) -> ChatMessage | None:
    fields = _mapping(item)
    kind = fields.get("kind")
    if isinstance(item, str) or isinstance(fields.get("content"), str):
        return {"type": "text", "text": item if isinstance(item, str) else fields["content"]}
    if kind == "binary":
        return _media_part(str(fields.get("media_type")), data=fields.get("data"), url=None)
    if kind in _URLS:
        media_type = str(fields.get("media_type") or _URLS[str(kind)])
        return _media_part(media_type, data=None, url=fields.get("url"))
    return None


def _returned(content: object) -> object:
    """Return the content of a result: parts where it has files, else text."""
    items = cast("list[object]", content) if isinstance(content, list) else [content]
    parts = [_user_item(item) for item in items]
    if any(part is not None and part["type"] != "text" for part in parts):
        said = zip(parts, items, strict=True)
        return [part or {"type": "text", "text": _text(item)} for part, item in said]
    return _text(cast("object", content))


def _speech(part: Fields) -> list[ChatMessage]:
    audio = _mapping(part.get("audio"))
    words = {"type": "text", "text": part.get("transcript") or "[speech]"}
    sound = _media_part(str(audio.get("media_type")), data=audio.get("data"), url=None)
    return [words] if sound is None else [words, sound]


def _response(parts: Sequence[Fields], places: Sequence[str], losses: list[Loss]) -> list[ChatMessage]:
    content: list[Any] = []
    thoughts: list[str] = []
    calls: list[ChatMessage] = []
    for part, place in zip(parts, places, strict=True):
        text = part.get("content")
        match part.get("part_kind"):
            case "text" | "compaction":
                content += [{"type": "text", "text": text}] if text else []
            case "thinking":
                thoughts += [text] if text else []
            case "tool-call":
                calls.append(_call(part.get("tool_call_id"), part.get("tool_name"), part.get("args")))
            case "file" if (file := _user_item(text)) is not None:
                content.append(file)
            case "speech":
                content += _speech(part)
            case kind:
                _lose(losses, place, str(kind))
        for name in ("signature", "citations", "provider_details"):
            if part.get(name):
                _lose(losses, f"{place}.{name}", name, _VENDORS)
    return _assistant(content, thoughts, calls)


def _assistant(content: list[Any], thoughts: list[str], calls: list[ChatMessage]) -> list[ChatMessage]:
    """Return the message of an assistant; none if it says nothing."""
    made: ChatMessage = {"role": "assistant", "content": content or None}
    if thoughts:
        made["reasoning_content"] = "\n\n".join(thoughts)
    if calls:
        made["tool_calls"] = calls
    return [made] if content or thoughts or calls else []


# ---- the AI SDK's UI messages

_SETTLED = ("output-available", "output-error", "output-denied", "result")


def _is_ui_message(message: object) -> bool:
    fields = _mapping(message)
    is_list = isinstance(fields.get("parts"), list) and fields.get("role") in ("system", "user", "assistant")
    return is_list and all(isinstance(_mapping(part).get("type"), str) for part in _list(fields["parts"]))


def _of_ui_message(fields: Fields, where: str, losses: list[Loss]) -> list[ChatMessage]:
    parts = list(map(_mapping, _list(fields.get("parts"))))
    if fields["role"] == "assistant":
        found = _UiSteps(where, losses).read(parts)
    else:
        content = [_ui_part(part, f"{where}.parts[{at}]", losses) for at, part in enumerate(parts)]
        found = [{"role": fields["role"], "content": [part for part in content if part is not None]}]
    if fields.get("metadata"):
        _lose(losses, f"{where}.metadata", "metadata")
    id = fields.get("id")
    if isinstance(id, str) and id:
        for at, message in enumerate(found):
            message["id"] = f"{id}#{at}" if at else id
    return found


def _ui_part(part: Fields, where: str, losses: list[Loss]) -> ChatMessage | None:
    """Return a text or a file; None, with a loss, for any other part."""
    made: ChatMessage | None = None
    if part["type"] == "text":
        made = {"type": "text", "text": part.get("text")}
    elif part["type"] == "file":
        media_type = str(part.get("mediaType") or part.get("mimeType") or _MEDIA["file"])
        data, url = part.get("data"), part.get("url")
        made = _media_part(media_type, data=data, url=url, name=part.get("filename"))
    if made is None:
        _lose(losses, where, part["type"])
    elif part.get("providerMetadata"):
        _lose(losses, f"{where}.providerMetadata", "providerMetadata", _VENDORS)
    return made


class _UiSteps:
    """Reads an assistant's UI message, which holds all steps of a run: words, calls, and results behind them."""

    def __init__(self, where: str, losses: list[Loss]) -> None:
        self._where, self._losses = where, losses
        self._found: list[ChatMessage] = []
        self._begin()

    def read(self, parts: Sequence[Fields]) -> list[ChatMessage]:
        for at, part in enumerate(parts):
            place, kind = f"{self._where}.parts[{at}]", part["type"]
            is_call = kind in ("dynamic-tool", "tool-invocation") or kind.startswith("tool-")
            if kind == "step-start" or (self._calls and not is_call):
                self._end()
            if is_call:
                self._take(_mapping(part.get("toolInvocation")) or part, kind, place)
            elif kind == "reasoning":
                self._thoughts += [text] if (text := part.get("text") or part.get("reasoning")) else []
                if part.get("providerMetadata"):
                    _lose(self._losses, f"{place}.providerMetadata", "providerMetadata", _VENDORS)
            elif kind != "step-start":
                made = _ui_part(part, place, self._losses)
                self._content += [] if made is None else [made]
        self._end()
        return self._found

    def _begin(self) -> None:
        self._content: list[Any] = []
        self._thoughts: list[str] = []
        self._calls: list[ChatMessage] = []
        self._results: list[ChatMessage] = []

    def _end(self) -> None:
        self._found += [*_assistant(self._content, self._thoughts, self._calls), *self._results]
        self._begin()

    def _take(self, part: Fields, kind: str, where: str) -> None:
        """Add a call, and its result if it has one; one whose arguments are still coming is left out."""
        state, id = part.get("state"), part.get("toolCallId")
        if state in ("input-streaming", "partial-call"):
            _lose(self._losses, where, "tool call", "its arguments were not complete")
            return
        name = part.get("toolName") or kind.removeprefix("tool-")
        arguments = part.get("input", part.get("args", part.get("rawInput")))
        self._calls.append(_call(id, name, arguments))
        if state not in _SETTLED:
            return
        if state in ("output-available", "result"):
            said = _text(part.get("output", part.get("result")))
        else:
            why = _mapping(part.get("approval")).get("reason")
            said = part.get("errorText") or f"The call was denied{f': {why}' if why else ''}."
        self._results.append(_result(id, said, failed=state in ("output-error", "output-denied")))
