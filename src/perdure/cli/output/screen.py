"""The screen: what people see.  All text goes through here, and is made safe on its way.

A line of `say` is never wrapped, so that a command in it can be copied; paragraphs and facts are wrapped between words.
Where there is no terminal nothing is shortened or wrapped.  A table fits the width of the terminal in four steps, each taken only if the one before was not enough:
columns of words are cut between words, long ids are shown by their ends, columns that matter less are left out, and at
last the widest columns are cut anywhere.  An id that Perdure made is always shown by its end, which every command
accepts in place of the whole (`perdure.model.names.short_ids`).  A column that must be read whole goes on over further
lines instead of being cut.  Rows whose columns are not ours to weigh are shown as blocks (`records`) if they do not fit.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import IO, NamedTuple, TypeAlias

from rich.cells import cell_len, get_character_cell_size
from rich.console import Console
from rich.text import Text
from rich.theme import Theme

from perdure.cli.options import EVERYWHERE
from perdure.model.names import short_ids
from perdure.shapes.text import inline, safe

__all__ = [
    "Cell",
    "Column",
    "Part",
    "Screen",
    "console",
    "cut_at_words",
]


def cut_at_words(text: str, width: int) -> str:
    """Return `text` in at most `width` columns; if it is longer, it ends between two words, with …

    A first word that alone is too long is cut where the width ends, and so is a text that would fill less than a third of it.
    """
    if cell_len(text) <= width:
        return text
    end, columns = 0, 0
    while (columns := columns + get_character_cell_size(text[end])) < width:  # the last column is for the …
        end += 1
    words = end
    while words and not _is_between_words(text, words):
        words -= 1
    if cell_len(text[:words].rstrip()) * 3 < width:
        words = end
        while words and _is_joined(text, words):
            words -= 1
    return text[:words].rstrip() + "…"


def _is_between_words(text: str, at: int) -> bool:
    before, after = text[at - 1], text[at]
    if _is_joined(text, at):
        return False
    return not (before.isalnum() and after.isalnum()) or get_character_cell_size(after) > 1


def _is_joined(text: str, at: int) -> bool:
    """True if the characters before and after this place are one sign, such as a letter and its accent."""
    before, after = text[at - 1], text[at]
    return bool(unicodedata.combining(after)) or after in _JOINERS or before == _JOINERS[0]


_JOINERS = "\u200d\u200c\ufe0e\ufe0f"
_GAP = 2  # columns between two columns of a table
_WORDS_MIN = 24  # columns that words have at least, while there is something else to leave out
_ID_MAX = 24  # columns of an id in a narrow table, unless it takes more to tell it from the others

_WORD = re.compile(r"\S+\s*|\s+")
_SHELL_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\S)+")
_GO_ON = " " * 4  # before the next line of a command

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
    "written": "yellow",
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
    gives_way: bool = False  # words: they are cut where the terminal is narrow
    is_id: bool = False  # is never cut: ids are shown by ends that tell them from each other
    leaves: int = 0  # where the terminal is narrow, columns are left out in this order, 1 first; 0: never
    wraps: bool = False  # words that are not cut, but go on over further lines


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


_CODE = "MODULE:NAME"  # what --code takes, in commands that are suggested


def with_code_here(
    words: Iterable[str], store: str | None, *, threads: Iterable[str] = (), agent: str | None = None
) -> list[str]:
    """Return the words of a command with where this directory declares the agent, or those of threads of a store."""
    from perdure.cli.input.user_code import code_here  # it loads agents, which most commands do without

    place = store or os.environ.get("PERDURE_STORE", EVERYWHERE.store)
    code = code_here(place, threads=threads, agent=agent)
    return [code if code and word == _CODE else word for word in words]


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
        """Print one line, shortened to the width between two words."""
        line = _assembled(parts)
        shown = cut_at_words(line.plain, self._console.width)
        if shown != line.plain:
            line = line[: len(shown) - 1] + Text("…")
        self._console.print(line, soft_wrap=True)

    def suggest(
        self,
        label: str,
        *words: str,
        store: str | None = None,
        threads: Iterable[str] = (),
        agent: str | None = None,
    ) -> None:
        """Print a command to go on with, as it can be typed or copied; `store` where it is another than the command's.

        Ids that Perdure made are shown as tables show them, so that the command fits the line.  MODULE:NAME becomes
        the code of that agent, or of the agents of those threads, if this directory has it.
        """
        named = store or self._store
        if _CODE in words:
            words = tuple(with_code_here(words, named, threads=threads, agent=agent))
        typed = [self.short_id(word) for word in words]
        self.command(label, f"perdure {shlex.join((*typed, *(('--store', named) if named else ())))}")

    def command(self, label: str, typed: str) -> None:
        """Print a command; where it is longer than a line, on several, each with a backslash, so that it can be copied."""
        lines, left = [""], self._console.width - cell_len(label)
        for word in _SHELL_WORD.findall(typed):
            if lines[-1] and cell_len(f"{lines[-1]} {word} \\") > left:
                lines.append("")
                left = self._console.width - len(_GO_ON)
            lines[-1] += f" {word}" if lines[-1] else word
        if cell_len(label + typed) <= self._console.width:
            lines = [typed]
        self.say((label, "quiet"), f" \\\n{_GO_ON}".join(lines))

    def wrap(self, *parts: Part, indent: int = 0, label: Part = "", whole_words: bool = False) -> None:
        """Print a paragraph, indented, and wrapped at words where the width has a limit.

        `label` comes before its first line, within the indentation.  A word that is longer than a line is folded,
        unless `whole_words` says that it stays whole, so that it can be copied.
        """
        width = (
            self._console.width if self._console.width >= _UNBOUNDED else min(self._console.width, _LINE_MAX)
        )
        width = max(20, width - indent)
        before = _assembled((label,))
        before.pad_right(indent - len(before))
        text = _assembled(parts)
        for line in _between_words(text, width) if whole_words else text.wrap(self._console, width):
            shown = before + line
            shown.rstrip()
            self._console.print(shown, soft_wrap=True)
            before = Text(" " * indent)

    def sentence(self, *parts: Part) -> None:
        """Print one sentence, wrapped between words where the width has a limit: an id or a digest stays whole."""
        self.wrap(*parts, whole_words=True)

    def gap(self) -> None:
        """Print an empty line."""
        self._console.print()

    def facts(self, facts: Iterable[tuple[str, Part]]) -> None:
        """Print names and what they are, each from a new line on; words are wrapped beside their name."""
        shown = list(facts)
        longest = max((len(name) for name, _ in shown), default=0)
        for name, fact in shown:
            label = (f"{name:<{longest}}  ", "quiet")
            self.wrap(fact, indent=longest + 2, label=label, whole_words=True)

    def short_id(self, id: str, among: Iterable[str] = ()) -> str:
        """Return an id as a table of all these ids shows it; whole where there is no terminal."""
        return id if self._console.width >= _UNBOUNDED else short_ids([id, *among])[id]

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]], *, indent: int = 0) -> None:
        """Print a table; columns that are empty in every row are left out."""
        cells = [[_cell(cell) for cell in row] for row in rows]
        used = [index for index in range(len(columns)) if any(row[index].plain for row in cells)]
        kept = [columns[index] for index in used]
        table = _Table(kept, [[row[index] for index in used] for row in cells])
        if self._console.width < _UNBOUNDED:
            table.fit(self._console.width - indent)
        for line in table.lines(self._console):
            self._console.print(Text(" " * indent) + line, soft_wrap=True)

    def fits(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> bool:
        """True if a table shows every cell whole."""
        return _Table(list(columns), [[_cell(cell) for cell in row] for row in rows]).fits(
            self._console.width
        )

    def records(self, columns: Sequence[str], rows: Iterable[Sequence[Part]]) -> None:
        """Print the cells of each row below each other, with the names of their columns; words are wrapped."""
        names = [inline(each) for each in columns]
        longest = min(max(map(cell_len, names), default=0), _WORDS_MIN) + _GAP
        for number, row in enumerate(rows, 1):
            self.say((f"row {number}", "title"))
            for name, cell in zip(names, row, strict=True):
                label = (f"  {name}{' ' * (longest - cell_len(name))}", "quiet")
                self.wrap(cell, indent=longest + 2, label=label)


class _Table:
    """The cells of a table, which are made to fit a width."""

    def __init__(self, columns: list[Column], rows: list[list[Text]]) -> None:
        self._columns, self._rows = columns, rows
        self._widths = [self._natural(index) for index in range(len(columns))]

    def fit(self, width: int) -> None:
        """Make the table at most that wide, as the docstring of this module says."""
        self._shorten_ids(None)
        least = [
            min(each, _WORDS_MIN) if column.gives_way else each
            for column, each in zip(self._columns, self._widths, strict=True)
        ]
        if self._excess(least, width) > 0:
            self._shorten_ids(_ID_MAX)
            for index, column in enumerate(self._columns):
                least[index] = self._widths[index] if column.is_id else least[index]
        kept = self._kept(least, width)
        least = [least[index] for index in kept]
        self._columns = [self._columns[index] for index in kept]
        self._widths = [self._widths[index] for index in kept]
        self._rows = [[row[index] for index in kept] for row in self._rows]
        words = [index for index, column in enumerate(self._columns) if column.gives_way]
        self._narrow(words, least, width)
        others = [index for index, column in enumerate(self._columns) if not (column.right or column.is_id)]
        self._narrow(others, [1] * len(least), width)
        self._narrow(range(len(least)), [1] * len(least), width)

    def fits(self, width: int) -> bool:
        """True if it is at most that wide as it is."""
        return self._excess(self._widths, width) <= 0

    def lines(self, on: Console) -> Iterable[Text]:
        """Yield the heading and the rows; a row has as many lines as its longest cell that wraps."""
        heading = [Text(inline(column.name), style="head") for column in self._columns]
        yield self._line(heading, is_heading=True)
        for row in self._rows:
            wrapped = [
                list(cell.wrap(on, width)) if column.wraps and cell.plain else [cell]
                for cell, column, width in zip(row, self._columns, self._widths, strict=True)
            ]
            for cells in zip_longest(*wrapped, fillvalue=Text()):
                yield self._line(cells)

    def _line(self, cells: Sequence[Text], *, is_heading: bool = False) -> Text:
        line = Text()
        for cell, column, width in zip(cells, self._columns, self._widths, strict=True):
            shown = cell
            if cell.cell_len > width:
                shown = Text(cut_at_words(cell.plain, width), style=cell.style)
            elif not is_heading and column.style and not cell.style:
                shown = Text(cell.plain, style=column.style)
            space = " " * (width - shown.cell_len)
            line.append_text(Text(space) + shown if column.right else shown + Text(space))
            line.append(" " * _GAP)
        line.rstrip()
        return line

    def _natural(self, index: int) -> int:
        heading = cell_len(inline(self._columns[index].name))
        return max((heading, *(row[index].cell_len for row in self._rows)))

    def _excess(self, widths: Sequence[int], width: int) -> int:
        return sum(widths) + _GAP * (len(widths) - 1) - width

    def _shorten_ids(self, columns_max: int | None) -> None:
        for index, column in enumerate(self._columns):
            if column.is_id:
                shown = short_ids((row[index].plain for row in self._rows), length_max=columns_max)
                for row in self._rows:
                    row[index] = Text(shown[row[index].plain], style=row[index].style)
                self._widths[index] = self._natural(index)

    def _kept(self, least: Sequence[int], width: int) -> list[int]:
        """Return the columns that are shown: those that matter less leave until the rest fits, and return if there is room."""
        kept = list(range(len(self._columns)))
        order = sorted((column.leaves, index) for index, column in enumerate(self._columns) if column.leaves)
        left: list[int] = []
        for _, index in order:
            if self._excess([least[each] for each in kept], width) <= 0:
                break
            kept.remove(index)
            left.append(index)
        for index in reversed(left):
            if self._excess([least[each] for each in (*kept, index)], width) <= 0:
                kept = sorted((*kept, index))
        return kept

    def _narrow(self, which: Sequence[int], least: Sequence[int], width: int) -> None:
        """Take columns from the widest of these, down to the least that each has."""
        while (excess := self._excess(self._widths, width)) > 0:
            wide = [index for index in which if self._widths[index] > least[index]]
            if not wide:
                return
            widest = max(wide, key=lambda index: self._widths[index])
            second = max((self._widths[index] for index in wide if index != widest), default=0)
            down_to = max(least[widest], min(second, self._widths[widest] - 1), self._widths[widest] - excess)
            self._widths[widest] = down_to


def _between_words(text: Text, width: int) -> Iterator[Text]:
    """Yield the lines of a paragraph; a word that is longer than a line stays whole."""
    for line in text.split(allow_blank=True):
        breaks, columns = list[int](), 0
        for word in _WORD.finditer(line.plain):
            if columns and columns + cell_len(word[0].rstrip()) > width:
                breaks.append(word.start())
                columns = 0
            columns += cell_len(word[0])
        yield from line.divide(breaks)


def _cell(cell: Cell) -> Text:
    words, style = cell if isinstance(cell, tuple) else (cell, "")
    return Text(inline(words), style=style)


def _assembled(parts: Sequence[Part]) -> Text:
    text = Text()
    for part in parts:
        words, style = part if isinstance(part, tuple) else (part, "")
        text.append(safe(words), style)
    return text
