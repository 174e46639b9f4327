"""Defines artifacts: bulky content, stored in chunks and named by one digest; guesses media types.

The artifact object is small: it lists its chunks, and the type, size and hash of the whole.  Its digest
is what a reference names (`artifact://sha256/<digest>`), not the plain SHA-256 inside it,
with which other programs can compare the content with a file.
"""

from __future__ import annotations

import json
import re

import msgspec

from perdure.errors import Invalid
from perdure.model import canonical
from perdure.model.digest import Digest, check_digest

__all__ = [
    "REFERENCE",
    "CHUNK_BYTES",
    "Artifact",
    "check_media_type",
    "decode_artifact",
    "encode_artifact",
    "parse_reference",
    "reference",
    "sniff",
]

CHUNK_BYTES = 256 * 1024

REFERENCE = "artifact://sha256/"
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,80}/[A-Za-z0-9!#$&^_.+-]{1,80}(;[ -~]{1,100})?\Z")


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """What one artifact is: its chunks in order, and the facts about the whole."""

    chunks: tuple[Digest, ...]  # objects of kind value, each of CHUNK_BYTES but the last
    media_type: str
    sha256: str  # of the plain content, as `sha256sum` prints it
    size: int


_decoder = msgspec.json.Decoder(Artifact)


def encode_artifact(artifact: Artifact) -> bytes:
    """Return the artifact's canonical bytes."""
    return canonical.encode_struct(artifact)


def decode_artifact(body: bytes) -> Artifact:
    """Return the artifact that `body` describes; raises `Corrupt` if it describes none."""
    return canonical.decode_struct(_decoder, body, "artifact")


def reference(digest: Digest) -> str:
    """Return the reference that names the artifact of this digest in messages and ledgers."""
    return REFERENCE + digest


def parse_reference(text: str) -> Digest:
    """Return the digest that `artifact://sha256/<digest>` names; raises `Invalid` for anything else."""
    if not text.startswith(REFERENCE):
        raise Invalid(
            f"{text[:120]!r} is not a reference of the form {REFERENCE}<digest>; nothing was looked up.",
            code="reference_invalid",
            reference=text,
        )
    return check_digest(text.removeprefix(REFERENCE))


def check_media_type(text: str) -> str:
    """Return `text` if it is a media type; raises `Invalid`."""
    if not isinstance(text, str) or not _MEDIA_TYPE.match(text):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"{ascii(text)[:120]} is not a media type such as 'image/png'; nothing was written.",
            code="media_type_invalid",
        )
    return text


_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftypqt", "video/quicktime"),
    (4, b"ftyp", "video/mp4"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"PK\x05\x06", "application/zip"),
    (0, b"\x1f\x8b\x08", "application/gzip"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"\x1a\x45\xdf\xa3", "video/webm"),
    (0, b"\x7fELF", "application/x-elf"),
)

_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_JSON_START = re.compile(r'\s*(\{\s*["}]|\[\s*["\[{\]tfn\d-])')


def sniff(head: bytes, *, whole: bool) -> str:
    """Return the media type that the first bytes suggest; `whole`: there are no more bytes.

    A guess from a small table, then text or JSON, else `application/octet-stream`.
    """
    for offset, magic, media_type in _MAGIC:
        if head.startswith(magic, offset):
            return media_type
    text = _as_text(head, whole=whole)
    if text is None:
        return "application/octet-stream"
    if _looks_like_json(text, whole=whole):
        return "application/json"
    return _markup(text) or "text/plain; charset=utf-8"


def _as_text(head: bytes, *, whole: bool) -> str | None:
    """Return `head` decoded, if it is UTF-8 without control characters; a letter cut off at the end is allowed."""
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if whole or error.start < len(head) - 3 or "unexpected end" not in error.reason:
            return None
        text = head[: error.start].decode()
    return None if _NOT_TEXT.search(text) else text


def _looks_like_json(text: str, *, whole: bool) -> bool:
    if not whole or not _JSON_START.match(text):
        return bool(_JSON_START.match(text))
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _markup(text: str) -> str | None:
    start = text.lstrip("\ufeff \t\r\n")[:64].lower()
    if start.startswith(("<!doctype html", "<html")):
        return "text/html; charset=utf-8"
    if start.startswith("<svg"):
        return "image/svg+xml"
    return "application/xml" if start.startswith("<?xml") else None
