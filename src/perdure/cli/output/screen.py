"""The screen: what people see.  All text goes through here, and is made safe on its way.

A sentence is never wrapped, so that a digest at its end can be copied.  Tables fit the
width of the terminal by shortening the columns that may give way; where there is no
terminal nothing is shortened.

Making stored text safe to show: no character in it can move the cursor, hide or reverse anything.

A terminal obeys what it is sent.  What others wrote is therefore never sent as it is: every
control, direction or invisible character is shown by its code, such as \x1b.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import IO, NamedTuple, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

__all__ = [
    "Cell",
    "Column",
    "Part",
    "Screen",
    "console",
    "inline",
    "safe",
    "safe_json",
    "shortened",
    "spelled",
]


# C0 and C1 controls, soft hyphen, direction marks, zero width space, separators, word joiners and isolates,
# byte order mark, annotations, lone surrogates, tags.  Joiners (U+200C, U+200D) stay: scripts and emoji need them.
_UNSAFE = (
    "\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff"
)
_unsafe = re.compile(f"[{_UNSAFE}]")
_unsafe_but_lines = re.compile(f"(?!\n)[{_UNSAFE}]")


def safe(text: str) -> str:
    """Return `text` with line breaks kept, tabs as spaces and everything that a terminal might obey spelled out."""
    return _unsafe_but_lines.sub(_spelled, text.replace("\t", "    "))


def inline(text: str) -> str:
    """Return `text` on one line: line breaks are shown as ↵, tabs as a space."""
    return _unsafe.sub(_spelled, text.strip().replace("\r\n", "\n").replace("\n", "↵").replace("\t", " "))


def spelled(text: str) -> str:
    """Return `text` with every unsafe character spelled out, line breaks and tabs included."""
    return _unsafe.sub(_spelled, text)


def shortened(text: str, length: int) -> str:
    """Return `text` on one line of at most `length` characters."""
    line = inline(text[: 4 * length])
    return line if len(line) <= length and len(text) <= 4 * length else line[: length - 1] + "…"


def safe_json(value: object, *, indent: int | None = 2) -> str:
    """Return the JSON text of `value`, exact, with unsafe characters escaped as JSON escapes them."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return _unsafe_but_lines.sub(_escaped, text)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


_UNBOUNDED = 10_000  # columns, where no terminal sets a limit
_LINE_MAX = 100  # columns that are easy to read

_STYLES = {
    "head": "dim",  # of a table
    "name": "bold",
    "line": "cyan",  # a timeline
    "digest": "yellow",
    "when": "dim",
    "quiet": "dim",
    "good": "green",
    "bad": "bold red",
    "warn": "yellow",
    "added": "green",
    "removed": "red",
    "changed": "yellow",
    "user": "bold blue",
    "assistant": "bold magenta",
    "system": "dim",
    "tool": "bold cyan",
    "title": "bold",
    "part": "bold cyan",  # of a story
}

Part: TypeAlias = str | tuple[str, str]
"""Some words, or words and their style."""

Cell: TypeAlias = Part


class Column(NamedTuple):
    """One column of a table."""

    name: str
    style: str = ""
    right: bool = False  # numbers
    gives_way: bool = False  # is shortened where the terminal is narrow


class _Console(Console):
    """A console that raises an error when the reader of the output has ended."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Return a console on one of the process's streams.  It prints text without interpreting markup."""
    file: IO[str] = sys.stderr if stderr else sys.stdout
    width = None if file.isatty() or os.environ.get("COLUMNS") else _UNBOUNDED
    return _Console(
        file=file,
        theme=Theme(_STYLES),
        width=width,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=False,
    )


class Screen:
    """Where a command's answer is shown to people."""

    def __init__(self, on: Console, *, store: str | None = None) -> None:
        """Write to that console; `store` is the one that was named, for commands that are suggested."""
        self._console, self._store = on, store

    @property
    def width(self) -> int:
        """Return the number of columns."""
        return self._console.width

    @property
    def store(self) -> str | None:
        """Return the store that suggested commands name; None: they find it themselves."""
        return self._store

    @property
    def stream(self) -> IO[str]:
        """Return the stream that it writes to."""
        return self._console.file

    @property
    def is_terminal(self) -> bool:
        """True if the output is a terminal."""
        return self._console.is_terminal

    def say(self, *parts: Part) -> None:
        """Print one line, however long."""
        self._console.print(_assembled(parts), soft_wrap=True)

    def write(self, *parts: Part) -> None:
        """Print words that others follow on the same line, at once."""
        self._console.print(_assembled(parts), soft_wrap=True, end="")
        self._console.file.flush()

    def cut(self, *parts: Part) -> None:
        """Print one line, shortened to the width."""
        self._console.print(_assembled(parts), no_wrap=True, overflow="ellipsis", crop=True)

    def suggest(self, label: str, *words: str, store: str | None = None) -> None:
        """Print a command to go on with, as it can be typed or copied; `store` where it is another than the command's."""
        named = store or self._store
        self.say((label, "quiet"), f"perdure {shlex.join((*words, *(('--store', named) if named else ())))}")

    def wrap(self, *parts: Part, indent: int = 0, label: Part = "") -> None:
        """Print a paragraph, indented, and wrapped at words where the width has a limit.

        `label` comes before its first line, within the indentation.
        """
        width = (
            self._console.width if self._console.width >= _UNBOUNDED else min(self._console.width, _LINE_MAX)
        )
        width = max(20, width - indent)
        before = _assembled((label,))
        before.pad_right(indent - len(before))
        for line in _assembled(parts).wrap(self._console, width):
            line.rstrip()
            self._console.print(before + line, soft_wrap=True)
            before = Text(" " * indent)

    def gap(self) -> None:
        """Print an empty line."""
        self._console.print()

    def facts(self, facts: Iterable[tuple[str, Part]]) -> None:
        """Print names and what they are, one a line."""
        shown = list(facts)
        longest = max((len(name) for name, _ in shown), default=0)
        for name, fact in shown:
            self.say((f"{name:<{longest}}  ", "quiet"), fact)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]], *, indent: int = 0) -> None:
        """Print a table; columns that are empty in every row are left out."""
        cells = [[_cell(cell) for cell in row] for row in rows]
        used = [index for index in range(len(columns)) if any(row[index].plain for row in cells)]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="head", show_edge=False)
        for index in used:
            _add(table, columns[index])
        for row in cells:
            table.add_row(*(row[index] for index in used))
        self._lines(table, indent)

    def _lines(self, table: Table, indent: int) -> None:
        options = self._console.options.update(width=self._console.width - indent)
        for line in self._console.render_lines(table, options, pad=False):
            text = Text(" " * indent)
            for segment in line:
                text.append(segment.text, segment.style)
            text.rstrip()
            self._console.print(text, soft_wrap=True)


def _add(table: Table, column: Column) -> None:
    justify = "right" if column.right else "left"
    # To the table a column that may be wrapped is one that gives way; its cells are shortened instead.
    table.add_column(inline(column.name), style=column.style, justify=justify, no_wrap=not column.gives_way)


def _cell(cell: Cell) -> Text:
    words, style = cell if isinstance(cell, tuple) else (cell, "")
    return Text(inline(words), style=style, no_wrap=True, overflow="ellipsis")


def _assembled(parts: Sequence[Part]) -> Text:
    text = Text()
    for part in parts:
        words, style = part if isinstance(part, tuple) else (part, "")
        text.append(safe(words), style)
    return text
