"""What Mistral demands beyond the shared chat format, M01 to M04."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from perdure.providers.rules.rule import Found, Request, Rule, numbered, words

__all__ = ["RULES"]

_ID = re.compile(r"[a-zA-Z0-9]{9}")


def _messages(request: Request) -> list[tuple[str, dict[str, Any]]]:
    return list(numbered(request.body.get("messages"), "messages"))


def m01(request: Request) -> Iterator[Found]:
    """Call ids of other vendors."""
    for where, message in _messages(request):
        for place, call in numbered(message.get("tool_calls"), f"{where}.tool_calls"):
            if not _ID.fullmatch(words(call.get("id"))):
                yield f"{place}.id", f"{call.get('id')!r} is not 9 characters of [a-zA-Z0-9]"


def m02(request: Request) -> Iterator[Found]:
    """Users who cut in."""
    before = None
    for where, message in _messages(request):
        if message.get("role") == "user" and before == "tool":
            yield where, "a user message follows a tool message"
        before = message.get("role")


def m03(request: Request) -> Iterator[Found]:
    """A last message of the assistant."""
    for where, message in _messages(request)[-1:]:
        role = message.get("role")
        if role not in ("user", "tool") and not (role == "assistant" and message.get("prefix") is True):
            yield where, f"the last message is of role {role}"


def m04(request: Request) -> Iterator[Found]:
    """Other numbers of results than of calls."""
    asked, answered, place = 0, 0, ""
    for where, message in (*_messages(request), ("messages", {})):
        if message.get("role") == "tool":
            answered += 1
            continue
        if asked != answered:
            yield place or where, f"there are {asked} tool calls and {answered} tool messages"
        listed = message.get("tool_calls")
        asked, answered, place = len(list(numbered(listed, ""))), 0, where


RULES = (
    Rule("M01", "error", "tool call ids are 9 characters of [a-zA-Z0-9]", m01),
    Rule("M02", "warn", "no user message comes right after a tool message", m02),
    Rule("M03", "error", "the last message is user or tool, or an assistant with prefix true", m03),
    Rule("M04", "error", "there are as many tool messages as tool calls", m04),
)
