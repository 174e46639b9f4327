"""`perdure chat`: a conversation with an agent at the terminal.

Each line is a run, or a command that begins with a slash: such a command is one of the shell in short, as
/switch anthropic:claude-sonnet-5-5 is perdure threads switch THREAD --to anthropic:claude-sonnet-5-5.

A call that waits for an approval is asked about.  A decision is a word or its letter, typed after the question was shown.
New arguments and results may be pasted: they are shown, and count once the person has typed the word that confirms
them.
"""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Annotated, NamedTuple, cast

from cyclopts import Parameter

from perdure.cli.commands.approvals.show import diff_of, until
from perdure.cli.commands.calls.show import show_json
from perdure.cli.commands.chat.output import paint
from perdure.cli.commands.models.shapes import known_backend, known_models
from perdure.cli.commands.switch_report import report_shape, show_switch
from perdure.cli.completion import in_store
from perdure.cli.errors import FAILED, USAGE, code_of, report
from perdure.cli.hints import Subject, command, explain
from perdure.cli.input.json_input import with_argument
from perdure.cli.input.suggestions import agent_names
from perdure.cli.input.terminal import Terminal
from perdure.cli.input.user_code import DeclaredNames, SwitchCode, declared_here, found_in, what_to_type
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, Everywhere, NewOwner, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Screen, console
from perdure.cli.run import run
from perdure.cli.usage import to_be_named
from perdure.engines.registry import file_of
from perdure.errors import Invalid, NotFound, PerdureError, RunFailed
from perdure.ledger.json_schema import check_arguments
from perdure.ledger.trace import Traced
from perdure.model.canonical import Json
from perdure.model.head import MAIN
from perdure.model.names import did_you_mean, near
from perdure.model.ticket import Ticket, Verdict
from perdure.runtime.agent.agent import Agent
from perdure.runtime.events import Happening
from perdure.runtime.session.result import Result
from perdure.shapes.text import in_json, stamp
from perdure.shapes.threads import HeadShape
from perdure.store.open_store import open as open_store
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = [
    "Talked",
    "chat",
    "partner",
    "ask_decision",
    "show_question",
    "show_waiting",
    "SLASHES",
    "Slash",
    "read",
    "ChatSession",
]

_VERDICTS: dict[str, Verdict] = {"approve": "approve", "deny": "deny", "edit": "edit", "answer": "answer"}
_LATER = "later"
_CHOICES = "approve (y), deny (n), edit (e), answer or later (l)? "
# Two of the words begin with a, so a alone means neither of them.
_LETTERS = {
    "y": "approve", "yes": "approve", "n": "deny", "no": "deny", "d": "deny", "e": "edit", "l": _LATER,
}  # fmt: skip


def show_question(screen: Screen, thread: Thread, ticket: Ticket) -> Traced:
    """Show what a call waits for: the question, tool, effect, arguments, until when, and which call and run it is."""
    traced = thread.trace(ticket.id, history=False)
    screen.gap()
    screen.wrap(("? ", "warn"), ticket.message or f"May {ticket.tool} run?")
    expires_at = None if ticket.expires_at is None else stamp(ticket.expires_at)
    limit = until(expires_at, ticket.on_timeout)
    screen.say("  ", (ticket.tool, "tool"), (f"  {traced.record.effect}, waits until {limit}", "quiet"))
    show_json(screen, in_json(traced.asked))
    run = f" of run {screen.short_id(ticket.run)}" if ticket.run else ""
    screen.say((f"  call {screen.short_id(ticket.call)}{run}", "quiet"))
    return traced


def ask_decision(screen: Screen, terminal: Terminal, thread: Thread, ticket: Ticket) -> str | None:
    """Ask the person one question and record the decision; None: it is decided.

    Otherwise what the person typed instead: a command about the conversation, or nothing, and it waits.
    """
    traced = show_question(screen, thread, ticket)
    while True:
        said = (
            terminal.ask_word(_CHOICES, (*_VERDICTS, _LATER), short=_LETTERS, takes_commands=True) or _LATER
        )
        if said not in _VERDICTS:
            show_waiting(screen, thread, ticket)
            return said if said.startswith("/") else ""
        try:
            value = None if said in ("approve", "deny") else _value(screen, terminal, said, traced, ticket)
            thread.decide(ticket.id, _VERDICTS[said], value=value, by=os_user())
        except (PerdureError, ValueError) as error:
            screen.say((str(error), "warn"))
            continue
        return None


