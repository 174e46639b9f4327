"""`perdure threads begin`.

`perdure threads rm`.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.completion import in_store
from perdure.cli.input.stores import writing
from perdure.cli.input.terminal import is_agreed
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, Everywhere, NewOwner, ThreadId
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen
from perdure.errors import Refused
from perdure.shapes.text import inline
from perdure.shapes.threads import BegunThread
from perdure.store.plumbing.run_fence import check_removable

__all__ = ["ThreadBeginAnswer", "begin", "Removed", "rm"]


class ThreadBeginAnswer(BegunThread, Answer, frozen=True, kw_only=True):
    """A thread that is there now, whether it was before or not."""

    def show(self, screen: Screen) -> None:
        """Print one sentence, and what to do next."""
        state = f"at version {self.head.version}" if self.head.version else "with nothing in it yet"
        screen.say("Thread ", (self.id, "name"), f" of agent {self.agent} is open, {state}.")
        if not self.head.version:
            screen.suggest("Write to its state: ", "state", "put", self.id, "/todos.json", "[]")


def begin(
    thread: ThreadId,
    /,
    *,
    agent: Annotated[str, Parameter(metavar="NAME", completer=in_store, help="The agent whose thread it is")],
    owner: NewOwner = None,
    everywhere: Everywhere = EVERYWHERE,
) -> ThreadBeginAnswer:
    """Begin a thread for an agent, or open the existing one

    A thread that exists already and is another agent's or owner's is a conflict.
    """
    with writing(everywhere) as store:
        found = store.thread(thread, agent=agent, owner=owner)
        return ThreadBeginAnswer.of(found)


class Removed(Answer, frozen=True, kw_only=True):
    """A thread that is not there any more, or one of its timelines that was dropped."""

    id: str
    timeline: str | None  # that was dropped; null: the whole thread was removed

    def show(self, screen: Screen) -> None:
        """Print one sentence, and what it leaves behind."""
        if self.timeline is not None:
            screen.sentence(
                "Dropped ", (self.timeline, "line"), " of ", (self.id, "name"), ", which is sealed now"
            )
        else:
            screen.say("Removed thread ", (self.id, "name"), ".")
        screen.suggest("Its content is kept until: ", "gc", "--removed", "--apply")


def rm(
    thread: ThreadId,
    /,
    *,
    timeline: Annotated[
        str | None, Parameter(metavar="NAME", completer=in_store, help="Drop this timeline, and nothing else")
    ] = None,
    yes: Annotated[bool, Parameter(negative=(), show_default=False, help="Do not ask first")] = False,
    force: Annotated[
        bool,
        Parameter(
            negative=(), show_default=False, help="Remove it even if calls are not settled or runs wait"
        ),
    ] = False,
    everywhere: Everywhere = EVERYWHERE,
) -> Removed:
    """Remove a thread with all its timelines, or drop one timeline

    A thread cannot be opened again, and its ledger goes with it. Its id can be used again, for another
    thread. A thread with a run that is queued, under way, interrupted or waiting, or with calls
    that are not settled, is kept. On a terminal you are asked first.

    With --timeline only that one is dropped: it takes no more writes, its name stays in use and its calls stay in
    the ledger. Until `gc --removed` takes what no other timeline needs, it can be read, forked and promoted.
    """
    with writing(everywhere) as store:
        found = store.thread(thread)
        if timeline is not None:
            found.drop(timeline, author=os_user())
            return Removed(id=thread, timeline=timeline)
        if not (force or yes):
            check_removable(found._space)  # pyright: ignore[reportPrivateUsage]
        if not (yes or everywhere.json or is_agreed(f"Remove thread {inline(thread)} for good")):
            raise Refused(
                f"thread '{thread}' is still there, as you did not say yes",
                code="not_confirmed",
                thread=thread,
            )
        found.rm(force=force)
        return Removed(id=thread, timeline=None)
