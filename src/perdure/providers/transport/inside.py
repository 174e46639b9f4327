"""Errors that come inside a stream, after a server has already said that all is well.

Looked for only where a stream ended without its end: in its last events.
"""

from __future__ import annotations

import json
from typing import Any, cast

from perdure.providers.transport.faults import Trouble, words_of
from perdure.providers.wire.sse import Events

__all__ = ["TAIL_BYTES", "Tail", "trouble_in"]

TAIL_BYTES = 64 * 1024

# What vendors call an error, and the status that they would have given it before the first byte.
_STATUSES = (
    ("overloaded", 529),
    ("rate_limit", 429),
    ("too_many_requests", 429),
    ("RESOURCE_EXHAUSTED", 429),
    ("authentication", 401),
    ("permission", 403),
    ("content_filter", 400),
    ("context_length", 400),
    ("invalid", 400),
)


class Tail:
    """The last bytes of a stream."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._held = bytearray()

    def feed(self, data: bytes) -> None:
        """Take some more bytes."""
        self._held += data
        if len(self._held) > 2 * TAIL_BYTES:
            del self._held[:-TAIL_BYTES]

    def is_done(self) -> bool:
        """Whether the server said that the stream is whole, as those that speak Chat do."""
        return self._held.rstrip().endswith(b"[DONE]")

    def trouble(self) -> Trouble | None:
        """The error that the stream ended with; None if it names none."""
        if b"error" not in self._held:
            return None
        events = Events()
        frames = [*events.feed(bytes(self._held)), *events.rest()]
        last_line = self._held.rstrip().rpartition(b"\n")[2].decode("utf-8", "replace")
        told = [frame.data for frame in reversed(frames)] or [last_line]  # Ollama sends lines, not events
        errors = (_error(data) for data in told)
        found = next((error for error in errors if error), None)
        if found is None:
            return None
        said = words_of(found)
        return Trouble(_status(found, said), said)


def trouble_in(body: dict[str, Any]) -> Trouble | None:
    """The error that a whole answer, or an event of a stream, names; None if it names none."""
    found = _error_of(body)
    if found is None:
        return None
    said = words_of(found)
    return Trouble(_status(found, said), said)


def _error(data: str) -> dict[str, Any] | None:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return _error_of(cast("dict[str, Any]", event)) if isinstance(event, dict) else None


def _error_of(body: dict[str, Any]) -> dict[str, Any] | None:
    inner = body.get("response", body.get("interaction"))
    holder = cast("dict[str, Any]", inner) if isinstance(inner, dict) else body
    error = holder.get("error")
    if not error and isinstance(holder.get("errors"), list):
        error = next(iter(cast("list[object]", holder["errors"])), None)
    if isinstance(error, dict):
        return cast("dict[str, Any]", error)
    if isinstance(error, str) and error:
        return {"message": error}
    return body if body.get("type") == "error" else None


def _status(error: dict[str, Any], said: str) -> int:
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return next((status for word, status in _STATUSES if word.lower() in said.lower()), 500)
