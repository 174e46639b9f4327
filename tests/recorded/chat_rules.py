"""What the servers of the Chat family demand of a request, as far as a request shows it (rules C and M)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.providers.openai_chat.render import is_closed
from perdure.providers.wire.media import inline

__all__ = ["broken_rules"]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def broken_rules(body: Mapping[str, Any], *, mistral: bool = False) -> list[str]:
    """The codes of the rules that a request breaks."""
    messages: list[dict[str, Any]] = body["messages"]
    found = [*_pairs(messages), *_contents(messages), *_tools(body, messages), *_json(body, messages)]
    if mistral:
        ids = [call["id"] for message in messages for call in message.get("tool_calls", [])]
        found += ["M01" for id in ids if not re.fullmatch(r"[a-zA-Z0-9]{9}", id)]
        last = messages[-1] if messages else {}
        found += ["M03"] if last.get("role") not in ("user", "tool") and not last.get("prefix") else []
    return found


def _pairs(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    open_ids: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_ids:
                yield "C01"
            else:
                open_ids.remove(message["tool_call_id"])
            continue
        if open_ids:
            yield "C02"
        open_ids = [call["id"] for call in message.get("tool_calls", [])]
        for id in open_ids:
            if not 0 < len(id) <= 40:
                yield "C03"
            if id in seen:
                yield "C13"
            seen.add(id)
    if open_ids:
        yield "C02"


def _contents(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not messages:
        yield "C08"
    for message in messages:
        content = message.get("content")
        said = content or any(message.get(name) for name in ("tool_calls", "refusal", "audio"))
        if message["role"] == "assistant" and not said:
            yield "C04"
        if message.get("tool_calls") == []:
            yield "C05"
        if content == []:
            yield "C08"
        if message["role"] == "user" and not content:
            yield "empty user turn"
        for part in content if isinstance(content, list) else []:
            yield from _part(part, message["role"])


def _part(part: Mapping[str, Any], role: str) -> Iterator[str]:
    if part.get("type") == "text" and not part["text"]:
        yield "empty text"
    if part.get("type") != "image_url":
        return
    url = part["image_url"]["url"]
    if role != "user":
        yield "C10"
    held = inline(url)
    if (not url.startswith(("https://", "http://")) and (held is None or held.declared not in IMAGES)) or (
        held is not None and held.declared != held.media_type
    ):
        yield "C09"


def _tools(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    tools = body.get("tools")
    if tools == []:
        yield "C05"
    declared = [tool["function"]["name"] for tool in tools or [] if "function" in tool]
    called = [
        call["function"]["name"]
        for message in messages
        for call in message.get("tool_calls", [])
        if "function" in call
    ]
    yield from ("C07" for name in [*declared, *called] if not NAME.fullmatch(name))
    if len(set(declared)) != len(declared):
        yield "tool declared twice"
    if not tools and ("tool_choice" in body or "parallel_tool_calls" in body):
        yield "C06"
    choice = body.get("tool_choice")
    if (
        isinstance(choice, dict)
        and choice.get("type") == "function"
        and choice["function"]["name"] not in declared
    ):
        yield "C06"
    strict = [tool["function"] for tool in tools or [] if tool.get("function", {}).get("strict")]
    yield from ("C12" for function in strict if not is_closed(function["parameters"]))


def _json(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if body.get("response_format") == {"type": "json_object"} and "json" not in str(messages).lower():
        yield "C11"
