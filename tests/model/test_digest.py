"""Digests: pinned for ever, because what is stored is found by them."""

from __future__ import annotations

from hashlib import sha256

from perdure.errors import Corrupt, Invalid
from perdure.model.digest import Digest, Kind, Object, check_digest, digest_of
from tests.coded import raises

# Computed once, by hand: SHA-256("perdure/1" 00 kind 00 u64be(length) body).  A change of any of them is a new format.
EMPTY = {
    Kind.VALUE: "dd1b8613114c7e0a54b43f4f5cd398e244f670282e9747572dac80aad024b985",
    Kind.NODE: "b67af8d244a7233f7f806a336bc72a094780f58292f77e05f2b56103737f43e2",
    Kind.BODY: "ef33cfe1b43556995e57c3bd0513e07b2c5a04ec4fb0958c1ede29efed1d925e",
    Kind.CHANGESET: "d52e8c645de0eca8f5b406b94dd41f33978cf93f4e4391bc3665a9c10e4d4324",
    Kind.COMMIT: "abd1eb493fd7179e6da3477687f54a07183dc756351f855eebe5f7cbf625ab42",
    Kind.MOVE: "75ffac5c83e0387f76f1a050f6addc73ce3c92566ae7f8014ba3e7871305fb88",
    Kind.ENTRY: "9f4db7502e2d82b083be23a4b5dcf51fbb899f07421f698192e2477862df4c91",
    Kind.ARTIFACT: "4eace0512ea28051c6600f5138fd5501260b46eea135f08d36fad09e02ca4f85",
    Kind.CHECKPOINT: "e17b3fd95c0b268da3669971a6e35e946df98e8d934c1d1f4f1ab67cf796d11f",
    Kind.LIST: "497c5f6aa9de84acf3cc711779a785a4c42f52e57f1bff49488cbb708e395230",
}


def test_every_kind_has_its_own_digest_for_ever() -> None:
    """The digest of the empty object of each kind is pinned, and no kind is left out."""
    assert {kind: digest_of(kind, b"") for kind in Kind} == EMPTY


def test_a_digest_is_what_the_documents_say() -> None:
    """Prefix, kind, length and body, in this order, separated by zero bytes."""
    by_hand = sha256(b"perdure/1\x00value\x00" + (7).to_bytes(8, "big") + b'{"a":1}').hexdigest()

    assert digest_of(Kind.VALUE, b'{"a":1}') == by_hand
    assert by_hand == "597ef4ccc857f665a29324cc06c7196a3d607a03159be144570a33c47cbd0faa"


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
        with raises(Corrupt, "digest_mismatch", object=written.digest):
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
        with raises(Invalid, "digest_invalid"):
            check_digest(bad)
