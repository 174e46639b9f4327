"""Returns the errors for bodies, streams and parts of them that are not of their wire format.

malformed_body          a part of a request or of an answer breaks the format; `where` names it
not_a_request           the body as a whole is no request of the format
not_an_answer           the body as a whole is no answer of the format
error_answer            the server answered with an error
stream_malformed        an event or a frame of a stream cannot be read
stream_without_answer   a stream ended before anything of the answer was complete
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from perdure.errors import Invalid

__all__ = ["malformed", "unreadable"]

_Code: TypeAlias = Literal[
    "not_a_request", "not_an_answer", "error_answer", "stream_malformed", "stream_without_answer"
]


def malformed(where: str, fault: str) -> Invalid:
    """Return the error for the part at `where`, with its fault as the rest of a sentence: `is not a list`."""
    return Invalid(f"{where} {fault}; nothing was read.", code="malformed_body", where=where, fault=fault)


def unreadable(code: _Code, message: str, **facts: Any) -> Invalid:
    """Return the error for a whole body or stream; `message` says why it cannot be read."""
    return Invalid(f"{message}; nothing was read.", code=code, **facts)
