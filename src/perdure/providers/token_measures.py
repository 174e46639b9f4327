"""Estimates how many tokens a family of models makes of text and of a request's structure, as data.

A text is measured in *units*, which are tokens of a tokenizer in the middle of today's: words, digits
by threes, runs of punctuation, lines.  A family turns units into its own tokens, and adds what its
servers add for a message, a call, a tool and a schema.  The numbers were fitted to the `usage` of
recorded traffic; a test compares the stated margins with it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

import msgspec

__all__ = ["FAMILIES", "Family", "Off", "family", "units"]

_UPPER, _LOWER, _NUMBER, _MARK, _BLANK = range(
    1, 6
)  # classes of ASCII characters; every other one is of class 0


def _class_of(byte: int) -> int:
    char = chr(byte)
    if not 0 <= byte < 128 or char == "\n":
        return 0
    if char.isalpha():
        return _UPPER if char.isupper() else _LOWER
    return _NUMBER if char.isdigit() else _BLANK if char.isspace() else _MARK if char.isprintable() else 0


def _runs_of(**shown: int) -> bytes:
    """Return the table by which characters of these classes are shown as one letter each, and all others as blanks."""
    letters = {kind: letter for letter, kind in shown.items()}
    return "".join(letters.get(_class_of(byte), " ") for byte in range(256)).encode()


_WORDS = _runs_of(
    a=_LOWER, A=_UPPER
)  # "aA" has the same length and the same humps as any word that it stands for
_NUMBERS, _MARKS = _runs_of(n=_NUMBER), _runs_of(m=_MARK)
_BLANKS = bytes(ord(" ") if _class_of(byte) == _BLANK else byte for byte in range(256))
_HUMP = re.compile(rb"aA|A{3}")
_SPACES = re.compile(r"[^\S\n]{2,}")
_LINES = re.compile(r"\n+")
_LETTERS = re.compile("[\u0080-\u1fff]")
_SIGNS = re.compile("[\u2000-\uffff]")
_PICTURES = re.compile("[\U00010000-\U0010ffff]")


class Off(NamedTuple):
    """The error of an estimate: a number of tokens, and a share of the estimate."""

    tokens: int
    share: float


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """How one tokenizer, and the servers that use it, count a request."""

    name: str
    models: str  # a pattern that is found in the names of its models
    text: float = 1.05  # tokens for a unit of text
    base: float = 8  # for a request
    message: float = 4  # for each message
    call: float = 15  # for each call, and each result
    tools: float = 60  # where there are tools at all
    tool: float = 15  # for each tool
    schema: float = 1.2  # for a unit of a tool's name, description and parameters
    output: float = 1.2  # for a unit of the schema that the answer has to keep to
    plain: Off = Off(40, 0.25)
    tooled: Off = Off(150, 0.75)  # where there are tools, or a schema for the answer

    def margin(self, count: int, *, tooled: bool) -> int:
        """Return the margin that holds for 95 of 100 requests."""
        off = self.tooled if tooled else self.plain
        return off.tokens + round(off.share * count)


# The first whose pattern fits is taken.
FAMILIES: tuple[Family, ...] = (
    Family(
        name="gpt-oss",
        models=r"gpt-oss",
        text=0.96,
        base=63,
        message=5.3,
        call=17,
        tools=20,
        tool=14,
        schema=0.5,
        plain=Off(20, 0.12),
        tooled=Off(30, 0.15),
    ),
    Family(
        name="Claude from Opus 4.7 on",
        models=r"claude.*(opus-4[-.][78]|(sonnet|opus|fable|mythos|haiku)-[5-9])",
        text=1.5,
        base=5,
        message=1,
        call=38,
        tools=300,
        tool=30,
        schema=1.7,
        plain=Off(50, 0.15),
        tooled=Off(60, 0.3),
    ),
    Family(
        name="Claude 4.5 and 4.6",
        models=r"claude.*4[-.][56]",
        text=1.09,
        base=6.5,
        message=1.4,
        call=25,
        tools=477,
        tool=30,
        schema=1.42,
        output=2.5,
        plain=Off(35, 0.12),
        tooled=Off(50, 0.25),
    ),
    Family(
        name="Claude up to 4.1",
        models=r"claude",
        text=1.15,
        base=7,
        message=0,
        call=24,
        tools=318,
        tool=9,
        schema=1.35,
        output=2.5,
        plain=Off(35, 0.12),
        tooled=Off(90, 0.75),
    ),
    Family(
        name="Gemini",
        models=r"gemini|gemma",
        text=1.0,
        base=0.6,
        message=0,
        call=0,
        tools=0,
        tool=0,
        schema=0.72,
        output=0.3,
        plain=Off(20, 0.12),
        tooled=Off(50, 0.2),
    ),
    Family(
        name="Nova 2",
        models=r"nova-2",
        text=0.97,
        base=45,
        message=1,
        call=21,
        tools=780,
        tool=35,
        schema=1.35,
        plain=Off(20, 0.12),
        tooled=Off(30, 0.15),
    ),
    Family(
        name="Nova",
        models=r"amazon\.nova",
        text=1.07,
        base=0,
        message=0.1,
        call=17,
        tools=347,
        tool=0,
        schema=1.32,
        plain=Off(20, 0.12),
        tooled=Off(30, 0.15),
    ),
    Family(
        name="Llama",
        models=r"llama-?[0-9]|(^|[:/.])llama(?!\.cpp)",
        text=1.0,
        base=28,
        message=6,
        call=15,
        tools=89,
        tool=15,
        schema=2,
        output=2.5,
        plain=Off(35, 0.12),
        tooled=Off(150, 0.7),
    ),
    Family(
        name="Qwen",
        models=r"qwen|qwq",
        text=0.98,
        base=5,
        message=5,
        call=27,
        tools=70,
        tool=0,
        schema=1.32,
        output=2.5,
        plain=Off(45, 0.2),
        tooled=Off(90, 0.35),
    ),
    Family(
        name="Grok from 4.3 on",
        models=r"grok-(4\.[3-9]|[5-9])",
        text=0.97,
        base=188,
        message=3.8,
        call=15,
        tools=36,
        tool=8,
        schema=1.12,
        output=1.45,
        plain=Off(30, 0.12),
        tooled=Off(40, 0.15),
    ),
    Family(
        name="Grok",
        models=r"grok",
        text=0.97,
        base=0,
        message=3,
        call=13,
        tools=131,
        tool=80,
        schema=0.8,
        plain=Off(20, 0.12),
        tooled=Off(150, 0.3),
    ),
    Family(
        name="DeepSeek",
        models=r"deepseek",
        text=1.06,
        base=1,
        message=2.6,
        call=45,
        tools=110,
        tool=45,
        schema=0.4,
        plain=Off(95, 0.12),
        tooled=Off(200, 0.5),
    ),
    Family(
        name="Mistral",
        models=r"mi[sx]tral|magistral|devstral|codestral|ministral|pixtral|voxtral",
        text=1.07,
        base=0,
        message=4.6,
        call=2,
        tools=8.7,
        tool=4.6,
        schema=1.52,
        output=0.3,
        plain=Off(20, 0.12),
        tooled=Off(20, 0.15),
    ),
    Family(
        name="GLM",
        models=r"glm-",
        text=0.95,
        base=8,
        message=0,
        call=34,
        tools=99,
        tool=15,
        schema=1.2,
        output=0.3,
        plain=Off(90, 0.25),
        tooled=Off(40, 0.15),
    ),
    Family(
        name="Kimi",
        models=r"kimi",
        text=0.95,
        base=0,
        message=4.6,
        call=16,
        tools=0,
        tool=11,
        schema=1.57,
        plain=Off(40, 0.25),
        tooled=Off(50, 0.15),
    ),
    Family(
        name="GPT-5",
        models=r"gpt-5(-(mini|nano|pro|codex|20).*)?$",
        text=0.98,
        base=2,
        message=4.3,
        call=8,
        tools=0,
        tool=14.6,
        schema=0.62,
        output=0.77,
        plain=Off(20, 0.12),
        tooled=Off(95, 0.15),
    ),
    Family(
        name="GPT",
        models=r"gpt-|(^|[/:.])o[1-9]\b|chatgpt|computer-use",
        text=1.0,
        base=3.4,
        message=3.9,
        call=4.9,
        tools=14,
        tool=0,
        schema=0.61,
        output=0.85,
        plain=Off(20, 0.12),
        tooled=Off(30, 0.15),
    ),
)
_OTHER = Family(name="models of no known family", models="")


def family(model: str) -> Family:
    """Return the family of a model, by its name with or without its provider; careful numbers if it is not known."""
    name = model.lower()
    return next((each for each in FAMILIES if re.search(each.models, name)), _OTHER)


def units(text: str) -> float:
    """Return the length of a text in units.

    Runs of characters are counted by their shape, of which a text has few: searching it by patterns takes five times as long.
    """
    raw = text.encode("utf-8", "surrogatepass")
    found = 0.0
    for word, count in Counter(raw.translate(_WORDS).split()).items():
        size = len(word)
        long = 0.146 * max(0, size - 7) + 0.25 * max(0, size - 20)
        found += count * (0.966 + long + 0.5 * len(_HUMP.findall(word)))
    for run, count in Counter(raw.translate(_NUMBERS).split()).items():
        found += 1.5 * count * -(-len(run) // 3)
    for run, count in Counter(raw.translate(_MARKS).split()).items():
        found += count * (0.88 + 0.284 * max(0, len(run) - 2))
    is_ascii = text.isascii()
    if not is_ascii or b"  " in raw.translate(_BLANKS):
        found += sum([0.363 + len(run) / 80 for run in _SPACES.findall(text)])
    if b"\n" in raw:
        found += sum([0.617 + len(run) / 80 for run in _LINES.findall(text)])
    if not is_ascii:
        found += 0.42 * len(_LETTERS.findall(text)) + 0.908 * len(_SIGNS.findall(text))
        found += 2.0 * len(_PICTURES.findall(text))
    return found
