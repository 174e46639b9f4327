"""Keys: forty bits by which a row can be found.

A key is a hint, never a proof: whoever follows one checks the digest, the op_id or the
label that it finds there.  Short keys keep the index a quarter of the size of one by digest.
"""

from __future__ import annotations

from hashlib import blake2b

from holdfast.model.digest import Digest

__all__ = [
    "KEY_BITS",
    "KEY_BYTES",
    "ROW_KEY",
    "joined_keys",
    "key_range",
    "label_key",
    "object_key",
    "op_key",
    "split",
    "version_key",
]

KEY_BYTES = 5
KEY_BITS = 8 * KEY_BYTES
ROW_KEY = 0  # every row of a space is also found under this one, in order


def object_key(digest: Digest) -> int:
    """The key of an object: the first bits of its digest."""
    return int(digest[: 2 * KEY_BYTES], 16)


def op_key(op_id: str) -> int:
    """The key of a write."""
    return _hashed(b"op", op_id)


def label_key(label: str) -> int:
    """The key of a message or a run."""
    return _hashed(b"label", label)


def version_key(timeline: str, version: int) -> int:
    """The key of a recorded move."""
    return _hashed(b"version", f"{version}/{timeline}")


def key_range(prefix: str) -> tuple[int, int]:
    """The first and last key of objects whose digest starts with these hex digits."""
    digits = prefix[: 2 * KEY_BYTES]
    return int(digits.ljust(2 * KEY_BYTES, "0"), 16), int(digits.ljust(2 * KEY_BYTES, "f"), 16)


def joined_keys(keys: list[int]) -> bytes:
    """Keys as the bytes that a row keeps."""
    return b"".join([key.to_bytes(KEY_BYTES, "big") for key in keys])


def split(keys: bytes) -> list[int]:
    """The keys of a row, from their bytes."""
    return [int.from_bytes(keys[at : at + KEY_BYTES], "big") for at in range(0, len(keys), KEY_BYTES)]


def _hashed(what: bytes, text: str) -> int:
    return int.from_bytes(
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES, person=what).digest(), "big"
    )
