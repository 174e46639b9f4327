"""`perdure import`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.input.json_input import GivenFile, read_json
from perdure.cli.options import EVERYWHERE, Everywhere, Format, OpId, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import count
from perdure.cli.output.ledger_words import show_losses
from perdure.cli.output.screen import Screen
from perdure.model.head import MAIN
from perdure.runtime.import_messages import read
from perdure.shapes.conversation import LossShape, losses_of
from perdure.shapes.threads import HeadShape
from perdure.store.open_store import open as open_store

__all__ = ["Imported", "import_"]


class Imported(Answer, frozen=True, kw_only=True):
    """A conversation that is in a thread now, and what was lost on the way."""

    thread: str
    agent: str
    format: str
    messages: int
    calls: int
    head: HeadShape
    losses: list[LossShape]

    def show(self, screen: Screen) -> None:
        """Print one sentence, the losses, and what to do next."""
        said = count(self.messages, "message")
        with_calls = f" and {count(self.calls, 'call')}" if self.calls else ""
        screen.say(
            f"Added {said}{with_calls} to ",
            (self.thread, "name"),
            f" of agent {self.agent}: ",
            ((self.head.commit or "")[:12], "digest"),
        )
        if self.losses:
            show_losses(screen, self.losses)
        screen.suggest("See it: ", "threads", "log", self.thread)


def import_(
    thread: ThreadId,
    file: GivenFile,
    /,
    *,
    format: Format,
    agent: Annotated[str, Parameter(metavar="NAME", help="The agent whose thread it is")],
    owner: Annotated[
        str | None, Parameter(metavar="NAME", help="The owner of the thread: a user, a customer")
    ] = None,
    provider: Annotated[
        str | None, Parameter(metavar="NAME", help="The provider of the assistant, such as openai")
    ] = None,
    model: Annotated[str | None, Parameter(metavar="NAME", help="The model of the assistant")] = None,
    whole: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="The file begins with the whole transcript; add only the rest",
        ),
    ] = False,
    timeline: Timeline = MAIN,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Imported:
    """Import a saved request, reply or message list as a thread

    The store and the thread are made if they are not there; a thread that has messages gets these after them.
    Calls enter the ledger as made elsewhere. A file that cannot be read makes nothing.
    Messages with ids that the thread has already are left out.
    """
    given = read_json(file)
    read(given, format)  # before anything is made
    with open_store(everywhere.store) as store:
        found = store.thread(thread, agent=agent, owner=owner)
        placed = found if timeline == MAIN else found.on(timeline)
        messages, calls = len(placed.transcript()), len(placed.calls())
        losses = placed.add(given, api=format, provider=provider, model=model, whole=whole, op_id=op_id)
        return Imported(
            thread=placed.id,
            agent=placed.agent,
            format=format,
            messages=len(placed.transcript()) - messages,
            calls=len(placed.calls()) - calls,
            head=HeadShape.of(placed.head),
            losses=losses_of(losses),
        )
