"""The code blocks of a Markdown file, each with the comments that stand right before it.

A comment tells the runner about the next block: `<!-- not run: reason -->`, `<!-- output -->`,
`<!-- exits 4 -->`, `<!-- run on agents.db -->`, `<!-- file: pay.py -->`.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Block", "blocks", "documents"]

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^\s*(`{3,})\s*([\w+-]*)[^`]*$")
COMMENT = re.compile(r"^\s*<!--\s*(.*?)\s*-->\s*$")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block: `line` is where its text begins, counted from 1."""

    document: str
    line: int
    language: str
    text: str
    comments: tuple[str, ...] = field(default=())

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"

    def directive(self, word: str) -> str | None:
        """What a comment that begins with `word` says after it; None if there is no such comment."""
        found = [
            comment.removeprefix(word).strip(" :") for comment in self.comments if comment.startswith(word)
        ]
        return found[0] if found else None


def documents() -> list[Path]:
    """Every Markdown file of the project that people read."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(markdown: str, document: str) -> list[Block]:
    """Split `markdown` into its fenced blocks; text between them ends the reach of a comment."""
    found: list[Block] = []
    comments: list[str] = []
    lines = enumerate(markdown.splitlines(), start=1)
    for number, line in lines:
        if fence := FENCE.match(line):
            body: list[str] = []
            for _, inner in lines:
                if inner.strip() == fence[1]:
                    break
                body.append(inner)
            else:
                raise AssertionError(f"{document}:{number}: this block is never closed")
            text = textwrap.dedent("\n".join(body))
            block = Block(
                document=document, line=number + 1, language=fence[2], text=text, comments=tuple(comments)
            )
            found.append(block)
            comments = []
        elif comment := COMMENT.match(line):
            comments.append(comment[1])
        elif line.strip():
            comments = []
    return found