def show_waiting(screen: Screen, thread: Thread, ticket: Ticket) -> None:
    """Say that the call waits, and how it can be decided."""
    screen.suggest(
        "It waits. Decide it any time: ",
        "approvals",
        "show",
        thread.id,
        ticket.id if ticket.follows else ticket.call,
    )


def _value(screen: Screen, terminal: Terminal, verdict: str, traced: Traced, ticket: Ticket) -> object:
    """Ask for what goes with an edit or an answer, show it, and have it confirmed.

    Raises `ValueError` if it is not confirmed, and `Invalid` before the question if the tool does not take it.
    """
    asked = in_json(traced.asked)
    prompt = "new arguments, NAME=VALUE or all as JSON: " if verdict == "edit" else "the result, as JSON: "
    entry = terminal.ask_text(prompt)
    text = entry.text.strip() if entry else ""
    try:
        value = with_argument(asked, text) if verdict == "edit" else None
        value = json.loads(text) if value is None else value
    except ValueError as error:
        raise ValueError(f"this is not JSON: {error}; nothing was decided.") from error
    if verdict == "edit" and ticket.arguments_schema is not None:
        check_arguments(ticket.arguments_schema, cast("Json", value))
    if verdict == "edit":
        for line in diff_of(asked, value):
            screen.cut("  ", line)
    else:
        show_json(screen, value)
    if (
        terminal.ask_word(
            f"confirm or {_LATER}? ",
            ("confirm", _LATER),
            short={"y": "confirm", "yes": "confirm", "l": _LATER},
        )
        != "confirm"
    ):
        raise ValueError("it was not confirmed; nothing was decided.")
    return value


class Slash(NamedTuple):
    """A slash command: its summary, and the command of the shell that it runs."""

    line: str
    words: Callable[[str, Sequence[str]], list[str]]  # from the thread's id and what follows
    takes: str = ""
    takes_code: bool = False  # whether it looks at the agent's tools


def _switch(thread: str, rest: Sequence[str]) -> list[str]:
    backend, *more = rest or [""]
    return ["threads", "switch", thread, "--to", backend, *more]


def _state(thread: str, rest: Sequence[str]) -> list[str]:
    exact = bool(rest) and not rest[0].endswith("/") and not rest[0].startswith("-")
    return ["state", "get" if exact else "ls", thread, *rest]


def _named(noun: str, verb: str, *before: str) -> Callable[[str, Sequence[str]], list[str]]:
    return lambda thread, rest: [noun, verb, thread, *before, *rest]


def _back(thread: str, rest: Sequence[str]) -> list[str]:
    return ["threads", "undo", thread, *(("--turns", rest[0]) if rest else ()), *rest[1:]]


def _log(thread: str, rest: Sequence[str]) -> list[str]:
    return ["threads", "log", thread, *(rest or ("--limit", "5"))]


def _context(thread: str, rest: Sequence[str]) -> list[str]:
    aimed = bool(rest) and not rest[0].startswith("-")
    return ["threads", "context", thread, *(("--to", *rest) if aimed else rest)]


SLASHES: Mapping[str, Slash] = {
    "switch": Slash(
        "Switch to another backend; --dry-run only checks", _switch, "BACKEND [--dry-run]", takes_code=True
    ),
    "fork": Slash("Fork a timeline from here", _named("threads", "fork"), "NAME"),
    "undo": Slash("Undo the last turn, or several", _back, "[N]"),
    "redo": Slash("Reverse the last undo", _named("threads", "redo")),
    "context": Slash(
        "Show the context of the model, and what is left out", _context, "[BACKEND]", takes_code=True
    ),
    "state": Slash("Show the state, or one path of it", _state, "[PATH]"),
    "log": Slash("Show the last turns", _log),
    "calls": Slash("Show the tool calls", _named("calls", "ls")),
    "approvals": Slash("Show the calls that wait for a decision", _named("approvals", "ls")),
}


def read(said: str) -> tuple[str, list[str]]:
    """Return the name of a slash command and the words after it; raises `ValueError` for quotes without an end."""
    name, *rest = shlex.split(said.removeprefix("/")) or [""]
    return name.lower(), rest


_RUNS_TAKEN_UP = 20  # the newest runs of a thread that a chat looks at when it begins
_OUT = ("quit", "exit", "q")
_NAMES = (*SLASHES, "on", "help", "quit")


