"""`perdure threads render`."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter
from msgspec import UNSET

from perdure.cli.commands.models.shapes import known_models, previewed_backend
from perdure.cli.input.lookup import resolve
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, At, Everywhere, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.ledger_words import show_losses
from perdure.cli.output.screen import Screen, console
from perdure.model.head import MAIN
from perdure.providers import registry
from perdure.shapes.conversation import LossShape, losses_of
from perdure.shapes.text import safe_json

__all__ = ["RenderAnswer", "render"]


class RenderAnswer(Answer, frozen=True, kw_only=True):
    """The request that a backend would be sent, in its format, and what is lost on the way."""

    thread: str
    timeline: str
    backend: str
    format: str
    body: dict[str, Any]
    losses: list[LossShape]

    def show(self, screen: Screen) -> None:
        """Print the request alone, so that it can be kept in a file; the losses go to the error stream."""
        screen.say(safe_json(self.body))
        if self.losses or screen.is_terminal:
            show_losses(Screen(console(stderr=True)), self.losses)


def render(
    thread: ThreadId,
    /,
    *,
    to: Annotated[str, Parameter(metavar="BACKEND", help="The backend, such as anthropic:claude-sonnet-5-5")],
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> RenderAnswer:
    """Show the request that a backend would get, and what its format loses

    Nothing is sent. It is what the backend would really get: after a switch, where the timeline is on another.
    Instructions and tools are those of the last step, if the agent is declared in code.
    """
    target = registry.target(to, known_models())
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        rendered = found.render(previewed_backend(to), at=UNSET if at is None else resolve(found, at))
    return RenderAnswer(
        thread=thread,
        timeline=timeline,
        backend=to,
        format=target.api,
        body=rendered.body,
        losses=losses_of(rendered.losses),
    )
