"""Prints the events of a run at a terminal, words as the model writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rich.cells import cell_len

from perdure.cli.output.display import words_of
from perdure.cli.output.screen import Screen
from perdure.model.event import ConflictCovered
from perdure.model.message import Message, view
from perdure.runtime.events import (
    CallProgress,
    Happened,
    Happening,
    ReasoningDelta,
    RunEnded,
    TextDelta,
    TextSoFar,
)
from perdure.runtime.session.result import Result
from perdure.shapes.text import safe, shortened

__all__ = ["Painter", "paint"]

_LENGTH = 400
_SPACES = re.compile(r"(\s+)")


def paint(screen: Screen, events: Iterable[Happening]) -> Result:
    """Print the events of a run and return its result.  Raises what the run raises."""
    painter = Painter(screen)
    result: Result | None = None
    try:
        for event in events:
            painter.paint(event)
            if isinstance(event, RunEnded):
                result = event.result
    finally:
        painter.close()
    assert result is not None, "a run that raised nothing has come to something"
    return result


class Painter:
    """Shows a run while it goes on.  What was shown as it was written is not shown again when it is kept."""

    def __init__(self, screen: Screen) -> None:
        """Print on that screen."""
        self._screen = screen
        self._writing = ""  # what is being written just now: text, thoughts, nothing
        self._streamed = False  # whether the words of the coming message are on the screen already
        self._style = ""
        self._word = ""  # what was written since the last space; it is not known yet whether it fits the line
        self._space = ""  # before that word
        self._column = 0

    def paint(self, event: Happening) -> None:
        """Show one event."""
        match event:
            case TextDelta(text) | TextSoFar(text):
                self._write("text", text, "")
            case ReasoningDelta(text):
                self._write("thoughts", text, "quiet")
            case CallProgress(tool=tool, state="started"):
                self._end()
                self._screen.say(("  … ", "quiet"), (tool, "tool"), (" is running", "quiet"))
            case Happened():
                self._keep(event)
            case RunEnded():
                self._end()
            case _:
                pass

    def close(self) -> None:
        """End the line that is being written."""
        self._end()

    def _keep(self, event: Happened) -> None:
        if event.message is not None:
            self._end()
            self._say(event.message)
            self._streamed = False
        elif isinstance(event.event, ConflictCovered):
            self._screen.say(("  another writer changed ", "quiet"), (event.event.path, "warn"))

    def _say(self, message: Message) -> None:
        shown = view(message)
        if message.role == "assistant" and message.text and not self._streamed:
            self._screen.say(message.text)
        for call in message.tool_calls:
            self._screen.cut("  → ", (call.name, "tool"), f"({shortened(call.args, _LENGTH)})")
        for result in shown.get("toolResults", ()):
            words = words_of({"toolResults": [result]})
            style = "" if result["status"] == "success" else "warn"
            self._screen.cut("  ", (shortened(words, _LENGTH), style))

    def _write(self, what: str, text: str, style: str) -> None:
        if self._writing != what:
            self._end()
            self._writing = what
        self._streamed = self._streamed or what == "text"
        self._style = style
        words = safe(text)
        self._screen.write(("".join(self._wrapped(words)) if self._screen.is_terminal else words, style))

    def _wrapped(self, text: str) -> Iterator[str]:
        """Yield what can be printed now: whole words, on a new line where they do not fit the old one."""
        for part in _SPACES.split(text):
            if not part or not part.isspace():
                self._word += part
                continue
            yield from self._placed()
            self._space += part
            if "\n" in part:
                yield self._space
                self._space, self._column = "", cell_len(part.rpartition("\n")[2])

    def _placed(self) -> Iterator[str]:
        """Yield the word that has ended, after its space, or on a new line."""
        if self._word:
            length = cell_len(self._space + self._word)
            if self._column and self._column + length > self._screen.width:
                self._space, self._column, length = "\n", 0, cell_len(self._word)
            yield self._space + self._word
            self._column += length
            self._space = self._word = ""

    def _end(self) -> None:
        """Close the line that is being written."""
        if self._writing:
            self._screen.write(("".join(self._placed()), self._style))
            self._screen.gap()
            self._writing = ""
            self._column, self._space = 0, ""
