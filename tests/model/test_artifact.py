from __future__ import annotations

import pytest

from perdure.errors import Corrupt, Invalid
from perdure.model.artifact import (
    Artifact,
    check_media_type,
    decode_artifact,
    encode_artifact,
    parse_reference,
    reference,
    sniff,
)
from perdure.model.digest import Digest, Kind, digest_of
from tests.coded import raises

DIGEST = digest_of(Kind.ARTIFACT, b"x")


def test_a_reference_leads_back_to_its_digest() -> None:
    """`artifact://sha256/<digest>` is written and read by the same two functions."""
    assert reference(DIGEST) == f"artifact://sha256/{DIGEST}"
    assert parse_reference(reference(DIGEST)) == DIGEST


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "reference_invalid"),
        (DIGEST, "reference_invalid"),
        ("artifact://sha256/" + DIGEST.upper(), "digest_invalid"),
        ("artifact://sha256/abc", "digest_invalid"),
        (f"artifact://sha256/{DIGEST}/x", "digest_invalid"),
        ("file:///a", "reference_invalid"),
    ],
)
def test_anything_else_is_no_reference(text: str, code: str) -> None:
    """What only resembles a reference is refused before anything is looked up."""
    with raises(Invalid, code):
        parse_reference(text)


@pytest.mark.parametrize(
    ("head", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", "audio/wav"),
        (b"\x00\x00\x00\x18ftypmp42", "video/mp4"),
        (b"%PDF-1.7", "application/pdf"),
        (b"PK\x03\x04", "application/zip"),
        (b'{"a": 1}', "application/json"),
        (b" [1, 2]", "application/json"),
        (b"{not json", "text/plain; charset=utf-8"),
        (b"42", "text/plain; charset=utf-8"),
        ("grüße\n".encode(), "text/plain; charset=utf-8"),
        (b"<!DOCTYPE html><p>", "text/html; charset=utf-8"),
        (b"<?xml version='1.0'?>", "application/xml"),
        (b"\x00\x01\x02", "application/octet-stream"),
        (b"\xff\xfe\x80", "application/octet-stream"),
        (b"", "text/plain; charset=utf-8"),
    ],
)
def test_the_first_bytes_tell_the_media_type(head: bytes, media_type: str) -> None:
    """A few signatures, then JSON, then text."""
    assert sniff(head, whole=True) == media_type


def test_text_that_is_cut_inside_a_letter_is_still_text() -> None:
    """The first chunk of a long text may end anywhere; the same bytes as a whole are damaged text."""
    head = "grüße".encode()[:3]

    assert sniff(head, whole=False) == "text/plain; charset=utf-8"
    assert sniff(head, whole=True) == "application/octet-stream"


def test_the_beginning_of_a_long_document_is_enough_for_json() -> None:
    """What goes on cannot be parsed yet; how it begins decides."""
    assert sniff(b'{"messages": [', whole=False) == "application/json"


def test_an_artifact_is_stored_as_canonical_json() -> None:
    """Its bytes are pinned: a digest's shape is for ever."""
    whole = Artifact(chunks=(Digest("ab"),), media_type="text/plain", sha256="cd", size=3)
    body = b'{"chunks":["ab"],"media_type":"text/plain","sha256":"cd","size":3}'

    assert encode_artifact(whole) == body
    assert decode_artifact(body) == whole


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"chunks":[1]}', b"\xff"])
def test_other_bytes_are_no_artifact(body: bytes) -> None:
    """Loading what is damaged is an error that says so."""
    with raises(Corrupt, "record_unreadable", what="artifact"):
        decode_artifact(body)


@pytest.mark.parametrize("text", ["", "png", "image/", "image/p ng", "text/plain;\n", "x" * 90 + "/y"])
def test_what_is_no_media_type_is_refused(text: str) -> None:
    """A media type is two tokens, and parameters if need be."""
    with raises(Invalid, "media_type_invalid"):
        check_media_type(text)
