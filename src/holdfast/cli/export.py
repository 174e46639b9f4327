"""`holdfast export`."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter
from msgspec import UNSET

from holdfast.cli.answer import Answer
from holdfast.cli.losses import LossShape, losses_of, show_losses
from holdfast.cli.options import EVERYWHERE, At, Everywhere, Format, ThreadId, Timeline
from holdfast.cli.safe import safe_json
from holdfast.cli.screen import Screen, console
from holdfast.cli.stores import reading
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
    format: Format,
    model: Annotated[
        str | None, Parameter(metavar="NAME", help="The model it is for; none in particular if left out")
    ] = None,
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Exported:
    """Write a thread as a request in a vendor's format

    The request goes to the output, what could not be carried over unchanged to the error stream.
    `holdfast import` makes a thread of it again.
    """
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
