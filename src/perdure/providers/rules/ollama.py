"""What Ollama's native chat demands, O01 to O05."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from perdure.providers.rules.rule import Found, Request, Rule, numbered, object_at, words
from perdure.providers.wire.shells import items_of

__all__ = ["RULES"]

_ROLES = ("system", "user", "assistant", "tool")


def _messages(request: Request) -> list[tuple[str, dict[str, Any]]]:
    return list(numbered(request.body.get("messages"), "messages"))


def o01(request: Request) -> Iterator[Found]:
    """Roles of other formats."""
    for where, message in _messages(request):
        if message.get("role") not in _ROLES:
            yield f"{where}.role", f"{message.get('role')!r} is none of {', '.join(_ROLES)}"


def o02(request: Request) -> Iterator[Found]:
    """Content in parts."""
    for where, message in _messages(request):
        if not isinstance(message.get("content", ""), str):
            yield f"{where}.content", "it is no text"


def o03(request: Request) -> Iterator[Found]:
    """Images by their address."""
    for where, message in _messages(request):
        for at, image in enumerate(items_of(message.get("images"))):
            if not _is_base64(image):
                yield f"{where}.images[{at}]", "it is not base64"


def o04(request: Request) -> Iterator[Found]:
    """Arguments as text."""
    for where, message in _messages(request):
        for place, call in numbered(message.get("tool_calls"), f"{where}.tool_calls"):
            if not isinstance(object_at(call, "function").get("arguments"), dict):
                yield f"{place}.function.arguments", "they are no object"


def o05(request: Request) -> Iterator[Found]:
    """Tools without a name."""
    for place, tool in numbered(request.body.get("tools"), "tools"):
        if tool.get("type") != "function" or not words(object_at(tool, "function").get("name")):
            yield place, "it is no function with a name"


def _is_base64(image: object) -> bool:
    try:
        return isinstance(image, str) and bool(base64.b64decode(image, validate=True))
    except (binascii.Error, ValueError):
        return False


RULES = (
    Rule("O01", "error", "a role is system, user, assistant or tool", o01),
    Rule("O02", "error", "the content of a message is text", o02),
    Rule("O03", "error", "images are base64 without an address", o03),
    Rule("O04", "error", "the arguments of a call are an object", o04),
    Rule("O05", "error", "a tool is a function with a name", o05),
)
