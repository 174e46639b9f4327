"""Tables and sections of a Markdown file, for comparing what a page says with what the code does."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tests.docs.blocks import ROOT

__all__ = ["Section", "Table", "codes", "page", "plain"]

_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*$")
_CODE = re.compile(r"`([^`\n]+)`")
_FENCE = re.compile(r"^\s*(`{3,})")


@dataclass(kw_only=True)
class Table:
    """One table: the cells of its head, and of its rows."""

    head: list[str]
    rows: list[list[str]] = field(default_factory=list[list[str]])


@dataclass(kw_only=True)
class Section:
    """The text under one heading, up to the next of any level."""

    title: str
    level: int
    lines: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def tables(self) -> list[Table]:
        """Its tables, in order."""
        found: list[Table] = []
        inside = False
        for line in self.lines:
            if not line.startswith("|"):
                inside = False
            elif not inside:
                found.append(Table(head=_cells(line)))
                inside = True
            elif not set(line) <= set("|-: "):
                found[-1].rows.append(_cells(line))
        return found


def page(name: str) -> list[Section]:
    """The sections of a page of docs; a page without headings has none."""
    sections: list[Section] = []
    fence: str | None = None
    for line in (ROOT / "docs" / name).read_text(encoding="utf-8").splitlines():
        if opening := _FENCE.match(line):
            fence = opening[1] if fence is None else None if line.strip() == fence else fence
        heading = _HEADING.match(line) if fence is None else None
        if heading:
            sections.append(Section(title=heading[2], level=len(heading[1])))
        elif sections:
            sections[-1].lines.append(line)
    return sections


def codes(text: str) -> list[str]:
    """Everything in `text` that is set as code."""
    return _CODE.findall(text)


def plain(cell: str) -> str:
    """The text of a cell without the marks of code and emphasis."""
    return re.sub(r"[`*]", "", cell)


def _cells(line: str) -> list[str]:
    # A bar inside a cell is written \| in Markdown.
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
