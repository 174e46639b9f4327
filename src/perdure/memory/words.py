"""Words: what a text is found by.

Letters and digits of any script, folded so that spelling in capitals or full width makes no
difference.  Scripts that are written without spaces are taken letter by letter.  Nothing else of a text comes
through, so nothing in it can be taken for a part of a query language.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

__all__ = ["QUERY_TERMS_MAX", "query_terms", "terms"]

QUERY_TERMS_MAX = 64

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


def terms(text: str) -> Iterator[str]:
    """The terms of a text, in order."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    for word in _WORD.findall(folded):
        if _UNSPACED.search(word) is None:
            yield word
        else:
            yield from _apart(word)


def query_terms(text: str) -> list[str]:
    """The first different terms of a text, as many as a query takes."""
    found: dict[str, None] = {}
    for term in terms(text):
        found.setdefault(term)
        if len(found) == QUERY_TERMS_MAX:
            break
    return list(found)


def _apart(word: str) -> Iterator[str]:
    """The letters of unspaced scripts one by one, and what stands between them."""
    at = 0
    for letter in _UNSPACED.finditer(word):
        if letter.start() > at:
            yield word[at : letter.start()]
        yield letter.group()
        at = letter.end()
    if at < len(word):
        yield word[at:]
