"""`perdure chat`.

Whom one talks to: an agent from code, from a file that is kept, or simply a backend under a name.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import redirect_stdout
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.chat.session import ChatSession
from perdure.cli.commands.models.shapes import known_backend
from perdure.cli.input.suggestions import agent_names
from perdure.cli.input.user_code import DeclaredNames, SwitchCode, declared_here, found_in, what_to_type
from perdure.cli.options import EVERYWHERE, Everywhere, Timeline
from perdure.cli.output.answer import Answer, HeadShape
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Screen, console
from perdure.cli.usage import to_be_named
from perdure.errors import Invalid, NotFound
from perdure.model.head import MAIN
from perdure.model.names import did_you_mean
from perdure.runtime.agent.agent import Agent
from perdure.store.open_store import open as open_store
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["Talked", "chat", "partner"]


def partner(store: Store, name: str, *, code: str | None, backend: str | None) -> Agent:
    """The agent of that name, on `backend` if one is given.

    The code's own comes first, then the definition that the store keeps, with the code's tools.
    Raises `NotFound` if neither knows it and no backend is given.
    """
    found = found_in(code) if code is not None else DeclaredNames()
    agent = found.agents.get(name) or _kept(store, name, found)
    if agent is None:
        if backend is None:
            raise _nobody(store, name, found)
        return Agent(name, backend=backend, tools=list(found.tools.values()))
    if backend is not None:
        return agent.on(backend)
    if agent.backend is None:
        raise Invalid(f"agent '{name}' has no backend; nothing was begun. Give one with --to.")
    return agent


def _kept(store: Store, name: str, found: DeclaredNames) -> Agent | None:
    kept = store.definitions.find(name)
    if kept is None:
        return None
    missing = [each for each in kept.definition.tools if each not in found.tools]
    if missing:
        raise Invalid(
            f"agent '{name}' needs the tool {', '.join(missing)}, and no code was named that has it; nothing was begun. "
            f"{_close_tools(missing, found)}Name the module that declares it: `perdure chat {name} --code MODULE`, "
            "which is app for app.py."
        )
    return kept.agent(found.tools.values())


def _nobody(store: Store, name: str, found: DeclaredNames) -> NotFound:
    """The error for an agent that neither code nor a definition knows."""
    if name not in found.agents and name in store.agents():
        return NotFound(
            f"agent '{name}' is declared in code, which was not named; nothing was begun. {what_to_type(name)} To talk "
            f"to a model under that name, without its tools: `perdure chat {name} --to PROVIDER:MODEL`."
        )
    known = [*found.agents, *agent_names(store), *(each.agent for each in declared_here())]
    hint = did_you_mean(name, known) if name not in known else f"{what_to_type(name)} "
    return NotFound(
        f"there is no agent '{name}' to talk to; nothing was begun. {hint}To talk to a model under that name: "
        f"`perdure chat {name} --to PROVIDER:MODEL`. To keep an agent as a file: `perdure agents apply -f FILE`."
    )


def _close_tools(missing: list[str], found: DeclaredNames) -> str:
    hints = [did_you_mean(each, found.tools) for each in missing] if found.tools else []
    return "".join(hints)


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
            talk = ChatSession(screen, placed, store=everywhere.store, code=code)
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
