"""A thread's artifacts: bulky content by digest, streamed in and out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from holdfast.errors import Invalid
from holdfast.history import artifacts, reader
from holdfast.history.artifacts import Listed, Piece
from holdfast.history.space import Space
from holdfast.model.digest import Digest, check_digest
from holdfast.model.head import MAIN
from holdfast.threads.loops import blocking

__all__ = ["Artifacts"]

_PAGE = 100
REFERENCE = "artifact://sha256/"  # what a reference to an artifact begins with


@blocking
class Artifacts:
    """What a thread keeps beside its state: content of any size, named by digest."""

    def __init__(self, space: Space) -> None:
        """Keep artifacts in that space."""
        self._space = space

    def put(
        self, content: Piece | Iterable[Piece], *, media_type: str | None = None, name: str | None = None
    ) -> Digest:
        """Keep content, whole or in pieces, and list it; its digest.  The media type is found if none is given.

        A piece is bytes, a bytearray or a memoryview; text has to be encoded first.
        """
        reader.head_to_move(self._space, MAIN)
        return artifacts.put(self._space, _pieces(content), media_type=media_type, name=name)

    def get(self, digest: str) -> Iterator[bytes]:
        """The content, piece by piece, each checked; raises `NotFound` at once if there is none.

        It is named by its digest, or by a reference as calls hold it: `artifact://sha256/…`.
        """
        return artifacts.get(self._here(), _named(digest))

    def show(self, digest: str) -> Listed:
        """What is known of it without reading its content."""
        return artifacts.show(self._here(), _named(digest))

    def ls(self) -> Iterator[Listed]:
        """All that are listed, by digest, read as they are asked for."""
        space, after = self._here(), ""
        while page := artifacts.ls(space, after=after, limit=_PAGE):
            yield from page
            after = page[-1].digest

    def _here(self) -> Space:
        """The space, unless the thread was removed: then `NotFound`."""
        reader.head_of(self._space, MAIN)
        return self._space


def _named(reference: str) -> Digest:
    if isinstance(reference, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        reference = reference.removeprefix(REFERENCE)
    return check_digest(reference)


def _pieces(content: Piece | Iterable[Piece]) -> Iterable[Piece]:
    if isinstance(content, bytes | bytearray):
        return (content,)
    if isinstance(content, memoryview):
        return (cast("memoryview", content),)
    if not isinstance(content, Iterable) or isinstance(content, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"content is bytes, or pieces of them, not {type(content).__name__}; it was not kept. Encode text first, "
            "or open its file in binary mode."
        )
    return content
