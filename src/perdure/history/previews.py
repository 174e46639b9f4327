"""Previews: what a model, or a person, is shown of an artifact instead of all of it."""

from __future__ import annotations

import msgspec

from perdure.errors import Invalid
from perdure.history import artifacts
from perdure.history.space import Space
from perdure.model.artifact import reference
from perdure.model.digest import Digest

__all__ = ["Preview", "preview"]

_TEXTUAL = ("application/json", "application/xml", "application/yaml", "application/javascript")


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The head of an artifact, and what the whole is."""

    reference: str
    media_type: str
    size: int
    text: str | None  # None: it is no text
    is_whole: bool

    def __str__(self) -> str:
        """As it stands in a message."""
        what = f"[{self.reference}: {self.media_type}, {self.size:,} bytes]"
        if self.text is None:
            return what
        return (
            f"{what}\n{self.text}"
            if self.is_whole
            else f"{what}\n{self.text}\n[… the rest is in the artifact]"
        )


def preview(space: Space, digest: Digest, *, bytes_max: int = 2_000) -> Preview:
    """The first `bytes_max` bytes of an artifact, if it is text; only the chunks that hold them are read."""
    if type(bytes_max) is not int or bytes_max < 1:
        raise Invalid(f"bytes_max is a number above 0, not {bytes_max!r}; nothing was read.")
    known = artifacts.show(space, digest)
    text = None
    if known.media_type.startswith("text/") or known.media_type.partition(";")[0] in _TEXTUAL:
        text = _head(space, digest, bytes_max)
    return Preview(
        reference=reference(digest),
        media_type=known.media_type,
        size=known.size,
        text=text,
        is_whole=text is not None and known.size <= bytes_max,
    )


def _head(space: Space, digest: Digest, bytes_max: int) -> str:
    head = b""
    for piece in artifacts.get(space, digest):
        head += piece[: bytes_max - len(head)]
        if len(head) >= bytes_max:
            break
    return head.decode("utf-8", "ignore" if len(head) >= bytes_max else "replace")
