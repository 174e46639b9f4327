"""`perdure checkpoints show`.

A checkpoint as an answer: its document, as YAML for people and as JSON for programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import Parameter

from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, At, Everywhere, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen
from perdure.errors import Invalid, NotFound
from perdure.model.checkpoint import Checkpoint
from perdure.model.config_text import write_yaml
from perdure.model.head import MAIN
from perdure.model.names import did_you_mean
from perdure.switching.checkpoint.document import enclose
from perdure.switching.checkpoint.stored import Kept

__all__ = ["show", "Enclosed"]


class Enclosed(Answer, frozen=True, kw_only=True):
    """One checkpoint in its envelope."""

    thread: str
    document: dict[str, Any]  # apiVersion, kind, metadata, spec

    @classmethod
    def of(cls, thread: str, checkpoint: Checkpoint) -> Enclosed:
        """The checkpoint of a thread as its document."""
        return cls(thread=thread, document=enclose(checkpoint).shape())

    def show(self, screen: Screen) -> None:
        """Print the document, so that it can be kept as a file."""
        for line in write_yaml(self.document).splitlines():
            screen.say(line)


_PREFIX = "chk-"


def show(
    thread: ThreadId,
    checkpoint: Annotated[
        str | None,
        Parameter(
            name="CHECKPOINT",
            help="Its name, its digest or the first digits of it; the newest if left out",
            show_default=False,
        ),
    ] = None,
    /,
    *,
    at: At = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Enclosed:
    """Show one checkpoint as YAML, in the envelope in which it can be kept and exchanged"""
    with reading(everywhere) as store:
        seen = view_at(store.thread(thread, timeline=timeline), at)
        if checkpoint is None:
            newest = next(iter(seen.checkpoints(limit=1)), None)
            if newest is None:
                raise NotFound(_none(thread, timeline))
            return Enclosed.of(thread, newest.checkpoint)
        return Enclosed.of(thread, _named(seen.checkpoints(), checkpoint, thread, timeline).checkpoint)


def _named(kept: list[Kept], name: str, thread: str, timeline: str) -> Kept:
    digits = name.removeprefix(_PREFIX)
    found = {each.digest: each for each in kept if digits and each.digest.startswith(digits)}
    if len(found) > 1:
        raise Invalid(f"{name!r} begins {len(found)} checkpoints; nothing is shown. Give more digits.")
    if not found:
        if not kept:
            raise NotFound(_none(thread, timeline))
        raise NotFound(
            f"timeline '{timeline}' of '{thread}' has no checkpoint {name!r}; nothing is shown. "
            f"{did_you_mean(name, _names(kept))}See `perdure checkpoints ls {thread}`."
        )
    return next(iter(found.values()))


def _names(kept: list[Kept]) -> Iterator[str]:
    for each in kept:
        yield from (_PREFIX + each.digest[:12], each.digest)


def _none(thread: str, timeline: str) -> str:
    return (
        f"timeline '{timeline}' of '{thread}' has no checkpoint: no backend was switched there; nothing is shown. "
        f"`perdure checkpoints derive {thread}` shows what one would say."
    )
