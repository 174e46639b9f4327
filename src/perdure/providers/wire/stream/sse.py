"""Reads server-sent events from bytes that are cut anywhere.

Lines end in LF, CR or CRLF; an event ends with an empty line.  A character that is cut in two
is put together again.  What is left when the stream ends without an empty line is given by `rest`.
"""

from __future__ import annotations

import msgspec

__all__ = ["Events", "ServerEvent"]


class ServerEvent(msgspec.Struct, frozen=True):
    """One event: its name, if it has one, and its data."""

    name: str
    data: str


class Events:
    """Parses a streamed answer."""

    __slots__ = ("_data", "_line", "_name", "_skip_lf")

    def __init__(self) -> None:
        self._line = bytearray()
        self._skip_lf = False  # the last byte was CR, and a LF after it belongs to it
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Return the events that these next bytes complete."""
        found: list[ServerEvent] = []
        for line in self._lines(data):
            event = self._take(line)
            if event is not None:
                found.append(event)
        return found

    def rest(self) -> list[ServerEvent]:
        """Return the event that was not ended, if there is one."""
        line = bytes(self._line)
        self._line.clear()
        found = [self._take(line)] if line else []
        return [event for event in (*found, self._take(b"")) if event is not None]

    def _lines(self, data: bytes) -> list[bytes]:
        if not data:
            return []
        if self._skip_lf:
            data = data.removeprefix(b"\n")
        self._skip_lf = data.endswith(b"\r")
        if b"\n" not in data and b"\r" not in data:
            self._line += data  # a long line that comes in many pieces is not copied with each
            return []
        whole = bytes(self._line) + data
        parts = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._line = bytearray(parts.pop())
        return parts

    def _take(self, line: bytes) -> ServerEvent | None:
        if not line:
            event = ServerEvent(self._name, "\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if field == b"data":
            self._data.append(text)
        elif field == b"event":
            self._name = text
        return None