class ChatSession:
    """One conversation at the terminal."""

    def __init__(self, screen: Screen, thread: Thread, *, store: str, code: str | None = None) -> None:
        """Chat on that thread; commands of the shell get `store` and `code`."""
        self._screen, self._thread, self._store, self._code = screen, thread, store, code
        self._terminal = Terminal(screen, self._completions)
        self._said: list[str] = []  # commands that were given in the place of a decision
        self.code = 0  # of the first thing that failed

    def go(self) -> Thread:
        """Chat until the person leaves; return the timeline that the chat was on then."""
        self._take_up()
        while (said := self._next()) is not None:
            words = said.strip()
            if words.startswith("/") and "\n" not in words:
                if self._command(words):
                    break
            elif words:
                self._run(self._thread.stream(words))
        return self._thread

    def _next(self) -> str | None:
        """Return the next line: one that was typed in place of a decision comes first."""
        return self._said.pop(0) if self._said else self._terminal.read_message(self._prompt)

    def _completions(self, typed: str) -> list[str]:
        """Return the words that can stand at the end of a line: a command, a timeline, a backend."""
        *before, _ = typed.split(" ")
        if not before:
            return [f"/{name}" for name in _NAMES] if typed.startswith("/") else []
        match before:
            case ["/on"]:
                return [each.head.timeline for each in self._thread.timelines()]
            case ["/switch" | "/context"]:
                return [card.backend for card in known_models().cards() if not card.deprecated]
            case _:
                return []

    @property
    def _named(self) -> str | None:
        """Return the store as commands have to name it; None: they find it themselves."""
        return to_be_named(self._store)

    @property
    def _prompt(self) -> str:
        line = self._thread.timeline
        return f"\n{'' if line == 'main' else line + ' '}› "

    def _take_up(self) -> None:
        """Resume what an earlier chat left: a run that was interrupted, calls that wait."""
        try:
            last = self._thread.runs(limit=_RUNS_TAKEN_UP)
            decided = [each.id for each in last if self._thread.decided(each.id)]
            interrupted = [each.id for each in last[-1:] if self._thread.interrupted(each.id)]
            for id in dict.fromkeys((*decided, *interrupted)):
                self._screen.say(("Resuming a run that was left here.", "quiet"))
                self._paint(self._thread.resume_stream(id))
            self._decide()
        except PerdureError as error:
            self._fail(error)

    def _run(self, events: Iterator[Happening]) -> None:
        """Show a run, and ask for what it waits for."""
        result = self._paint(events)
        if result is not None and result.status == "waiting":
            self._decide()

    def _paint(self, events: Iterator[Happening]) -> Result | None:
        """Print the events of a run and return its result; None: it failed or was stopped, which is printed."""
        try:
            result = paint(self._screen, events)
        except KeyboardInterrupt:
            self._stop()
            return None
        except PerdureError as error:
            self._fail(error)
            return None
        if result.status not in ("succeeded", "waiting"):
            self.code = self.code or FAILED
            self._screen.wrap((f"The run {result.status}: {result.why}", "warn"))
        return result

    def _decide(self) -> None:
        """Ask for every missing decision, then resume; without a terminal, print what waits."""
        while tickets := self._thread.approvals():
            if not self._terminal.can_ask:
                for ticket in tickets:
                    show_question(self._screen, self._thread, ticket)
                    show_waiting(self._screen, self._thread, ticket)
                return
            said = [ask_decision(self._screen, self._terminal, self._thread, ticket) for ticket in tickets]
            left = {ticket.run for ticket, each in zip(tickets, said, strict=True) if each is not None}
            # Without a run a program asked, and goes on by itself.
            for id in dict.fromkeys(each.run for each in tickets if each.run and each.run not in left):
                self._paint(self._thread.resume_stream(id))
            if left or not any(ticket.run for ticket in tickets):
                self._said = [each for each in said if each]
                return

    def _stop(self) -> None:
        """Cancel the run, because the person pressed Ctrl-C, and stay in the chat."""
        self._screen.gap()
        try:
            self._thread.cancel(why="stopped at the terminal", by=os_user())
            self._screen.say(("Stopped. What was done stays done.", "warn"))
        except PerdureError as error:
            self._fail(error)

    def _command(self, said: str) -> bool:
        """Do what a line with a slash says; whether it says to leave."""
        try:
            name, rest = read(said)
        except ValueError as error:
            self.code = self.code or USAGE
            self._screen.say((f"{error}; nothing was done.", "warn"))
            return False
        if name in _OUT:
            return True
        if name in SLASHES:
            self._shell(SLASHES[name].words(self._thread.id, rest), name, rest)
        elif name == "on" and rest:
            self._move(rest[0])
        else:
            self._help(name)
        return False

    def _shell(self, words: list[str], name: str, rest: Sequence[str]) -> None:
        code = ("--code", self._code) if self._code is not None and SLASHES[name].takes_code else ()
        ended = run([*words, *code, "--timeline", self._thread.timeline, "--store", self._store])
        self.code = self.code or ended
        if name == "fork" and ended == 0 and rest:
            self._move(rest[0])

    def _move(self, timeline: str) -> None:
        try:
            self._thread = self._thread.on(timeline)
        except PerdureError as error:
            self._fail(error)

    def _help(self, name: str) -> None:
        if name not in ("", "help", "?", "on"):
            self.code = self.code or USAGE
            close = near(name, _NAMES)
            hint = f" Did you mean /{close[0]}?" if close else ""
            self._screen.wrap((f"There is no /{name}; nothing was done.{hint}", "warn"))
        known = [(f"/{each} {slash.takes}".rstrip(), slash.line) for each, slash in SLASHES.items()]
        known += [("/on TIMELINE", "Change to another timeline"), ("/quit", "Leave; everything is stored")]
        longest = max(len(each) for each, _ in known)
        for each, line in known:
            self._screen.wrap(line, indent=longest + 2, label=(each, "quiet"))

    def _fail(self, error: PerdureError) -> None:
        """Say what went wrong and what to do now: on the screen at a terminal, else where errors go."""
        self.code = self.code or code_of(error)
        about = Subject(thread=self._thread.id, store=self._named)
        message, advice = explain(error, about)
        hint = command("runs show THREAD", about) if isinstance(error, RunFailed) else None
        if not sys.stdin.isatty():
            report(type(error).__name__, message, advice=advice, hint=hint, json=False)
            return
        self._screen.wrap((f"{type(error).__name__}: ", "bad"), f"{message} {advice}".rstrip())
        if hint:
            self._screen.say(("Look at it: ", "quiet"), hint)


