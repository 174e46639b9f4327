"""Bedrock's names of media formats, and the media types that they stand for."""

from __future__ import annotations

import re

__all__ = ["DOCUMENTS", "IMAGES", "VIDEOS", "AUDIOS", "format_of", "media_type_of", "name_of"]

IMAGES = {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}

DOCUMENTS = {
    "pdf": "application/pdf",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html",
    "txt": "text/plain",
    "md": "text/markdown",
}

VIDEOS = {
    "mkv": "video/x-matroska",
    "mov": "video/quicktime",
    "mp4": "video/mp4",
    "webm": "video/webm",
    "flv": "video/x-flv",
    "mpeg": "video/mpeg",
    "mpg": "video/mpg",
    "wmv": "video/x-ms-wmv",
    "three_gp": "video/3gpp",
}

AUDIOS = {
    "mp3": "audio/mpeg",
    "opus": "audio/opus",
    "wav": "audio/wav",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "mp4": "audio/mp4",
    "ogg": "audio/ogg",
    "mkv": "audio/x-matroska",
    "mka": "audio/mka",
    "x-aac": "audio/x-aac",
    "m4a": "audio/x-m4a",
    "mpeg": "audio/mpeg",
    "mpga": "audio/mpga",
    "pcm": "audio/pcm",
    "webm": "audio/webm",
}

_KINDS = {"image": IMAGES, "document": DOCUMENTS, "video": VIDEOS, "audio": AUDIOS}


def media_type_of(kind: str, format: object) -> str:
    """The media type of a format of images, documents, videos or audio."""
    known = _KINDS[kind]
    return known.get(str(format), "application/octet-stream" if kind == "document" else f"{kind}/{format}")


def format_of(kind: str, media_type: str) -> str | None:
    """The format of a media type; None if Bedrock has none."""
    plain = media_type.partition(";")[0].strip().lower()
    return next((name for name, known in _KINDS[kind].items() if known == plain), None)


def name_of(wanted: str, taken: set[str]) -> str:
    """A document's name as Bedrock takes it: few characters, no two spaces, none twice in a request."""
    plain = re.sub(r"\s+", " ", re.sub(r"[^a-zA-Z0-9\s_()\[\]-]", " ", wanted)).strip()[:180] or "document"
    made, number = plain, 1
    while made in taken:
        number += 1
        made = f"{plain}-{number}"
    taken.add(made)
    return made
