"""AWS event streams as bytes, for events that were recorded without them."""

from __future__ import annotations

import json
import struct
from binascii import crc32
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["frame", "frames_of"]


def frame(payload: bytes, headers: Mapping[str, str]) -> bytes:
    """One frame."""
    packed = b"".join(_header(name, value) for name, value in headers.items())
    size = 12 + len(packed) + len(payload) + 4
    begin = struct.pack(">II", size, len(packed))
    whole = begin + struct.pack(">I", crc32(begin)) + packed + payload
    return whole + struct.pack(">I", crc32(whole))


def frames_of(events: Iterable[Mapping[str, Any]]) -> bytes:
    """The frames of events `{name: payload}`."""
    return b"".join(
        frame(json.dumps(payload).encode(), {":event-type": name, ":message-type": "event"})
        for event in events
        for name, payload in event.items()
    )


def _header(name: str, value: str) -> bytes:
    body = value.encode()
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(body)) + body
