"""The documents are written in plain English: one sentence per line, and an actor in each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, documents

# Words that hide who acts, or that an engineer whose first language is not English has to look up.
BANNED = re.compile(
    r"\b(?:whoever|whomever|somebody|nobody|anybody|anew|afresh|meanwhile|at hand|thereof|wherein|stands|"
    r"of its own accord|(?:became|becomes) of|(?:came|comes) to|(?:is|are|was|were|be|been) told)\b",
    re.IGNORECASE,
)
# Made from the code, whose own tests judge its words.
GENERATED = {"cli.md", "python.md", "provider-rules.md", "models.md"}
# Rows about capabilities, whose words are those of the code.
FROM_CODE = re.compile(r"^\| `x` \| (?:full|lossy|none) \|")
NEXT_SENTENCE = re.compile(r"[a-z`)\"*…][.!?]\*{0,2} (?=[A-Z`\[“])")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Each line outside of code, with its number; code inside a line becomes `x`."""
    fence: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if opening := re.match(r"\s*(`{3,})", line):
            fence = opening[1] if fence is None else None if line.strip() == fence else fence
        elif fence is None and not line.startswith("<!--"):
            yield number, re.sub(r"`[^`]*`", "`x`", line)


def written() -> list[Path]:
    """The documents that people write."""
    return [path for path in documents() if path.name not in GENERATED]


def sentences_after_the_first(text: str) -> list[int]:
    """The lines, outside of tables and quotations, on which a second sentence begins."""
    return [
        number
        for number, line in prose(text)
        if not line.startswith(("|", ">")) and NEXT_SENTENCE.search(re.sub(r"\([^()]*\)", "(x)", line))
    ]


def words_without_an_actor(text: str) -> list[str]:
    """The banned words of a text, each with its line."""
    return [
        f"{number}: {found[0]}"
        for number, line in prose(text)
        if not FROM_CODE.match(line)
        for found in BANNED.finditer(line)
    ]


@pytest.mark.parametrize("document", written(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_line_has_one_sentence(document: Path) -> None:
    """So that a diff shows a sentence."""
    assert sentences_after_the_first(document.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("document", written(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_sentence_says_who_acts(document: Path) -> None:
    """The run, the writer, the process, the person: never somebody."""
    assert words_without_an_actor(document.read_text(encoding="utf-8")) == []


def test_a_second_sentence_and_a_hidden_actor_are_found() -> None:
    """Control: both checks fail on a text that breaks their rule, and leave code and tables alone."""
    text = (
        "One. `two` follows.\nSomebody is told.\n```text\nnobody. Nobody.\n```\n| a. B |\nA `nobody` (x. Y)."
    )

    assert sentences_after_the_first(text) == [1]
    assert words_without_an_actor(text) == ["2: Somebody", "2: is told"]
