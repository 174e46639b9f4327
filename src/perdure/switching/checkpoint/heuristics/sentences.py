"""Words and sentences: what the rules look at, and what they find.

Made for English.  Code, quotations, files that were pasted and the reasoning that some models write into
their answers are not looked at: a decision inside a quoted mail is not one of this conversation.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

__all__ = ["SENTENCE_MAX", "RuleMatch", "Utterance", "clean", "sentences", "shortened"]

SENTENCE_MAX = 300  # characters; what is longer is cut, with an ellipsis
LOOKED_AT_MAX = 8_000  # characters of one message: half from its beginning, half from its end

_LINE_MAX = 1_000  # characters of one sentence that the rules look at

_WORD = re.compile(r"[^\W_]")
_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_THOUGHT = re.compile(r"<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_ENCLOSED = re.compile(
    r"<(file|document|attachment|tool-content)\b[^>]{0,500}>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE
)
_TABLE = re.compile(r"^[ \t]*\|.*$", re.MULTILINE)
_QUOTED = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_MARKS = re.compile(r"^\s*(?:#{1,6}\s+|[-*+•]\s+|\d{1,3}[.)]\s+)")
_EMPHASIS = re.compile(r"\*\*|__(?=\S)|(?<=\S)__")
_END = re.compile(r"""(?<=[.!?…])["'”’)\]]*\s+(?=\S)|(?<=\?)(?=[A-Z])""")
_SHORT = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|mr|mrs|ms|dr|prof|no|fig|approx|inc|ltd|st|u\.s)|\b[A-Z])\.$", re.IGNORECASE
)
# Controls, marks that turn or hide text, lone surrogates, private letters: spelled out, because what Python calls by
# these names grows from version to version, and a checkpoint is to be the same in each.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ue000-\uf8ff\ufeff\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)


class Utterance(msgspec.Struct, frozen=True):
    """What one side said in one message."""

    id: str  # of the message
    role: str  # `user` or `assistant`
    text: str
    calls: bool = False  # whether it asked for tools


class RuleMatch(msgspec.Struct, frozen=True):
    """One thing that a rule found, and where."""

    text: str
    event: str  # the message that says so
    rule: str


def sentences(text: str) -> tuple[str, ...]:
    """The sentences of a text, in order, each on one line and without marks of lists and headings."""
    half = LOOKED_AT_MAX // 2
    return _sentences(text if len(text) <= LOOKED_AT_MAX else f"{text[:half]}\n{text[-half:]}")


def clean(text: str) -> str:
    """The text on one line: white space as one space, and nothing that cannot be seen or kept."""
    return " ".join(_UNSEEN.sub(" ", text).split())


def shortened(text: str, limit: int = SENTENCE_MAX) -> str:
    """The text, cut with an ellipsis where it is longer than `limit`."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


@lru_cache(maxsize=256)  # each rule looks at the same messages
def _sentences(text: str) -> tuple[str, ...]:
    for unlooked in (_CODE, _THOUGHT, _ENCLOSED, _TABLE, _QUOTED):
        text = unlooked.sub("\n", text)
    found: list[str] = []
    for line in text.splitlines():
        found += _of_line(_EMPHASIS.sub("", _MARKS.sub("", line)))
    return tuple(found)


def _of_line(line: str) -> list[str]:
    found: list[str] = []
    for piece in _END.split(line):
        part = clean(piece)[:_LINE_MAX]
        if found and len(found[-1]) < _LINE_MAX and _SHORT.search(found[-1][-8:]):
            found[-1] = f"{found[-1]} {part}".rstrip()
        elif _WORD.search(part):
            found.append(part)
    return found
