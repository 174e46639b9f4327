"""Computes digests: the SHA-256 addresses of objects that never change.

`digest = SHA-256("perdure/1" 00 kind 00 u64be(length) body)`.  Kind and length are
hashed with the body, so no two different things can share an address.  In Python and
in JSON a digest is 64 lower-case hex digits; inside binary nodes it is its 32 bytes.
"""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import sha256
from typing import NewType

import msgspec

from perdure.errors import Corrupt, Invalid

__all__ = ["PREFIXES", "Digest", "Kind", "Object", "check_digest", "digest_of"]

Digest = NewType("Digest", str)

_SHAPE = re.compile(r"[0-9a-f]{64}\Z")


class Kind(StrEnum):
    """The kind of an object; part of what is hashed."""

    # That of the text: an enumeration's own is a function of Python, and every digest looks its kind up.
    __hash__ = str.__hash__

    VALUE = "value"
    NODE = "node"
    BODY = "body"
    CHANGESET = "changeset"
    COMMIT = "commit"
    MOVE = "move"
    ENTRY = "entry"
    ARTIFACT = "artifact"
    CHECKPOINT = "checkpoint"
    LIST = "list"


# What is hashed before the length and the body.
PREFIXES = {kind: b"perdure/1\0" + kind.encode() + b"\0" for kind in Kind}


def digest_of(kind: Kind, body: bytes) -> Digest:
    """Return the address of `body` as an object of this kind."""
    return sha256(PREFIXES[kind] + len(body).to_bytes(8, "big") + body).hexdigest()  # pyright: ignore[reportReturnType]


def check_digest(text: str) -> Digest:
    """Return `text` as a digest; raises `Invalid` unless it is 64 lower-case hex digits."""
    if not isinstance(text, str) or not _SHAPE.match(text):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"{ascii(text)[:80]} is not a digest: expected 64 lower-case hex digits; nothing was looked up.",
            code="digest_invalid",
        )
    return Digest(text)


class Object(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Bytes that never change, under the digest that names them.

    Made with `Object.of`, which is the only place where the digest is computed, so
    holding one means that the digest fits the bytes.
    """

    kind: Kind
    digest: Digest
    body: bytes
    base: Digest | None = None  # an object these bytes resemble; an engine may store only the difference
    record: msgspec.Struct | None = None  # the value that these bytes encode, if the maker has it
    shared: tuple[int, int] | None = (
        None  # bytes at the start and the end that `base` has too, if the maker knows them
    )

    @classmethod
    def of(
        cls, kind: Kind, body: bytes, *, base: Digest | None = None, record: msgspec.Struct | None = None
    ) -> Object:
        """Name `body` by its digest."""
        # As `digest_of`, without the call: several objects are made for every commit.
        digest = sha256(PREFIXES[kind] + len(body).to_bytes(8, "big") + body).hexdigest()
        return cls(kind, digest, body, base, record)  # pyright: ignore[reportArgumentType]

    def __eq__(self, other: object) -> bool:
        """Two objects are equal if their digests and bytes are."""
        return isinstance(other, Object) and self.digest == other.digest and self.body == other.body

    def __hash__(self) -> int:
        """Return the hash of the digest."""
        return hash(self.digest)

    @classmethod
    def read(cls, kind: Kind, digest: Digest, body: bytes) -> Object:
        """Return the object that storage returned for `digest`; raises `Corrupt` if the bytes do not match."""
        if digest_of(kind, body) != digest:
            raise Corrupt(
                f"{kind} {digest} does not match its digest; it was not returned.",
                code="digest_mismatch",
                advice="Run `perdure verify`.",
                object=digest,
            )
        return cls(kind, digest, body)
