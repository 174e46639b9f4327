"""AWS event streams from bytes that are cut anywhere."""

from __future__ import annotations

import struct
from binascii import crc32

import pytest

from perdure.errors import Invalid
from perdure.providers.bedrock.stream import Frames
from tests.coded import raises
from tests.recorded.frames import frame

HELLO = frame(b'{"a":1}', {":event-type": "messageStart", ":message-type": "event"})
BYE = frame(b"{}", {":event-type": "messageStop"})


def packed(headers: bytes, payload: bytes = b"{}") -> bytes:
    """A frame with headers as they are."""
    begin = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    whole = begin + struct.pack(">I", crc32(begin)) + headers + payload
    return whole + struct.pack(">I", crc32(whole))


def test_frames_are_read_byte_by_byte() -> None:
    """However the bytes are cut, the same frames come out."""
    frames = Frames()

    found = [each for at in range(len(HELLO + BYE)) for each in frames.feed((HELLO + BYE)[at : at + 1])]

    assert found == Frames().feed(HELLO + BYE)
    assert [each.payload for each in found] == [b'{"a":1}', b"{}"]
    assert found[0].headers == {":event-type": "messageStart", ":message-type": "event"}


def test_a_frame_that_is_not_whole_waits() -> None:
    """Nothing is given before its checksum could be checked."""
    frames = Frames()

    assert frames.feed(HELLO[:-1]) == []
    assert frames.pending == len(HELLO) - 1


@pytest.mark.parametrize("at", [0, 5, 9, 20, len(HELLO) - 8, len(HELLO) - 1])
def test_a_damaged_frame_is_refused(at: int) -> None:
    """One wrong byte anywhere is found by the checksums."""
    damaged = bytearray(HELLO)
    damaged[at] ^= 0x40

    with raises(Invalid, "stream_malformed"):
        Frames().feed(bytes(damaged) + HELLO)


def test_all_types_of_headers_are_read() -> None:
    """Numbers, bytes, times and ids are headers too."""
    headers = (
        b"\x01t\x00"
        b"\x01f\x01"
        b"\x01b\x02\xff"
        b"\x01s\x03\x00\x02"
        b"\x01i\x04\x00\x00\x00\x03"
        b"\x01l\x05\x00\x00\x00\x00\x00\x00\x00\x04"
        b"\x01y\x06\x00\x02ab"
        b"\x01d\x08\x00\x00\x00\x00\x00\x00\x00\x05" + b"\x01u\x09" + bytes(16)
    )

    found = Frames().feed(packed(headers))

    assert found[0].headers == {
        "t": True,
        "f": False,
        "b": -1,
        "s": 2,
        "i": 3,
        "l": 4,
        "y": b"ab",
        "d": 5,
        "u": "00000000-0000-0000-0000-000000000000",
    }


@pytest.mark.parametrize(
    "headers", [b"\x01t\x63", b"\x05t", b"\x01t\x07\x00\x09ab", b"\x01u\x09ab", b"\x01\xff\x00"]
)
def test_headers_that_cannot_be_read_are_refused(headers: bytes) -> None:
    """Also with right checksums."""
    with raises(Invalid, "stream_malformed"):
        Frames().feed(packed(headers))


def test_a_length_out_of_bounds_is_refused() -> None:
    """A frame is never waited for that could not be."""
    begin = struct.pack(">II", 2**31, 0)

    with raises(Invalid, "stream_malformed", size=2**31):
        Frames().feed(begin + struct.pack(">I", crc32(begin)))
