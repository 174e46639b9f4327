"""Grounding: whether a sentence is a quotation of the messages that it cites.

    its words stand there one after another, whatever the case, the spaces and the punctuation between them
    the sentence there from which it is taken has no "not", "before", "only", "?" and the like that it leaves out

Any other telling can say the opposite in the same words: who pays whom, what comes first, which sum is which.
The second rule is made for English.  It refuses more than it has to: a summary that is refused costs nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

__all__ = ["grounded"]

_TOKEN = re.compile(r"[^\W_]+(?:['’.,:/@_-][^\W_]+)*|[-−+<>=≤≥≠±%$€£¥#&@/\\|~^]")
_TURNS = re.compile(
    r"\b(?:not|no|never|none|neither|nor|without|cannot|unless|until|till|if|whether|when|once|before|after|only|except|"
    r"instead|rather|but|otherwise|or)\b|n['’]t\b|\?",
    re.IGNORECASE,
)
_ENDS = re.compile(
    r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bcf)(?<!\bMr)(?<!\bMs)(?<!\bDr)[.!?…。！？]+(?=[\"'”’)\]]*(?:\s|$))"
    r"|\n[^\S\n]*\n"
)


def grounded(text: str, cited: Sequence[str]) -> str | None:
    """Why `text` is no quotation of each of the cited texts; None if it is."""
    wanted = [word for word, _, _ in _words(text)]
    if not wanted:
        return "there are no words in it"
    for each in cited:
        sources = list(_sources(wanted, each))
        if not sources:
            return "its words do not stand there one after another"
        if not any(_turns(source) == _turns(text) for source in sources):
            return "it leaves out a word that turns the sense"
    return None


def _sources(wanted: Sequence[str], text: str) -> Iterator[str]:
    """The sentences of a text, each time that the words stand there one after another."""
    words = list(_words(text))
    ends = [(found.start(), found.end()) for found in _ENDS.finditer(text)]
    for at in range(len(words) - len(wanted) + 1):
        if all(words[at + step][0] == word for step, word in enumerate(wanted)):
            start, end = words[at][1], words[at + len(wanted) - 1][2]
            first = max((after for _, after in ends if after <= start), default=0)
            last = min((after for before, after in ends if before >= end), default=len(text))
            yield text[first:last]


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    """The words, numbers and signs of a text, and where each begins and ends."""
    for found in _TOKEN.finditer(text):
        yield found[0].casefold().replace("’", "'"), found.start(), found.end()


def _turns(text: str) -> Counter[str]:
    return Counter(found.casefold().replace("’", "'") for found in _TURNS.findall(text))
