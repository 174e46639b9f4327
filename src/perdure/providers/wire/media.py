"""Reads and classifies media: data URLs, web addresses, references.

Adapters deal in plain JSON, so bytes travel as data URLs.  The declared type is compared
with the bytes: some vendors refuse media of another type than declared.
"""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

import msgspec

from perdure.model.artifact import sniff

__all__ = ["Inline", "data_url", "inline", "is_web", "kind_of", "media_type_of"]

_DATA = re.compile(r"data:(?P<type>[^;,]*)(?P<more>(?:;[^;,]*)*?)(?P<b64>;base64)?,", re.IGNORECASE)
_OTHER_NAMES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "audio/mp3": "audio/mpeg"}
_PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_BY_ENDING = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "pdf": "application/pdf",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "mp4": "video/mp4",
    "txt": "text/plain",
    "csv": "text/csv",
    "md": "text/markdown",
    "html": "text/html",
    "json": "application/json",
}


class Inline(msgspec.Struct, frozen=True):
    """The bytes of a data URL."""

    media_type: str  # the detected type; else the declared one
    declared: str
    base64: str  # as it came, white space aside
    bytes: bytes


def inline(uri: str) -> Inline | None:
    """Return the content of a data URL; None if it is none, or unreadable."""
    found = _DATA.match(uri)
    if found is None:
        return None
    declared = (found["type"] or "text/plain").lower()
    rest = uri[found.end() :]
    try:
        if found["b64"]:
            text = re.sub(r"\s+", "", rest)
            body = base64.b64decode(text + "=" * (-len(text) % 4), altchars=None, validate=True)
        else:
            body = unquote_to_bytes(rest)
            text = base64.b64encode(body).decode()
    except (binascii.Error, ValueError):
        return None
    return Inline(media_type_of(declared, body), declared, text, body)


def data_url(media_type: str, text: str) -> str:
    """Return the data URL of bytes that are in base64 already."""
    return f"data:{media_type};base64,{text}"


def media_type_of(declared: str, body: bytes) -> str:
    """Return the type of the bytes by their first ones; images and documents are often declared wrongly."""
    named = _OTHER_NAMES.get(declared.lower(), declared.lower())
    found = sniff(body[:4_096], whole=len(body) <= 4_096)
    if found.startswith("image/") or found == "application/pdf" or named in _PICTURES:
        return found  # a picture of these types has its signature; other bytes are no picture
    return named


def kind_of(media_type: str, uri: str = "") -> str:
    """Return `image`, `audio`, `video`, `text` or `file`."""
    named = media_type or _BY_ENDING.get(uri.rpartition(".")[2].lower().partition("?")[0], "")
    top = named.partition("/")[0]
    return top if top in ("image", "audio", "video", "text") else "file"


def is_web(uri: str) -> bool:
    """True if a vendor could fetch it."""
    return uri.startswith(("https://", "http://"))
