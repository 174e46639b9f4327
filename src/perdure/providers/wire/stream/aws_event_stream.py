"""AWS event streams, read from bytes that are cut anywhere.

A frame is: its length and that of its headers, a CRC-32 of these eight bytes, the headers, the
payload, and a CRC-32 of all before it.  Both sums are checked; bytes that fail are no frame.
"""

from __future__ import annotations

import struct
from binascii import crc32
from collections.abc import Mapping
from typing import TypeAlias
from uuid import UUID

import msgspec

from perdure.errors import Invalid

__all__ = ["FRAME_BYTES_MAX", "AwsFrame", "Frames"]

FRAME_BYTES_MAX = 24 * 1024 * 1024  # headers of 128 KiB and a payload of 16 MiB is what AWS allows

_PRELUDE = struct.Struct(">III")
_FIXED = {2: ">b", 3: ">h", 4: ">i", 5: ">q", 8: ">q"}  # header types of a number, and how it is packed
_SUM_BYTES = 4
_KNOWN_MAX = 64

Headers: TypeAlias = Mapping[str, str | int | bool | bytes]


class AwsFrame(msgspec.Struct, frozen=True):
    """One message of the stream."""

    headers: Headers
    payload: bytes


class Frames:
    """A stream that is being read."""

    __slots__ = ("_held", "_known")

    def __init__(self) -> None:
        """Begin with nothing."""
        self._held = bytearray()
        self._known: dict[bytes, Headers] = {}  # headers that were read: nearly all frames have the same

    @property
    def pending(self) -> int:
        """How many bytes wait for the rest of their frame."""
        return len(self._held)

    def feed(self, data: bytes) -> list[AwsFrame]:
        """Take some more bytes; the frames that are whole now.  Raises `Invalid` for what is no frame."""
        self._held += data
        found: list[AwsFrame] = []
        at = 0
        while (size := self._size(at)) is not None and len(self._held) - at >= size:
            found.append(self._frame(bytes(self._held[at : at + size])))
            at += size
        del self._held[:at]
        return found

    def _size(self, at: int) -> int | None:
        """How long the frame at `at` is; None while its first twelve bytes are not all here."""
        if len(self._held) - at < _PRELUDE.size:
            return None
        size, headers, told = _PRELUDE.unpack_from(self._held, at)
        if crc32(self._held[at : at + 8]) != told:
            raise Invalid(
                "these bytes are no AWS event stream: the checksum of a frame's beginning is wrong."
            )
        if not _PRELUDE.size + headers + _SUM_BYTES <= size <= FRAME_BYTES_MAX:
            raise Invalid(f"these bytes are no AWS event stream: a frame says that it has {size} bytes.")
        return size

    def _frame(self, whole: bytes) -> AwsFrame:
        _, headers, _ = _PRELUDE.unpack_from(whole)
        (told,) = struct.unpack_from(">I", whole, len(whole) - _SUM_BYTES)
        if crc32(whole[:-_SUM_BYTES]) != told:
            raise Invalid("a frame of the AWS event stream is damaged: its checksum is wrong.")
        begin = _PRELUDE.size + headers
        return AwsFrame(self._headers(whole[_PRELUDE.size : begin]), whole[begin:-_SUM_BYTES])

    def _headers(self, body: bytes) -> Headers:
        known = self._known.get(body)
        if known is not None:
            return known
        try:
            found = _headers(body)
        except (struct.error, IndexError, ValueError) as error:
            raise Invalid(
                f"a frame of the AWS event stream has headers that cannot be read: {error}."
            ) from error
        if len(self._known) < _KNOWN_MAX:
            self._known[body] = found
        return found


def _headers(body: bytes) -> Headers:
    found: dict[str, str | int | bool | bytes] = {}
    at = 0
    while at < len(body):
        end = at + 1 + body[at]
        name = body[at + 1 : end].decode()
        found[name], at = _value(body, end + 1, body[end])
    return found


def _value(body: bytes, at: int, kind: int) -> tuple[str | int | bool | bytes, int]:
    if kind in (0, 1):
        return kind == 0, at
    if kind in _FIXED:
        packed = struct.Struct(_FIXED[kind])
        return packed.unpack_from(body, at)[0], at + packed.size
    if kind == 9:
        return str(UUID(bytes=body[at : at + 16])), at + 16
    if kind not in (6, 7):
        raise IndexError(f"there is no header type {kind}")
    (size,) = struct.unpack_from(">H", body, at)
    raw = body[at + 2 : at + 2 + size]
    if len(raw) != size:
        raise IndexError("a header is cut off")
    return (raw.decode() if kind == 7 else raw), at + 2 + size
