"""Reads what a person types at the terminal, and asks questions that cannot be answered by accident.

A question is asked only where a person sees it: the input and the screen are both a terminal.  Before
it is asked, everything that was typed or pasted earlier is discarded, until the keyboard is quiet.
Only a word of the choices that was typed after the prompt is an answer: a paste never is, nor are several
lines that came at once.  The reader takes bytes from the terminal itself, so that nothing that
Python, the C library or readline has buffered can answer either.

Where the input is no terminal, each line is a message, and no question is asked.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
import termios
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from rich.cells import cell_len

from perdure.cli.output.screen import Screen, console

__all__ = ["Terminal", "TypedEntry", "is_agreed"]

_QUIET_SECONDS = 0.25  # without a key, before a question is asked
_BURST_SECONDS = 0.05  # between the lines of one paste

_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_END_OF_INPUT = "\x04"  # Ctrl-D
_KEY = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1bO.|\x1b[^\[O]|[^\x1b]", re.DOTALL)
_UNPRINTED = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b.?|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class TypedEntry(NamedTuple):
    """What came up to Enter."""

    text: str
    is_typed: bool  # False: some of it was pasted, or several lines came at once


class Terminal:
    """The person at the terminal, or the pipe in their place."""

    def __init__(self, screen: Screen, completions: Callable[[str], Sequence[str]] | None = None) -> None:
        """Read the process's standard input, and write prompts to that screen's stream.

        `completions` returns, for what the person has typed of a message, the words that can stand at its end; they
        are offered on Tab.
        """
        self._screen, self._out = screen, screen.stream
        self.is_interactive = sys.stdin.isatty()
        self.can_ask = self.is_interactive and self._out.isatty()
        self._fd = sys.stdin.fileno() if self.is_interactive else -1
        self._has_ended = False
        is_output = sys.stdout is sys.__stdout__ is self._out  # else `input` would not use readline
        self._readline = _readline() if self.can_ask and is_output else None
        if self._readline is not None and completions is not None:
            _complete_on_tab(self._readline, completions)

    def read_message(self, prompt: str) -> str | None:
        """Read the next message; None: nothing more comes.  Lines that arrive together are one message."""
        if not self.is_interactive:
            line = sys.stdin.readline()
            return line.rstrip("\r\n") if line else None
        text = None if self._has_ended else self._edited(prompt)
        while text is not None and (burst := self._drained(_BURST_SECONDS)):
            more, ended, _ = burst.partition(_END_OF_INPUT)
            self._has_ended = bool(ended)
            *lines, draft = _plain(more).split("\n")
            for line in lines:
                self._screen.say(line)
            text = "\n".join((text, *lines))
            if draft and not ended:
                text = f"{text}\n{self._edited('', draft) or ''}"
        return text

    def ask_word(
        self,
        prompt: str,
        words: Sequence[str],
        *,
        short: Mapping[str, str] = MappingProxyType({}),
        takes_commands: bool = False,
    ) -> str | None:
        """Ask until the person types one of `words`; None: they leave instead, with Ctrl-C or Ctrl-D.

        `short` has other spellings of the words, such as y.  With `takes_commands` a typed line that begins with a
        slash is an answer too.
        """
        while True:
            entry = self.ask_text(prompt)
            if entry is None:
                return None
            said = entry.text.strip()
            word = short.get(said.lower(), said.lower())
            if entry.is_typed and word in words:
                return word
            if entry.is_typed and takes_commands and said.startswith("/"):
                return said
            fault = f"'{said}' is none of these words." if entry.is_typed else "Pasted text decides nothing."
            self._screen.say((f"{fault} Type one of them.", "warn"))

    def ask_text(self, prompt: str) -> TypedEntry | None:
        """Ask for some text, which may be pasted; None: the person leaves instead."""
        assert self.can_ask, "a question is asked only where a person sees it"
        if self._drained(_QUIET_SECONDS):
            self._screen.say(("What was typed before this question was discarded.", "quiet"))
        try:
            return self._read(prompt)
        except KeyboardInterrupt:
            self._show("\n")
            return None

    def _edited(self, prompt: str, draft: str = "") -> str | None:
        """Read one line with the keys of readline where it is there; None: nothing more comes."""
        if self._readline is None:
            entry = self._read(prompt, draft)
            return None if entry is None else entry.text
        readline = self._readline
        readline.set_startup_hook(lambda: readline.insert_text(draft))
        try:
            return input(prompt)
        except EOFError:
            return None
        finally:
            readline.set_startup_hook(None)

    def _read(self, prompt: str, draft: str = "") -> TypedEntry | None:
        """Read up to Enter from the terminal itself; None: nothing more comes."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        line = _TypedLine(self._show, draft)
        with self._unbuffered():
            self._show(f"{_PASTE_ON if self.can_ask else ''}{prompt}{draft}")
            try:
                while not line.is_done:
                    read = os.read(self._fd, 4096)
                    line.take(decoder.decode(read) if read else _END_OF_INPUT)
            finally:
                self._show(f"{_PASTE_OFF if self.can_ask else ''}\n")
        if line.has_ended:
            return None
        rest = _plain(line.rest + self._drained(_BURST_SECONDS)).strip("\n")
        return (
            TypedEntry(f"{line.text}\n{rest}", is_typed=False)
            if rest
            else TypedEntry(line.text, not line.is_pasted)
        )

    def _drained(self, quiet_seconds: float) -> str:
        """Read all input that waits, until none comes for that time."""
        found = bytearray()
        with self._unbuffered():
            while select.select([self._fd], [], [], quiet_seconds)[0]:
                read = os.read(self._fd, 65_536)
                if not read:
                    break
                found += read
        return found.decode("utf-8", "replace")

    @contextmanager
    def _unbuffered(self) -> Generator[None]:
        """Let every key be read at once and unseen, part of a line too; Ctrl-C still interrupts."""
        before = termios.tcgetattr(self._fd)
        mode = termios.tcgetattr(self._fd)
        mode[3] &= ~(termios.ICANON | termios.ECHO)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._fd, termios.TCSANOW, mode)
        try:
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSANOW, before)

    def _show(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


class _TypedLine:
    """One line as it is typed, key by key."""

    def __init__(self, show: Callable[[str], None], draft: str) -> None:
        self._show = show
        self._unread: str = ""  # the beginning of a key that is still on its way
        self._in_paste = False
        self.text = draft
        self.rest: str = ""  # what came after Enter
        self.is_done = self.is_pasted = self.has_ended = False

    def take(self, text: str) -> None:
        """Take what came next."""
        at, text = 0, self._unread + text
        while not self.is_done and (key := _KEY.match(text, at)) is not None:
            at = key.end()
            self._press(key[0])
        self._unread, self.rest = text[at:], text[at:]

    def _press(self, key: str) -> None:
        match key:
            case "\x1b[200~" | "\x1b[201~":
                self._in_paste, self.is_pasted = key == _PASTE_BEGINS, True
            case "\r" | "\n" if not self._in_paste:
                self.is_done = True
            case "\x04" if not self.text and not self._in_paste:
                self.is_done = self.has_ended = True
            case "\x7f" | "\x08" if self.text:
                self._erase(1)
            case "\x15":
                self._erase(len(self.text))
            case _ if plain := _plain(key):
                self.text += plain
                self._show(plain)
            case _:
                pass  # a key that moves the cursor, or is meant for another program

    def _erase(self, count: int) -> None:
        width = cell_len(self.text[len(self.text) - count :].rpartition("\n")[2])
        self.text = self.text[: len(self.text) - count]
        self._show("\b \b" * width)


def _plain(text: str) -> str:
    """Return `text` with line ends as newlines, and without control sequences of a terminal."""
    return _UNPRINTED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def is_agreed(act: str) -> bool:
    """True if the person types the word yes; n is short for no.  Without a terminal the command itself is the answer."""
    terminal = Terminal(Screen(console()))
    if not terminal.can_ask:
        return True
    return terminal.ask_word(f"{act}, yes or no? ", ("yes", "no"), short={"n": "no"}) == "yes"


def _readline() -> Any:
    """Return the module readline, set up for whole pastes if it can do that; None: there is none."""
    try:
        readline = import_module("readline")
    except ImportError:
        return None
    if "libedit" not in (readline.__doc__ or ""):
        readline.parse_and_bind("set enable-bracketed-paste on")
    return readline


def _complete_on_tab(readline: Any, completions: Callable[[str], Sequence[str]]) -> None:
    """Let Tab complete the last word of a message."""

    def offered(word: str, number: int) -> str | None:
        typed = readline.get_line_buffer()[: readline.get_endidx()]
        words = [each for each in completions(typed) if each.startswith(word)]
        return f"{words[number]} " if number < len(words) else None

    readline.set_completer_delims(" \t\n")
    readline.set_completer(offered)
    readline.parse_and_bind(
        "bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete"
    )
