"""Entries: what the map holds at one path, and the bytes that say so inside a node.

In a node an entry is its key followed by its *tail*:

    varint   size * 2, plus 1 for bytes
    if bytes: varint length and UTF-8 of the media type
    32 bytes digest of the value

A JSON entry always has the media type `application/json`, so it is not written.  One entry
has one tail, so two entries at a path are equal exactly when their tails are.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from perdure.errors import Corrupt, Invalid
from perdure.history.tree.rule import KEY_BYTES_MAX
from perdure.history.tree.varint import NUMBER_MAX, read_varint, varint
from perdure.model.digest import Digest
from perdure.model.patch import JSON_TYPE

__all__ = ["Entry", "key_of", "make_entry", "make_tail", "path_of", "prefix_of", "tail_end", "value_of"]

MEDIA_TYPE_BYTES_MAX = 127
DIGEST_BYTES = 32


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One path of a map, and the value it holds by reference."""

    path: str  # the full path
    form: Literal["json", "bytes"]
    media_type: str
    size: int  # of the value, in bytes
    value: Digest


def key_of(path: str) -> bytes:
    """The key of `path`: its UTF-8 bytes; raises `Invalid` for what cannot be a key."""
    key = path.encode() if path.isascii() else prefix_of(path)
    if len(key) > KEY_BYTES_MAX:
        raise Invalid(f"path {path[:60]!r}… is longer than {KEY_BYTES_MAX} bytes; nothing was written.")
    return key


def prefix_of(text: str) -> bytes:
    """The bytes that keys starting with `text` start with; raises `Invalid` if it is not text."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"path {text[:60]!r} holds a lone surrogate; nothing was written.") from error


def path_of(key: bytes) -> str:
    """The path whose key this is; raises `Corrupt` if it is none."""
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise Corrupt(
            f"the map holds the key {key[:60]!r}, which is not text. Run `perdure verify`."
        ) from error


def make_tail(entry: Entry) -> bytes:
    """The bytes that follow the key of `entry` in a node; raises `Invalid` if it breaks a rule."""
    try:
        value = bytes.fromhex(entry.value)
    except ValueError:
        value = b""
    if value.hex() != entry.value or len(value) != DIGEST_BYTES:
        raise _refused(entry, f"{entry.value!r} is not the digest of a value")
    if not 0 <= entry.size <= NUMBER_MAX // 2:
        raise _refused(entry, f"{entry.size} is not a size")
    if entry.form == "json":
        if entry.media_type != JSON_TYPE:
            raise _refused(entry, f"a JSON value has the media type {JSON_TYPE}, not {entry.media_type!r}")
        return varint(entry.size * 2) + value
    return varint(entry.size * 2 + 1) + _media_type(entry) + value


def make_entry(path: str, tail: bytes) -> Entry:
    """The entry at `path` whose tail this is."""
    number, at = read_varint(tail, 0)
    value = value_of(tail)
    if not number & 1:
        return Entry(path, "json", JSON_TYPE, number >> 1, value)
    _, start = read_varint(tail, at)
    return Entry(path, "bytes", tail[start:-DIGEST_BYTES].decode(), number >> 1, value)


def value_of(tail: bytes) -> Digest:
    """The value that an entry with this tail holds."""
    return Digest(tail[-DIGEST_BYTES:].hex())


def tail_end(body: bytes, at: int) -> int:
    """Where the tail that starts at `at` ends; raises `Corrupt`, or `IndexError` past the end."""
    number, at = read_varint(body, at)
    if number & 1:
        length, at = read_varint(body, at)
        _check_media_type(body[at : at + length])
        at += length
    return at + DIGEST_BYTES


def _media_type(entry: Entry) -> bytes:
    try:
        text = entry.media_type.encode()
    except UnicodeEncodeError as error:
        raise _refused(entry, "its media type holds a lone surrogate") from error
    if not 1 <= len(text) <= MEDIA_TYPE_BYTES_MAX:
        raise _refused(entry, f"its media type has {len(text)} bytes, not 1 to {MEDIA_TYPE_BYTES_MAX}")
    return varint(len(text)) + text


def _check_media_type(text: bytes) -> None:
    try:
        fits = 1 <= len(text) <= MEDIA_TYPE_BYTES_MAX and text.decode()
    except UnicodeDecodeError:
        fits = False
    if not fits:
        raise Corrupt(f"an entry has the media type {text[:60]!r}")


def _refused(entry: Entry, why: str) -> Invalid:
    return Invalid(f"the entry at {entry.path[:60]!r} cannot be kept: {why}; nothing was written.")