def partner(store: Store, name: str, *, code: str | None, backend: str | None) -> Agent:
    """Return the agent of that name, on `backend` if one is given.

    The code's own comes first, then the definition that the store keeps, with the code's tools.
    Raises `NotFound` if neither knows it and no backend is given.
    """
    found = found_in(code) if code is not None else DeclaredNames()
    agent = found.agents.get(name) or _kept(store, name, found)
    if agent is None:
        if backend is None:
            raise _no_partner(store, name, found)
        return Agent(name, backend=backend, tools=list(found.tools.values()))
    if backend is not None:
        return agent.on(backend)
    if agent.backend is None:
        raise Invalid(
            f"agent '{name}' has no backend; nothing was begun.",
            code="backend_missing",
            advice="Give one with --to.",
            agent=name,
        )
    return agent


def _kept(store: Store, name: str, found: DeclaredNames) -> Agent | None:
    kept = store.definitions.find(name)
    if kept is None:
        return None
    missing = [each for each in kept.definition.tools if each not in found.tools]
    if missing:
        raise Invalid(
            f"agent '{name}' needs the tool {', '.join(missing)}, and no code was named that has it; nothing was "
            "begun.",
            code="tool_not_given",
            advice=f"{_close_tools(missing, found)}Name the module that declares it: `perdure chat {name} --code "
            "MODULE`, which is app for app.py.",
            agent=name,
            tools=tuple(missing),
        )
    return kept.agent(found.tools.values())


def _only_agent(code: str | None) -> str:
    """Return the name of the one agent of the code; raises `Invalid`, naming those that there are."""
    names = list(found_in(code).agents) if code is not None else []
    if len(names) == 1:
        return names[0]
    raise Invalid(
        "'perdure chat' needs NAME; nothing was begun.",
        code="words_missing",
        advice=f"The agents of the code are {', '.join(names)}."
        if names
        else "`perdure agents ls` lists agents.",
        words=("NAME",),
    )


def _check_there(store: str, name: str, *, code: str | None, backend: str | None) -> None:
    """Raise `NotFound` for an agent that nothing declares before a store is made for it."""
    found = found_in(code) if code is not None else DeclaredNames()
    file = file_of(store)
    if backend is None and name not in found.agents and file is not None and not file.exists():
        raise _no_partner(None, name, found)


