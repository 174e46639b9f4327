"""The stage: where the story is told, and where each of its promises is put to the proof."""

from __future__ import annotations

from perdure.cli.output.screen import Part, Screen
from perdure.shapes.text import safe_json

__all__ = ["BrokenPromise", "Stage"]

_INDENT = "   "
_LABEL_WIDTH = 11


class BrokenPromise(Exception):
    """A promise that did not hold."""


class Stage:
    """Tells people what happens; silent without a screen.  What is proved is kept either way."""

    def __init__(self, screen: Screen | None) -> None:
        """Progress the story on that screen."""
        self._screen = screen
        self._acts = 0
        self.proved: list[str] = []

    def opens(self, title: str, *words: str) -> None:
        """Say what the story is about."""
        if self._screen:
            self._screen.say((title, "title"))
            self._screen.wrap((" ".join(words), "quiet"))

    def part(self, title: str) -> None:
        """Begin a part, of several steps."""
        if self._screen:
            self._screen.gap()
            self._screen.say((title, "part"))

    def act(self, title: str, *words: str) -> None:
        """Begin the next step."""
        self._acts += 1
        if self._screen:
            self._screen.gap()
            self._screen.say((f"{self._acts:<{len(_INDENT)}}{title}", "title"))
            self._screen.wrap((" ".join(words), "quiet"), indent=len(_INDENT))

    def says(self, role: str, words: str) -> None:
        """Show what a person or a model said."""
        self.tells(role, words, style=role)

    def holds(self, name: str, value: object) -> None:
        """Show a value."""
        self.tells(name, (safe_json(value, indent=None), "name"))

    def tells(self, label: str, *parts: Part, style: str = "quiet") -> None:
        """Show something under a label."""
        if self._screen:
            indent = len(_INDENT) + _LABEL_WIDTH
            self._screen.wrap(*parts, indent=indent, label=(f"{_INDENT}{label}", style))

    def shows(self, *parts: Part) -> None:
        """Show something that is there."""
        if self._screen:
            self._screen.wrap(*parts, indent=len(_INDENT))

    def marks(self, mark: str, *parts: Part, style: str) -> None:
        """Show something behind a mark."""
        if self._screen:
            self._screen.wrap(*parts, indent=len(_INDENT) + 2, label=(f"{_INDENT}{mark}", style))

    def quotes(self, line: str, style: str = "quiet") -> None:
        """Show one line of a document, shortened where it is too long: wrapped it would be another document."""
        if self._screen:
            self._screen.cut(_INDENT, (line, style))

    def prove(self, promise: str, holds: bool) -> None:
        """Say that a promise held; raises `Broken` if it did not."""
        if not holds:
            self.marks("✗", promise, style="bad")
            raise BrokenPromise(f"this did not hold: {promise}.")
        self.proved.append(promise)
        self.marks("✓", promise, style="good")
