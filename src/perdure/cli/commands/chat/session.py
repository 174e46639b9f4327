"""Asking the person at the terminal for a decision about a call that waits.

A decision is a whole word, typed after the question was shown.  New arguments and results may be pasted:
they are shown, and count once the person has typed the word that confirms them.

Words that begin with a slash: commands about the conversation, each a command of the shell in short.

/switch anthropic:claude-sonnet-5-5        perdure threads switch THREAD --to anthropic:…

The talk itself: one line after another, each a run, or a command about the conversation.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from perdure.cli.commands.approvals.show import diff_of, until
from perdure.cli.commands.calls.show import show_json
from perdure.cli.commands.chat.output import paint
from perdure.cli.errors import FAILED, USAGE, code_of, report
from perdure.cli.hints import Subject, command, explain
from perdure.cli.input.terminal import Terminal
from perdure.cli.input.users import os_user
from perdure.cli.output.formatting import stamp
from perdure.cli.output.screen import Screen
from perdure.cli.output.shapes import in_json
from perdure.cli.run import run
from perdure.cli.usage import to_be_named
from perdure.errors import PerdureError, RunFailed
from perdure.ledger.trace import Traced
from perdure.model.names import near
from perdure.model.ticket import Ticket, Verdict
from perdure.runtime.events import Happening
from perdure.runtime.session.result import Result
from perdure.store.thread import Thread

__all__ = ["ask_decision", "show_question", "show_waiting", "SLASHES", "Slash", "read", "ChatSession"]


_VERDICTS: dict[str, Verdict] = {"approve": "approve", "deny": "deny", "edit": "edit", "answer": "answer"}
_LATER = "later"
_CHOICES = f"{', '.join(_VERDICTS)} or {_LATER}? "


def show_question(screen: Screen, thread: Thread, ticket: Ticket) -> Traced:
    """Show what a call waits for: the question, tool, effect, arguments, and until when."""
    traced = thread.trace(ticket.id, history=False)
    screen.gap()
    screen.say(("? ", "warn"), ticket.message or f"may {ticket.tool} go on?")
    expires_at = None if ticket.expires_at is None else stamp(ticket.expires_at)
    limit = until(expires_at, ticket.on_timeout)
    screen.say("  ", (ticket.tool, "tool"), (f"  {traced.record.effect}, waits until {limit}", "quiet"))
    show_json(screen, in_json(traced.asked))
    return traced


def ask_decision(screen: Screen, terminal: Terminal, thread: Thread, ticket: Ticket) -> str | None:
    """Put one question to the person and record the decision; None: it is decided.

    Otherwise what the person typed instead: a command about the conversation, or nothing, and it waits.
    """
    traced = show_question(screen, thread, ticket)
    while True:
        said = terminal.ask_word(_CHOICES, (*_VERDICTS, _LATER), takes_commands=True) or _LATER
        if said not in _VERDICTS:
            show_waiting(screen, thread, ticket)
            return said if said.startswith("/") else ""
        try:
            value = None if said in ("approve", "deny") else _value(screen, terminal, said, traced)
            thread.decide(ticket.call, _VERDICTS[said], value=value, by=os_user())
        except (PerdureError, ValueError) as error:
            screen.say((str(error), "warn"))
            continue
        return None


def show_waiting(screen: Screen, thread: Thread, ticket: Ticket) -> None:
    """Say that the call waits, and how it can be decided."""
    screen.suggest("It waits. Decide it any time: ", "approvals", "show", thread.id, ticket.call)


def _value(screen: Screen, terminal: Terminal, verdict: str, traced: Traced) -> object:
    """Ask for what goes with an edit or an answer, show it, and have it confirmed; raises `ValueError` if it is not."""
    entry = terminal.ask_text("new arguments, as JSON: " if verdict == "edit" else "the result, as JSON: ")
    try:
        value: object = json.loads(entry.text if entry else "")
    except ValueError as error:
        raise ValueError(f"this is not JSON: {error}; nothing was decided.") from error
    if verdict == "edit":
        for line in diff_of(in_json(traced.asked), value):
            screen.cut("  ", line)
    else:
        show_json(screen, value)
    if terminal.ask_word(f"confirm or {_LATER}? ", ("confirm", _LATER)) != "confirm":
        raise ValueError("it was not confirmed; nothing was decided.")
    return value


class Slash(NamedTuple):
    """One of them: what it does, and the words of the shell that it stands for."""

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
        "Go on with another backend; --dry-run only checks", _switch, "BACKEND [--dry-run]", takes_code=True
    ),
    "fork": Slash(
        "Try something else on a timeline of its own, from here", _named("threads", "fork"), "NAME"
    ),
    "undo": Slash("Step back over the last turn, or several", _back, "[N]"),
    "redo": Slash("Take back the last undo", _named("threads", "redo")),
    "context": Slash(
        "Show what the model is shown, and what is left out", _context, "[BACKEND]", takes_code=True
    ),
    "state": Slash("Show what is known, or one path of it", _state, "[PATH]"),
    "log": Slash("Show the last turns", _log),
    "calls": Slash("Show the tool calls", _named("calls", "ls")),
    "approvals": Slash("Show what waits for a decision", _named("approvals", "ls")),
}


def read(said: str) -> tuple[str, list[str]]:
    """The name of a slash command and the words after it; raises `ValueError` for quotes without an end."""
    name, *rest = shlex.split(said.removeprefix("/")) or [""]
    return name.lower(), rest


_OUT = ("quit", "exit", "q")


class ChatSession:
    """One conversation at the terminal."""

    def __init__(self, screen: Screen, thread: Thread, *, store: str, code: str | None = None) -> None:
        """Talk on that thread; `store` and `code` are what commands of the shell are given."""
        self._screen, self._thread, self._store, self._code = screen, thread, store, code
        self._terminal = Terminal(screen)
        self._said: list[str] = []  # commands that were given in the place of a decision
        self.code = 0  # of the first thing that failed

    def go(self) -> Thread:
        """Talk until the person leaves; the line that the talk was on then."""
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
        """The next line: one that was said in the place of a decision comes first."""
        return self._said.pop(0) if self._said else self._terminal.read_message(self._prompt)

    @property
    def _named(self) -> str | None:
        """The store as commands have to name it; None: they find it themselves."""
        return to_be_named(self._store)

    @property
    def _prompt(self) -> str:
        line = self._thread.timeline
        return f"\n{'' if line == 'main' else line + ' '}› "

    def _take_up(self) -> None:
        """Finish what an earlier talk left: a run that was cut off, questions that wait."""
        try:
            last = self._thread.runs(limit=1)
            if any(self._thread.interrupted(each.id) or self._thread.decided(each.id) for each in last):
                self._screen.say(("A run was left unfinished here; going on with it.", "quiet"))
                self._run(self._thread.resume_stream())
            elif self._thread.approvals():
                self._decide()
        except PerdureError as error:
            self._fail(error)

    def _run(self, events: Iterator[Happening]) -> None:
        """Show a run, and ask for what it waits for."""
        result = self._paint(events)
        if result is not None and result.status == "waiting":
            self._decide()

    def _paint(self, events: Iterator[Happening]) -> Result | None:
        """Show a run while it goes on; what it came to, None: it failed or was stopped, and the person was told."""
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
            self._screen.say((f"The run {result.status}: {result.why}", "warn"))
        return result

    def _decide(self) -> None:
        """Ask for every decision that is missing, then go on; where nobody can be asked, say what waits."""
        while tickets := self._thread.approvals():
            if not self._terminal.can_ask:
                for ticket in tickets:
                    show_question(self._screen, self._thread, ticket)
                    show_waiting(self._screen, self._thread, ticket)
                return
            said = [ask_decision(self._screen, self._terminal, self._thread, ticket) for ticket in tickets]
            if any(each is not None for each in said):
                self._said = [each for each in said if each]
                return
            if not any(ticket.run for ticket in tickets):  # a program asked, and goes on by itself
                return
            result = self._paint(self._thread.resume_stream())
            if result is None or result.status != "waiting":
                return

    def _stop(self) -> None:
        """The person pressed Ctrl-C: ask the run to stop, and stay."""
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
            close = near(name, (*SLASHES, "on", "quit", "help"))
            hint = f" Did you mean /{close[0]}?" if close else ""
            self._screen.say((f"There is no /{name}; nothing was done.{hint}", "warn"))
        known = [(f"/{each} {slash.takes}".rstrip(), slash.line) for each, slash in SLASHES.items()]
        known += [("/on TIMELINE", "Go on on another timeline"), ("/quit", "Leave; everything is kept")]
        self._screen.facts(known)

    def _fail(self, error: PerdureError) -> None:
        """Say what went wrong and what to do now: on the screen at a terminal, else where errors go."""
        self.code = self.code or code_of(error)
        about = Subject(thread=self._thread.id, store=self._named)
        message, advice = explain(error, about)
        hint = command("runs show THREAD", about) if isinstance(error, RunFailed) else None
        if not sys.stdin.isatty():
            report(type(error).__name__, message, advice=advice, hint=hint, json=False)
            return
        self._screen.say((f"{type(error).__name__}: ", "bad"), f"{message} {advice}".rstrip())
        if hint:
            self._screen.say(("Look at it: ", "quiet"), hint)
