"""`perdure threads begin`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.answer import Answer, HeadShape
from perdure.cli.options import EVERYWHERE, Everywhere, ThreadId
from perdure.cli.screen import Screen
from perdure.cli.stores import writing

__all__ = ["Begun", "begin"]


class Begun(Answer, frozen=True, kw_only=True):
    """A thread that is there now, whether it was before or not."""

    id: str
    agent: str
    owner: str | None
    head: HeadShape

    def show(self, screen: Screen) -> None:
        """Print one sentence, and what to do next."""
        state = f"at version {self.head.version}" if self.head.version else "with nothing in it yet"
        screen.say("Thread ", (self.id, "name"), f" of agent {self.agent} is there, {state}.")
        if not self.head.version:
            screen.suggest("Give it something to know: ", "state", "put", self.id, "/todos.json", "[]")


def begin(
    thread: ThreadId,
    /,
    *,
    agent: Annotated[str, Parameter(metavar="NAME", help="The agent whose thread it is")],
    owner: Annotated[
        str | None, Parameter(metavar="NAME", help="Whose thread it is: a user, a customer")
    ] = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Begun:
    """Begin a thread for an agent, or open the one there is

    A thread that exists already and is another agent's or owner's is a conflict.
    """
    with writing(everywhere) as store:
        found = store.thread(thread, agent=agent, owner=owner)
        return Begun(id=found.id, agent=found.agent, owner=found.owner, head=HeadShape.of(found.head))
