"""Words and sentences: what the rules look at, and what they find.

Made for English.  Code, quotations, files that were pasted and the reasoning that some models write into
their answers are not looked at: a decision inside a quoted mail is not one of this conversation.
"""

from __future__ import annotations

import re
import unicodedata

import msgspec

__all__ = ["SENTENCE_MAX", "Found", "Words", "clean", "sentences", "shortened"]

SENTENCE_MAX = 300  # characters; what is longer is cut, with an ellipsis
LOOKED_AT_MAX = 20_000  # characters of one message: half from its beginning, half from its end

_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_THOUGHT = re.compile(r"<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_ENCLOSED = re.compile(
    r"<(file|document|attachment|tool-content)\b[^>]*>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE
)
_TABLE = re.compile(r"^\s*\|.*$", re.MULTILINE)
_QUOTED = re.compile(r"^\s*>.*$", re.MULTILINE)
_MARKS = re.compile(r"^\s*(?:#{1,6}\s+|[-*+•]\s+|\d{1,3}[.)]\s+)")
_EMPHASIS = re.compile(r"\*\*|__(?=\S)|(?<=\S)__")
_END = re.compile(r"""(?<=[.!?…])["'”’)\]]*\s+(?=\S)|(?<=\?)(?=[A-Z])""")
_SHORT = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|mr|mrs|ms|dr|prof|no|fig|approx|inc|ltd|st|u\.s)|\b[A-Z])\.$", re.IGNORECASE
)


class Words(msgspec.Struct, frozen=True):
    """What one side said in one message."""

    id: str  # of the message
    role: str  # `user` or `assistant`
    text: str
    calls: bool = False  # whether it asked for tools


class Found(msgspec.Struct, frozen=True):
    """One thing that a rule found, and where."""

    text: str
    event: str  # the message that says so
    rule: str


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, each on one line and without marks of lists and headings."""
    if len(text) > LOOKED_AT_MAX:
        text = f"{text[: LOOKED_AT_MAX // 2]}\n{text[-LOOKED_AT_MAX // 2 :]}"
    for unlooked in (_CODE, _THOUGHT, _ENCLOSED, _TABLE, _QUOTED):
        text = unlooked.sub("\n", text)
    found: list[str] = []
    for line in text.splitlines():
        found += _of_line(_EMPHASIS.sub("", _MARKS.sub("", line)))
    return found


def clean(text: str) -> str:
    """The text on one line: white space as one space, and nothing that cannot be seen or kept."""
    seen = "".join(letter if _is_seen(letter) else " " for letter in text)
    return " ".join(seen.split())


def shortened(text: str, limit: int = SENTENCE_MAX) -> str:
    """The text, cut with an ellipsis where it is longer than `limit`."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _of_line(line: str) -> list[str]:
    found: list[str] = []
    for piece in _END.split(line):
        part = clean(piece)
        if found and _SHORT.search(found[-1]):
            found[-1] = f"{found[-1]} {part}"
        elif part:
            found.append(part)
    return found


def _is_seen(letter: str) -> bool:
    return unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
