"""What a Chat request means: two that say the same are equal here, however they say it.

Left out are defaults and marks of a prompt cache, which are derived; words are words, whether they
stand alone or in a part; bytes are of the type that they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from perdure.providers.wire.media import inline

__all__ = ["differences", "meaning"]

MARKS = ("cache_control", "prompt_cache_breakpoint")
NOTHING = (None, "", [], {})


def differences(asked: Mapping[str, Any], rendered: Mapping[str, Any]) -> list[str]:
    """Where two requests do not mean the same."""
    one, other = meaning(asked), meaning(rendered)
    return [
        f"{name}: {json.dumps(one.get(name))[:300]} ≠ {json.dumps(other.get(name))[:300]}"
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    ]


def meaning(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request without what does not matter; messages and tools each under a name of its own."""
    found = {name: value for name, value in body.items() if value not in NOTHING}
    messages, tools = found.pop("messages", []), found.pop("tools", [])
    if "max_completion_tokens" in found:
        found["max_tokens"] = found.pop("max_completion_tokens")
    if "reasoning_effort" in found:
        found["reasoning"] = {"effort": found.pop("reasoning_effort")}
    if found.get("stream") is False:
        del found["stream"]
    if not tools and found.get("tool_choice") == "auto":
        del found["tool_choice"]
    if isinstance(found.get("stop"), str):
        found["stop"] = [found["stop"]]
    listed = [_message(message) for message in messages]
    found |= {f"messages[{at}]": message for at, message in enumerate(each for each in listed if each)}
    return found | {f"tools.{_name(tool)}": _tool(tool) for tool in tools}


def _name(tool: Mapping[str, Any]) -> str:
    return tool["function"]["name"] if "function" in tool else tool["type"]


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in tool.items() if name not in MARKS} | {
        "type": tool.get("type", "function")
    }
    if "function" in plain:
        function = {name: value for name, value in plain["function"].items() if value not in NOTHING}
        plain["function"] = function | {"parameters": function.get("parameters", {})}
    return plain


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in message.items() if value not in NOTHING and name not in MARKS}
    content = found.pop("content", [])
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    said = _joined([part for part in map(_part, parts) if part])
    calls = [
        {name: value for name, value in call.items() if name not in (*MARKS, "index")}
        for call in found.pop("tool_calls", [])
    ]
    if found.get("prefix") is False:
        del found["prefix"]
    if len(found) == 1 and not said and not calls:
        return {} if found["role"] == "assistant" else found
    return found | ({"content": said} if said else {}) | ({"tool_calls": calls} if calls else {})


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        part = {"type": "text", "text": part}
    found = {name: value for name, value in part.items() if value not in NOTHING and name not in MARKS}
    if found == {"type": "text"}:
        return {}
    for name in ("image_url", "video_url", "file_url", "document_url"):
        if isinstance(found.get(name), str):
            found[name] = {"url": found[name]}
        if name in found:
            found[name] = found[name] | {"url": _address(found[name]["url"])}
    if isinstance(sound := found.get("input_audio"), dict):
        found["input_audio"] = sound["data"]
    if "file_data" in found.get("file", {}):
        found["file"] = found["file"] | {"file_data": _address(found["file"]["file_data"])}
    return found


def _address(url: str) -> str:
    held = inline(url)
    return url if held is None else f"{held.media_type} {held.base64}"


def _joined(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring words of one message are one text."""
    joined: list[dict[str, Any]] = []
    for part in parts:
        if joined and set(part) == set(joined[-1]) == {"type", "text"}:
            joined[-1] = {"type": "text", "text": joined[-1]["text"] + part["text"]}
        else:
            joined.append(part)
    return joined