def _no_partner(store: Store | None, name: str, found: DeclaredNames) -> NotFound:
    """Return the error for an agent that neither the code nor the store defines; None: there is no store."""
    if store is not None and name not in found.agents and name in store.agents():
        return NotFound(
            f"agent '{name}' is declared in code, and none was named that has it; nothing was begun.",
            code="code_missing",
            advice=f"{what_to_type(name)} To talk to a model under that name, without its tools: `perdure chat {name} "
            "--to PROVIDER:MODEL`.",
            agent=name,
        )
    kept: Iterable[str] = () if store is None else agent_names(store)
    known = [*found.agents, *kept, *(each.agent for each in declared_here())]
    hint = did_you_mean(name, known) if name not in known else f"{what_to_type(name)} "
    return NotFound(
        f"there is no agent '{name}' to talk to; nothing was begun. {hint}".rstrip(),
        code="agent_not_found",
        advice=f"To talk to a model under that name: `perdure chat {name} --to PROVIDER:MODEL`. To keep an agent as "
        "a file: `perdure agents apply -f FILE`.",
        agent=name,
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
    code: int  # the exit code: of the first thing that failed, if the input is no terminal

    @property
    def exit_code(self) -> int:
        """Return 0 at a terminal; else the code of the first failure."""
        return self.code

    def show(self, screen: Screen) -> None:
        """Print how to read it again."""
        screen.gap()
        screen.suggest("All of it is kept: ", "threads", "log", self.thread)


def chat(
    agent: Annotated[
        str | None,
        Parameter(
            name="NAME",
            completer=in_store,
            help="The agent's name; if left out, the only one that --code has",
            show_default=False,
        ),
    ] = None,
    /,
    *,
    thread: Annotated[
        str | None,
        Parameter(
            metavar="ID",
            completer=in_store,
            help="The thread; NAME-chat if left out. It is begun if it is not there",
        ),
    ] = None,
    to: Annotated[
        str | None,
        Parameter(
            metavar="BACKEND",
            help="The backend, such as anthropic:claude-sonnet-5-5; a thread on another one is switched",
        ),
    ] = None,
    owner: NewOwner = None,
    code: SwitchCode = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Talked:
    """Chat with an agent at the terminal

    Answers appear as the model writes them, tool calls are shown, and calls that need an approval are asked about.
    /help lists the commands: /switch, /fork, /undo, /context, /state, /log; Tab completes them. Everything is stored,
    and an interrupted chat goes on. If the thread is on another backend than --to names, it is switched first, after a
    check; if that is refused, the chat does not begin. With --json the chat is on the error stream, and the output is its last state. If the input is a pipe,
    failures go to the error stream, and the chat exits with the code of the first one.
    """
    screen = Screen(console(stderr=everywhere.json), store=to_be_named(everywhere.store))
    backend = None if to is None else known_backend(to)
    warnings.simplefilter(
        "ignore", UserWarning
    )  # they are for the author of the code, not for the person who chats
    if agent is None:
        agent = _only_agent(code)
    _check_there(everywhere.store, agent, code=code, backend=backend)
    with open_store(everywhere.store) as store:
        declared = partner(store, agent, code=code, backend=backend)
        placed = store.thread(thread or f"{agent}-chat", agent=declared, owner=owner, timeline=timeline)
        _greet(screen, placed)
        if backend is not None and placed.backend != backend:
            _switch_before(screen, placed, backend)
        with redirect_stdout(sys.stderr if everywhere.json else sys.stdout):
            talk = ChatSession(screen, placed, store=everywhere.store, code=code)
            left = talk.go()
        failed = 0 if sys.stdin.isatty() else talk.code
        head = HeadShape.of(left.head)
        return Talked(thread=left.id, agent=left.agent, turns=_turns(left), head=head, code=failed)


def _switch_before(screen: Screen, thread: Thread, backend: str) -> None:
    """Switch a thread that is on another backend, and say what that keeps and loses; raises what a switch raises."""
    show_switch(screen, report_shape(thread.switch(backend, reason="chat --to")))


def _greet(screen: Screen, thread: Thread) -> None:
    turns = _turns(thread)
    begun = f"{count(turns, 'turn')} so far" if turns else "a new thread"
    screen.wrap(
        (thread.agent, "assistant"),
        (f" on thread {thread.id}, {begun}. /help lists commands; Ctrl-D leaves.", "quiet"),
    )


def _turns(thread: Thread) -> int:
    return next((entry.turn for entry in thread.log(limit=1)), 0)
