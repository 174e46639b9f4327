"""`perdure chat`."""

from __future__ import annotations

import sys
import warnings
from contextlib import redirect_stdout
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.answer import Answer, HeadShape
from perdure.cli.coding import SwitchCode
from perdure.cli.models.listed import known_backend
from perdure.cli.options import EVERYWHERE, Everywhere, Timeline
from perdure.cli.screen import Screen, console
from perdure.cli.talking.partner import partner
from perdure.cli.talking.talk import Talk
from perdure.cli.usage import to_be_named
from perdure.cli.wording import count
from perdure.model.head import MAIN
from perdure.threads.opening import open as open_store
from perdure.threads.thread import Thread

__all__ = ["Talked", "chat"]


class Talked(Answer, frozen=True, kw_only=True):
    """Where a talk was left."""

    thread: str
    agent: str
    turns: int
    head: HeadShape
    code: int  # the exit code: of the first thing that failed, where nobody was at the terminal to see it

    @property
    def exit_code(self) -> int:
        """0 at a terminal, whatever happened there; else that of the first thing that failed."""
        return self.code

    def show(self, screen: Screen) -> None:
        """Say where it is kept."""
        screen.gap()
        screen.suggest("All of it is kept: ", "threads", "log", self.thread)


def chat(
    agent: Annotated[str, Parameter(name="NAME", help="The agent's name")],
    /,
    *,
    thread: Annotated[
        str | None,
        Parameter(metavar="ID", help="The thread; NAME-chat if left out. It is begun if it is not there"),
    ] = None,
    to: Annotated[
        str | None,
        Parameter(metavar="BACKEND", help="The backend of a new thread, such as anthropic:claude-sonnet-5-5"),
    ] = None,
    owner: Annotated[
        str | None, Parameter(metavar="NAME", help="Whose thread it is: a user, a customer")
    ] = None,
    code: SwitchCode = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Talked:
    """Talk to an agent at the terminal

    Words come as they are written, tool calls are shown, and what needs an approval is asked. /help lists what else
    can be said: /switch, /fork, /undo, /context, /state, /log. Everything is kept, and a talk that was cut off goes on.
    With --json the talk is on the error stream, and the output says where it was left. Where the words come from a
    pipe, a run or a command that fails is told on the error stream, and the talk exits with the first one's code.
    """
    screen = Screen(console(stderr=everywhere.json), store=to_be_named(everywhere.store))
    backend = None if to is None else known_backend(to)
    warnings.simplefilter("ignore", UserWarning)  # they are for whoever writes the code, not for who talks
    with open_store(everywhere.store) as store:
        declared = partner(store, agent, code=code, backend=backend)
        found = store.thread(thread or f"{agent}-chat", agent=declared, owner=owner)
        placed = found if timeline == MAIN else found.on(timeline)
        _greet(screen, placed)
        with redirect_stdout(sys.stderr if everywhere.json else sys.stdout):
            talk = Talk(screen, placed, store=everywhere.store, code=code)
            left = talk.go()
        failed = 0 if sys.stdin.isatty() else talk.code
        head = HeadShape.of(left.head)
        return Talked(thread=left.id, agent=left.agent, turns=_turns(left), head=head, code=failed)


def _greet(screen: Screen, thread: Thread) -> None:
    turns = _turns(thread)
    begun = f"{count(turns, 'turn')} so far" if turns else "a new thread"
    screen.say(
        (thread.agent, "assistant"),
        (f" on thread {thread.id}, {begun}. /help says what else there is; Ctrl-D leaves.", "quiet"),
    )


def _turns(thread: Thread) -> int:
    return next((entry.turn for entry in thread.log(limit=1)), 0)
