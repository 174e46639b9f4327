"""The talk itself: one line after another, each a run, or a command about the conversation."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from perdure.cli.advice import Subject, command, in_words_of_the_shell
from perdure.cli.failures import FAILED, USAGE, code_of, report
from perdure.cli.running import run
from perdure.cli.screen import Screen
from perdure.cli.talking import slashes
from perdure.cli.talking.asking import ask_decision, show_question, show_waiting
from perdure.cli.talking.painting import paint
from perdure.cli.talking.slashes import SLASHES
from perdure.cli.terminal import Terminal
from perdure.cli.usage import to_be_named
from perdure.cli.users import os_user
from perdure.errors import PerdureError, RunFailed
from perdure.model.nearness import near
from perdure.runtime.ended import Result
from perdure.runtime.happening import Happening
from perdure.threads.thread import Thread

__all__ = ["Talk"]

_OUT = ("quit", "exit", "q")


class Talk:
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
        except (PerdureError, RunFailed) as error:
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
        except (PerdureError, RunFailed) as error:
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
            name, rest = slashes.read(said)
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

    def _fail(self, error: Exception) -> None:
        """Say what went wrong and what to do now: on the screen at a terminal, else where errors go."""
        self.code = self.code or code_of(error)
        about = Subject(thread=self._thread.id, store=self._named)
        told = in_words_of_the_shell(str(error), about)
        hint = command("runs show THREAD", about) if isinstance(error, RunFailed) else None
        if not sys.stdin.isatty():
            report(type(error).__name__, told, hint=hint, json=False)
            return
        self._screen.say((f"{type(error).__name__}: ", "bad"), told)
        if hint:
            self._screen.say(("Look at it: ", "quiet"), hint)
