"""Defines redactions: what takes the place of words that a person had removed, and the record of who did it.

The words go for every moment and every timeline of a thread, because messages name them by digest.  The digest stays,
and a cell of the thread's space says for it when, by whom and why, and which object readers get in its place.
"""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Literal, TypeAlias

import msgspec

from perdure.model.canonical import prepare
from perdure.model.digest import Digest
from perdure.model.message import Message, Text, ToolCall, ToolResult

__all__ = [
    "REDACTED",
    "WHY",
    "CallPart",
    "Redaction",
    "redacted_arguments",
    "redacted_message",
    "redacted_result",
    "without_parts",
]

REDACTED = "redacted/"  # cells of redactions, by the digest of what is gone
WHY = "it was redacted"  # begins the reason of each tombstone of a redaction, and of no other

CallPart: TypeAlias = Literal["arguments", "result"]

# What models are shown.  The same words always, so that they say nothing of what was there.
_MESSAGE = "[A person has redacted this message.]"
_RESULT = "[A person has redacted this result.]"
_ARGUMENTS = json.dumps({"redacted": "A person has redacted these arguments."}, separators=(",", ":"))


class Redaction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an object is gone: a person had a message, a part of a call or an artifact redacted."""

    subject: str  # the id of the message or the call, or the reference of the artifact
    at: int  # µs since 1970, UTC
    why: str
    by: str | None = None
    stand_in: Digest | None = None  # a body: what readers get in its place; None: nothing
    parts: tuple[Digest, ...] = ()  # of an artifact: the pieces that are gone with it

    @property
    def reason(self) -> str:
        """The reason that its tombstones have."""
        return f"{WHY}{f' by {self.by}' if self.by else ''}: {self.why}"


prepare(Redaction)


def redacted_message(message: Message) -> Message:
    """Return what stands in the place of a whole message: its calls and results keep their ids, and say nothing."""
    return Message(
        message.role,
        content=(Text(_MESSAGE),) if message.content or not message.tool_results else (),
        tool_calls=tuple(
            ToolCall(call.id, call.name, redacted_arguments(call.args)) for call in message.tool_calls
        ),
        tool_results=tuple(redacted_result(result) for result in message.tool_results),
    )


def without_parts(message: Message, arguments: Container[str], results: Container[str]) -> Message:
    """Return a message without the arguments and the results of these calls; the rest stays as it is."""
    return msgspec.structs.replace(
        message,
        tool_calls=tuple(
            ToolCall(call.id, call.name, redacted_arguments(call.args)) if call.id in arguments else call
            for call in message.tool_calls
        ),
        tool_results=tuple(
            redacted_result(result) if result.call_id in results else result
            for result in message.tool_results
        ),
    )


def redacted_arguments(args: str) -> str:
    """Return what stands in the place of the arguments of a call; empty ones say nothing and stay."""
    return args if args.strip() in ("", "{}") else _ARGUMENTS


def redacted_result(result: ToolResult) -> ToolResult:
    """Return what stands in the place of a result; an empty one says nothing and stays."""
    return ToolResult(result.call_id, result.status, (Text(_RESULT),)) if result.content else result
