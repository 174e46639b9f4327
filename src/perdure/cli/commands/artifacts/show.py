"""`perdure artifacts show`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.artifacts.shapes import digest_of
from perdure.cli.completion import in_store
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, At, Everywhere, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import moment
from perdure.cli.output.screen import Part, Screen
from perdure.model.head import MAIN
from perdure.shapes.store import ArtifactShape
from perdure.shapes.text import size

__all__ = ["ArtifactShowAnswer", "show"]


class ArtifactShowAnswer(Answer, frozen=True, kw_only=True):
    """One artifact."""

    thread: str
    artifact: ArtifactShape

    def show(self, screen: Screen) -> None:
        """Print what is known, a line each."""
        known = self.artifact
        facts: list[tuple[str, Part | None]] = [
            ("name", known.name),
            ("type", known.media_type),
            ("size", f"{size(known.size)} ({known.size:,} bytes)"),
            ("listed", moment(known.at) if known.at else None),
            ("reference", known.named),
            ("call", known.call),
            ("run", known.run),
            ("commit", (known.commit, "digest") if known.commit else None),
            ("sha256", known.sha256),
            ("digest", (known.digest, "digest")),
        ]
        screen.facts([(name, fact) for name, fact in facts if fact])


def show(
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
    at: At = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> ArtifactShowAnswer:
    """Show the metadata of an artifact, without its content"""
    with reading(everywhere) as store:
        kept = store.thread(thread, timeline=timeline).artifacts
        return ArtifactShowAnswer(
            thread=thread, artifact=ArtifactShape.of(kept.show(digest_of(kept, artifact, at=at)))
        )
