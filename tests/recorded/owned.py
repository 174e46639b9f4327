"""What only its issuer can read, in requests and answers: signatures, encrypted reasoning and results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from perdure.model.message import Message

__all__ = ["opaque", "opaque_of"]

_NAMES = {
    "signature",
    "encrypted_content",
    "encrypted_index",
    "encrypted_stdout",
    "thoughtSignature",
    "thought_signature",
    "redactedContent",
}


def opaque(body: object) -> set[str]:
    """The tokens of a request or an answer that only their issuer can read."""
    return {token for token in _found(body) if token}


def opaque_of(message: Message) -> set[str]:
    """The same of what is kept beside a message."""
    return opaque(json.loads(message.vendor_metadata)) if message.vendor_metadata else set()


def _found(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        held = cast("Mapping[str, Any]", value)
        for name, each in held.items():
            if name in _NAMES and isinstance(each, str):
                yield each
            elif name == "data" and held.get("type") in ("redacted_thinking", "reasoning.encrypted"):
                yield str(each)
            else:
                yield from _found(each)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from _found(each)
