"""The order of roles: what a server demands of it, and the repairs that make it so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from perdure.providers.contract import Loss
from perdure.providers.openai_chat.servers import Server

__all__ = ["ordered"]

_NOTHING = "Continue."


def ordered(messages: list[dict[str, Any]], place: Server, losses: list[Loss]) -> list[dict[str, Any]]:
    """The messages in an order that the server takes."""
    repairs: list[Callable[[list[dict[str, Any]], list[Loss]], list[dict[str, Any]]]] = []
    if place.alternates:
        repairs += [_user_first, _in_turn]
    if place.prefix_last:
        repairs.append(_prefixed)
    for repair in repairs:
        messages = repair(messages, losses)
    if not messages or (place.alternates and messages[-1]["role"] == "system"):
        losses.append(_repaired("there was nothing to answer; a user's turn was put there"))
        messages = [*messages, {"role": "user", "content": _NOTHING}]
    return messages


def _user_first(messages: list[dict[str, Any]], losses: list[Loss]) -> list[dict[str, Any]]:
    first = next((at for at, message in enumerate(messages) if message["role"] != "system"), None)
    if first is None or messages[first]["role"] != "assistant":
        return messages
    losses.append(_repaired("the assistant spoke first; a user's turn was put before it"))
    return [*messages[:first], {"role": "user", "content": _NOTHING}, *messages[first:]]


def _in_turn(messages: list[dict[str, Any]], losses: list[Loss]) -> list[dict[str, Any]]:
    """Join messages of one role that follow each other; those with calls stay alone."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        last = joined[-1] if joined else None
        if last is None or not _joinable(last, message):
            joined.append(message)
            continue
        losses.append(_repaired(f"two {message['role']} messages follow each other; they were joined"))
        joined[-1] = last | {"content": _both(last.get("content"), message.get("content"))}
    return joined


def _joinable(last: dict[str, Any], message: dict[str, Any]) -> bool:
    if last["role"] != message["role"] or message["role"] not in ("user", "assistant", "system"):
        return False
    plain = {"role", "content"}
    return set(last) <= plain and set(message) <= plain


def _both(first: object, second: object) -> object:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_parts(first), *_parts(second)]


def _parts(content: object) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast("list[Any]", content) if isinstance(content, list) else []


def _prefixed(messages: list[dict[str, Any]], losses: list[Loss]) -> list[dict[str, Any]]:
    """The last turn is a user's or a tool's; an assistant's is what the answer begins with."""
    if not messages or messages[-1]["role"] in ("user", "tool"):
        return messages
    last = messages[-1]
    if last["role"] == "assistant" and last.get("content") and not last.get("tool_calls"):
        if not last.get("prefix"):
            losses.append(_repaired("the assistant spoke last; its words are the beginning of the answer"))
        return [*messages[:-1], last | {"prefix": True}]
    losses.append(_repaired("there was nothing to answer; a user's turn was put there"))
    return [*messages, {"role": "user", "content": _NOTHING}]


def _repaired(why: str) -> Loss:
    return Loss(kind="repaired", where="messages", what="order of roles", why=why)
