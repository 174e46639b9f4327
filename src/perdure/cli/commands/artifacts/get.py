"""`perdure artifacts get`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.artifacts.shapes import digest_of
from perdure.cli.completion import in_store
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, At, Everywhere, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen
from perdure.cli.output.streams import for_owner
from perdure.errors import Conflict, Invalid
from perdure.model.head import MAIN
from perdure.shapes.store import ArtifactShape
from perdure.shapes.text import size

__all__ = ["Saved", "get"]


class Saved(Answer, frozen=True, kw_only=True):
    """An artifact whose content is in a file now."""

    thread: str
    artifact: ArtifactShape
    output: str

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        kept = self.artifact
        screen.say(
            f"Wrote {size(kept.size)} of {kept.media_type} to {self.output}: ", (kept.digest[:12], "digest")
        )


def get(
    thread: ThreadId,
    artifact: Annotated[
        str,
        Parameter(
            name="ARTIFACT",
            completer=in_store,
            help="Its digest, the first digits of it, its name, or a reference artifact://…",
        ),
    ],
    /,
    *,
    output: Annotated[
        str | None, Parameter(metavar="FILE", help="Write to this new file, instead of to the output")
    ] = None,
    at: At = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Saved | None:
    """Write the content of an artifact to a file or a pipe

    Every piece is checked on the way. Content that turns out to be damaged leaves no file.
    """
    if output is None and sys.stdout.isatty():
        raise Invalid(
            "an artifact may hold anything, so it is not written to a terminal.",
            code="output_is_terminal",
            advice="Name a file with --output.",
        )
    with reading(everywhere) as store:
        kept = store.thread(thread, timeline=timeline).artifacts
        digest = digest_of(kept, artifact, at=at)
        pieces = kept.get(digest)
        if output is None:
            _pour(pieces)
            return None
        _save(pieces, Path(output))
        return Saved(thread=thread, artifact=ArtifactShape.of(kept.show(digest)), output=output)


def _pour(pieces: Iterator[bytes]) -> None:
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _save(pieces: Iterator[bytes], file: Path) -> None:
    """Write a new file, or none: it gets its name when all of it is there."""
    if file.exists():
        raise Conflict(
            f"{file} exists already; nothing was written.",
            code="file_exists",
            advice="Choose another name.",
            file=str(file),
        )
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    try:
        with open(partial, "xb", opener=for_owner) as target:
            for piece in pieces:
                target.write(piece)
        partial.rename(file)
    finally:
        partial.unlink(missing_ok=True)
