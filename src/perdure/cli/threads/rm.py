"""`perdure threads rm`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.answer import Answer
from perdure.cli.options import EVERYWHERE, Everywhere, ThreadId
from perdure.cli.safe import inline
from perdure.cli.screen import Screen, console
from perdure.cli.stores import writing
from perdure.cli.terminal import Terminal
from perdure.errors import Refused

__all__ = ["Removed", "rm"]


class Removed(Answer, frozen=True, kw_only=True):
    """A thread that is not there any more."""

    id: str

    def show(self, screen: Screen) -> None:
        """Print one sentence, and what it leaves behind."""
        screen.say("Removed thread ", (self.id, "name"), ".")
        screen.suggest("Its content is kept until: ", "gc", "--removed", "--apply")


def rm(
    thread: ThreadId,
    /,
    *,
    yes: Annotated[bool, Parameter(negative=(), show_default=False, help="Do not ask first")] = False,
    force: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Give up calls that are not settled")
    ] = False,
    everywhere: Everywhere = EVERYWHERE,
) -> Removed:
    """Remove a thread, with all its timelines

    It cannot be opened again, and its ledger goes with it. Its id can be begun anew, as another
    thread. A thread with a run on it, or with calls that are not settled, is kept. On a terminal
    you are asked first.
    """
    with writing(everywhere) as store:
        found = store.thread(thread)
        if not (yes or everywhere.json or _is_agreed(thread)):
            raise Refused(f"thread '{thread}' is still there, as you did not say yes")
        found.rm(force=force)
        return Removed(id=thread)


def _is_agreed(thread: str) -> bool:
    """Whether a person agrees; where nobody can be asked, the command itself is the answer."""
    terminal = Terminal(Screen(console()))
    if not terminal.can_ask:
        return True
    return terminal.ask_word(f"Remove thread {inline(thread)} for good, yes or no? ", ("yes", "no")) == "yes"
