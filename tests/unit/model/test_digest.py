"""Digests: pinned for ever, because what is stored is found by them."""

from __future__ import annotations

from hashlib import sha256

import pytest

from perdure.errors import Corrupt, Invalid
from perdure.model.digest import Digest, Kind, Object, check_digest, digest_of

# Computed once, by hand: SHA-256("holdfast/1" 00 kind 00 u64be(length) body).  A change of any of them is a new format.
EMPTY = {
    Kind.VALUE: "599691679a85b23b81ad9058c30bd8757a0dabbb7d306905f117b19b464d9508",
    Kind.NODE: "1d64a6de14af940f2c9c5d168c7693f22b4dae6ddb51fe8bb87bf5fecf5126ec",
    Kind.BODY: "6e76aaa0e2369c2d1177e9c7653902a6ab036463db571fb617ba5bb52773467e",
    Kind.CHANGESET: "addeccd2be5200933b536c01cc65ec16b876ed863e1b6bd6f330631797e3be6b",
    Kind.COMMIT: "43193c12d0fe72421b49d1099b67394dec84c1667228f97a3c55081503c4ac84",
    Kind.MOVE: "b8888b7c5c26b9f246031afe53f136db6c59ba5f56c745060ffdad9ab7bf7b12",
    Kind.ENTRY: "522aeda221c14dfa7818e5546fc088f514e3b5bbe26dd48e9d13389a90f03b60",
    Kind.ARTIFACT: "a74fda6eeba3fd23fb8189bd14b90305444bf1c157bbcbb9cbe551eb2b8a9fa7",
    Kind.CHECKPOINT: "0d67d908b364832e827dbe230493d4bee682a0eb1b1f3426a16d090e987cb834",
}


def test_every_kind_has_its_own_digest_for_ever() -> None:
    """The digest of the empty object of each kind is pinned, and no kind is left out."""
    assert {kind: digest_of(kind, b"") for kind in Kind} == EMPTY


def test_a_digest_is_what_the_documents_say() -> None:
    """Prefix, kind, length and body, in this order, separated by zero bytes."""
    by_hand = sha256(b"holdfast/1\x00value\x00" + (7).to_bytes(8, "big") + b'{"a":1}').hexdigest()

    assert digest_of(Kind.VALUE, b'{"a":1}') == by_hand
    assert by_hand == "ae23d2bbcfb5cf150270c395dae35764df20a265a09c46389693fd9b75459ce3"


def test_a_zero_byte_does_not_make_two_things_alike() -> None:
    """Kind and length are hashed too, so that nothing can be read as something else."""
    digests = [digest_of(kind, body) for kind in Kind for body in (b"", b"\0", b"\0\0", b"body\0", b"value")]

    assert len(set(digests)) == len(digests)


def test_an_object_is_named_by_its_bytes() -> None:
    """A base is a hint and no part of the name."""
    plain = Object.of(Kind.VALUE, b"milk")
    hinted = Object.of(Kind.VALUE, b"milk", base=plain.digest)

    assert plain.digest == hinted.digest == digest_of(Kind.VALUE, b"milk")
    assert plain == hinted


def test_reading_gives_back_only_what_was_written() -> None:
    """A flipped bit, another kind or another digest is `Corrupt`, naming the object."""
    written = Object.of(Kind.VALUE, b"milk")

    assert Object.read(Kind.VALUE, written.digest, b"milk").body == b"milk"
    for kind, body in [
        (Kind.VALUE, b"mIlk"),
        (Kind.BODY, b"milk"),
        (Kind.VALUE, b"milk\0"),
        (Kind.VALUE, b""),
    ]:
        with pytest.raises(Corrupt, match=f"{written.digest}.*was not returned"):
            Object.read(kind, written.digest, body)


def test_a_digest_is_64_lower_case_hex_digits() -> None:
    """Anything else is refused before it is looked up."""
    good = "0123456789abcdef" * 4

    assert check_digest(good) == Digest(good)
    for bad in (
        "",
        "abc",
        good[:-1],
        good + "0",
        good.upper(),
        good + "\n",
        "g" * 64,
        "０" * 64,
        " " + good[1:],
    ):
        with pytest.raises(Invalid, match="is not a digest"):
            check_digest(bad)
