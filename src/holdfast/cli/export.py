"""`holdfast export`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec import UNSET

from holdfast.cli import gitting
from holdfast.cli.answer import Answer
from holdfast.cli.gitting import Directory, Follow, Projected
from holdfast.cli.losses import LossShape, losses_of, show_losses
from holdfast.cli.options import EVERYWHERE, At, Everywhere, ThreadId, Timeline
from holdfast.cli.safe import safe_json
from holdfast.cli.screen import Screen, console
from holdfast.cli.stores import reading
from holdfast.errors import Invalid
from holdfast.model.head import MAIN

__all__ = ["Exported", "export"]


class Exported(Answer, frozen=True, kw_only=True):
    """A thread as a request in a vendor's format, and what is lost on the way."""

    thread: str
    timeline: str
    format: str
    body: dict[str, Any]
    losses: list[LossShape]

    def show(self, screen: Screen) -> None:
        """Print the request alone, so that it can be kept in a file; losses go to the error stream."""
        screen.say(safe_json(self.body))
        if self.losses:
            show_losses(Screen(console(stderr=True)), self.losses)


def export(
    thread: ThreadId,
    /,
    *,
    format: Annotated[
        str | None, Parameter(name="--format", metavar="API", help="The wire format, such as openai-chat")
    ] = None,
    model: Annotated[
        str | None, Parameter(metavar="NAME", help="The model it is for; none in particular if left out")
    ] = None,
    timeline: Timeline = MAIN,
    at: At = None,
    git: Directory = None,
    follow: Follow = False,
    everywhere: Everywhere = EVERYWHERE,
) -> Exported | Projected | Iterator[Projected]:
    """Write a thread in a vendor's format, or to git

    With --format a request goes to the output, what could not be carried over unchanged to the
    error stream. `holdfast import` makes a thread of it again.

    With --git the whole thread becomes a bare repository that is read and never read back: a git
    commit for each commit, a branch for each timeline, messages and state as files. Done again, it
    goes on from what is there.
    """
    if git is not None:
        if format is not None or model is not None or at is not None or timeline != MAIN:
            raise Invalid(
                "--git writes the whole thread; nothing was written. Leave out --format, --model, --timeline and --at."
            )
        return (gitting.follow if follow else gitting.project)(thread, git, everywhere)
    if format is None or follow:
        raise Invalid(
            "there is no --follow without --git; nothing was written. Name a directory."
            if follow
            else "nobody said as what; nothing was written. Give --format API or --git DIR."
        )
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        rendered = found.export(format, model=model, at=UNSET if at is None else at)
    return Exported(
        thread=thread,
        timeline=timeline,
        format=format,
        body=rendered.body,
        losses=losses_of(rendered.losses),
    )
