"""Bytes in requests: whether base64 is base64, and whether a picture is one."""

from __future__ import annotations

import base64
import binascii
import re

from perdure.model.artifact import sniff
from perdure.providers.wire.media import inline

__all__ = ["PICTURES", "decoded", "looks_like_token", "picture_fault", "url_fault"]

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")

_TOKEN = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")


def decoded(text: object) -> bytes | None:
    """The bytes behind base64 text; None if it is none."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return base64.b64decode(re.sub(r"\s+", "", text), validate=True)
    except (binascii.Error, ValueError):
        return None


def looks_like_token(text: object) -> bool:
    """Whether it could be an opaque token: base64 of either alphabet."""
    return isinstance(text, str) and _TOKEN.fullmatch(text) is not None


def picture_fault(text: object, declared: str) -> str | None:
    """What is wrong with a picture in base64 that is declared to be of some type; None if nothing is."""
    body = decoded(text)
    if body is None:
        return "its data is not base64"
    found = sniff(body[:4_096], whole=len(body) <= 4_096)
    if found not in PICTURES:
        return f"its bytes are {found}, which is no picture that is taken"
    return (
        None if found == declared else f"its bytes are {found}, but it is declared as {declared or 'nothing'}"
    )


def url_fault(url: str) -> str | None:
    """What is wrong with the address of a picture; None if nothing is."""
    if url.startswith(("https://", "http://")):
        return None
    held = inline(url)
    if held is None:
        return "it is neither an http address nor a data URL that can be read"
    found = sniff(held.bytes[:4_096], whole=len(held.bytes) <= 4_096)
    return None if found in PICTURES else f"its bytes are {found}, which is no picture that is taken"
