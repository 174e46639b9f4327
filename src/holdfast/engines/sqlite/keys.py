"""Keys: five bytes by which a row can be found.

A key is a hint, never a proof: whoever follows one checks the digest, the op_id or the
label that it finds there.  Short keys keep the index a quarter of the size of one by digest.
"""

from __future__ import annotations

from hashlib import blake2b

from holdfast.model.digest import Digest

__all__ = [
    "KEY_BYTES",
    "ROW_KEY",
    "key_range",
    "label_key",
    "object_key",
    "op_key",
    "split",
    "version_key",
]

KEY_BYTES = 5
ROW_KEY = b""  # every row of a space is also found under this one, in order

_DIGITS = 2 * KEY_BYTES


def object_key(digest: Digest) -> bytes:
    """The key of an object: the first bytes of its digest."""
    return bytes.fromhex(digest[:_DIGITS])


def op_key(op_id: str) -> bytes:
    """The key of a write."""
    return blake2b(b"op\0" + op_id.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def label_key(label: str) -> bytes:
    """The key of a message or a run."""
    return blake2b(b"label\0" + label.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def version_key(timeline: str, version: int) -> bytes:
    """The key of a recorded move."""
    return blake2b(b"version\0%d/" % version + timeline.encode(), digest_size=KEY_BYTES).digest()


def key_range(prefix: str) -> tuple[bytes, bytes]:
    """The first and last key of objects whose digest starts with these hex digits."""
    digits = prefix[:_DIGITS]
    return bytes.fromhex(digits.ljust(_DIGITS, "0")), bytes.fromhex(digits.ljust(_DIGITS, "f"))


def split(keys: bytes) -> list[bytes]:
    """The keys of a row, from the bytes that it keeps."""
    return [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]
