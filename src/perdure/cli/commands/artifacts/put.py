"""`perdure artifacts put`."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Annotated

from cyclopts import Parameter

from perdure.cli.input.json_input import reading_file
from perdure.cli.input.stores import writing
from perdure.cli.options import EVERYWHERE, Everywhere, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.progress import ReportProgress, working
from perdure.cli.output.screen import Screen
from perdure.model.head import MAIN
from perdure.shapes.store import ArtifactShape
from perdure.shapes.text import size

__all__ = ["ArtifactPutAnswer", "put"]

_PIECE = 256 * 1024


class ArtifactPutAnswer(Answer, frozen=True, kw_only=True):
    """An artifact that is kept now."""

    thread: str
    artifact: ArtifactShape

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        kept = self.artifact
        screen.say(
            f"Kept {size(kept.size)} of {kept.media_type} in {self.thread} as ", (kept.digest, "digest")
        )


def put(
    thread: ThreadId,
    file: Annotated[
        str, Parameter(name="FILE", help="The file to store; - is the input", allow_leading_hyphen=True)
    ],
    /,
    *,
    name: Annotated[
        str | None,
        Parameter(
            metavar="TEXT",
            help="What to list it as; the file's name if left out. One such as design/draft is committed, and "
            "artifact://design/draft leads to it",
        ),
    ] = None,
    media_type: Annotated[
        str | None, Parameter(metavar="TYPE", help="Its media type; detected from the content if left out")
    ] = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> ArtifactPutAnswer:
    """Store a file as an artifact of a thread"""
    with writing(everywhere) as store, _opened(file) as (source, total):
        kept = store.thread(thread, timeline=timeline).artifacts
        named = name if name is not None or file == "-" else Path(file).name
        with working("Keeping", total=total, quiet=everywhere.json) as report_progress:
            digest = kept.put(_pieces(source, report_progress), media_type=media_type, name=named)
        return ArtifactPutAnswer(thread=thread, artifact=ArtifactShape.of(kept.show(digest)))


@contextmanager
def _opened(file: str) -> Generator[tuple[IO[bytes], int | None]]:
    """Return the file to read and its size; None if the size is unknown."""
    if file == "-":
        yield sys.stdin.buffer, None
    else:
        with ExitStack() as opened:
            with reading_file(file, undone="nothing was kept"):
                source = opened.enter_context(Path(file).open("rb"))
            yield source, Path(file).stat().st_size


def _pieces(source: IO[bytes], report_progress: ReportProgress) -> Iterator[bytes]:
    read = 0
    while piece := source.read(_PIECE):
        yield piece
        read += len(piece)
        report_progress("", read)
