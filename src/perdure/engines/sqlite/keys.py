"""Keys: five bytes by which a row can be found.

A key is a hint, never a proof: whoever follows one checks the digest, the op_id or the
label that it finds there.  Short keys keep the index a quarter of the size of one by digest.

In the index a key and its row are one number, a *place*, because SQLite is fastest with
those: the key, mixed with the number of its space, and the last bits of the row's number.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b

from perdure.model.digest import Digest

__all__ = [
    "KEY_BYTES",
    "PREFIX_MIN",
    "all_places",
    "label_keys",
    "object_key",
    "op_keys",
    "places_between",
    "places_of",
    "rows_at",
    "run_key",
    "split",
    "version_key",
]

KEY_BYTES = 5
PREFIX_MIN = 4  # hex digits of a digest that are enough to look for it by its key

_DIGITS = 2 * KEY_BYTES
_KEY_BITS = 39  # of the forty; with those of the row they make a positive number of SQLite's
_ROW_BITS = 24
_ROW_MASK = (1 << _ROW_BITS) - 1
_SPREAD = 0x9E3779B97F  # times the number of a space: some forty bits that differ for each


def object_key(digest: Digest) -> bytes:
    """The key of an object: the first bytes of its digest."""
    return bytes.fromhex(digest[:_DIGITS])


def op_keys(op_id: str) -> tuple[bytes, bytes]:
    """The keys of a write."""
    return _two_keys(b"op\0" + op_id.encode("utf-8", "surrogatepass"))


def label_keys(label: str) -> tuple[bytes, bytes]:
    """The keys of a message or a run."""
    return _two_keys(b"label\0" + label.encode("utf-8", "surrogatepass"))


def _two_keys(name: bytes) -> tuple[bytes, bytes]:
    """Two keys, so that a name is found though one was damaged: that it is not there must be believed by whoever asks."""
    digest = blake2b(name, digest_size=2 * KEY_BYTES).digest()
    return digest[:KEY_BYTES], digest[KEY_BYTES:]


def version_key(timeline: str, version: int) -> bytes:
    """The key of a recorded move."""
    return blake2b(b"version\0%d/" % version + timeline.encode(), digest_size=KEY_BYTES).digest()


@lru_cache(maxsize=256)
def run_key(run: str) -> int:
    """Forty-eight bits that stand for a run in a column of its own."""
    return int.from_bytes(blake2b(run.encode("utf-8", "surrogatepass"), digest_size=6).digest(), "big")


def all_places(space: int, keys: Mapping[bytes, int | tuple[int, ...]]) -> list[int]:
    """Where the index keeps keys of one space, each with its row or its rows.

    Nothing is made for each key but its place: thousands of pairs would call the collector in.
    """
    mix, read = _mix(space), int.from_bytes
    once = [
        (read(key, "big") ^ mix) >> 1 << _ROW_BITS | rows & _ROW_MASK
        for key, rows in keys.items()
        if isinstance(rows, int)
    ]
    return once + [
        (read(key, "big") ^ mix) >> 1 << _ROW_BITS | row & _ROW_MASK
        for key, rows in keys.items()
        if not isinstance(rows, int)
        for row in rows
    ]


def places_of(space: int, key: bytes) -> tuple[int, int]:
    """The first and the last place that a key can have."""
    low = _mixed(space, key) << _ROW_BITS
    return low, low | _ROW_MASK


def places_between(space: int, prefix: str) -> tuple[int, int]:
    """The first and the last place of objects whose digest starts with these hex digits, `PREFIX_MIN` or more."""
    digits = prefix[:_DIGITS]
    bits = min(4 * len(digits), _KEY_BITS)
    low = _mixed(space, bytes.fromhex(digits.ljust(_DIGITS, "0"))) >> (_KEY_BITS - bits)
    shift = _KEY_BITS - bits + _ROW_BITS
    return low << shift, (low + 1 << shift) - 1


def rows_at(place: int, upto: int) -> range:
    """The rows up to `upto` that a place can mean: one, in a store of less than sixteen million rows."""
    first = place & _ROW_MASK
    return range(first, max(first, upto) + 1, _ROW_MASK + 1)


def split(keys: bytes) -> list[bytes]:
    """The keys of a row, from the bytes that it keeps."""
    return [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]


def _mixed(space: int, key: bytes) -> int:
    return (int.from_bytes(key) ^ _mix(space)) >> 1


def _mix(space: int) -> int:
    return space * _SPREAD & 0xFF_FFFF_FFFF
