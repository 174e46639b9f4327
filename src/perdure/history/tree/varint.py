"""Whole numbers in as few bytes as they need: seven bits a byte, lowest first.

There is one encoding for one number: a longer one, or one beyond 63 bits, is refused.
"""

from __future__ import annotations

from perdure.errors import Corrupt

__all__ = ["NUMBER_MAX", "read_varint", "varint"]

NUMBER_MAX = 2**63 - 1


def varint(number: int) -> bytes:
    """The bytes of `number`, which is not negative."""
    return _SMALL[number] if number < len(_SMALL) else _encode(number)


def read_varint(body: bytes, at: int) -> tuple[int, int]:
    """The number that starts at `at`, and where it ends; raises `Corrupt`, or `IndexError` past the end."""
    first = body[at]
    if first < 0x80:
        return first, at + 1
    second = body[at + 1]
    if 0 < second < 0x80:
        return first & 0x7F | second << 7, at + 2
    return _read_long(body, at)


def _encode(number: int) -> bytes:
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _read_long(body: bytes, at: int) -> tuple[int, int]:
    number, shift = body[at] & 0x7F, 7
    while True:
        at += 1
        group = body[at]
        number |= (group & 0x7F) << shift
        shift += 7
        if group < 0x80:
            break
        if shift > 56:
            raise Corrupt("a number in a node is longer than 63 bits")
    if not group:
        raise Corrupt("a number in a node is longer than it need be")
    return number, at + 1


_SMALL = tuple(_encode(number) for number in range(4_096))
