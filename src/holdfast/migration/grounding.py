"""Grounding: whether a sentence says what the messages that it cites say, as far as words can tell.

    most of its words are theirs, whatever the ending
    every number, and every name with a capital letter inside the sentence, is theirs
    the sentence of theirs that it is closest to denies exactly if it does

Made for English.  It refuses more than it has to: a summary that is refused costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from holdfast.migration.rules.words import sentences

__all__ = ["SHARE_MIN", "grounded"]

SHARE_MIN = 0.6  # of the words of a sentence that the cited messages must hold

_WORD = re.compile(r"[^\W\d_]{2,}")
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_NAME = re.compile(r"(?<=\s)[^\W\d_]*[A-Z][\w./@-]*")
_DENIES = re.compile(r"\b(?:not|no|never|none|neither|nor|without|cannot)\b|n['’]t\b", re.IGNORECASE)
_WORDS = """
    a an the and or but if so as at by for from in into of off on onto out over to up with about after before between
    is are was were be been being am do does did done has have had having will would shall should can could may might must
    i me my mine we us our ours you your yours he him his she her it its they them their this that these those there here
    who whom whose which what when where why how user assistant wants want asks ask asked says said decided decide agreed
    conversation question whether
    not no never none neither nor without cannot don doesn didn isn aren wasn won wouldn shouldn couldn can ll ve re
"""
_COMMON = frozenset(_WORDS.split())
_STEM_MIN = 4


def grounded(text: str, cited: Sequence[str]) -> str | None:
    """Why the cited texts do not say `text`; None if, as far as words can tell, they do."""
    theirs = "\n".join(cited)
    for what, pattern in (("number", _NUMBER), ("name", _NAME)):
        for found in pattern.findall(text):
            if found.strip(".,/-").casefold() not in theirs.casefold():
                return f"a {what} of it is not there"
    own, held = _stems(text), _stems(theirs)
    if own and len(own & held) / len(own) < SHARE_MIN:
        return f"{len(own & held)} of its {len(own)} words are there"
    nearest = max(_pieces(cited), key=lambda piece: (len(own & _stems(piece)), -len(piece)), default="")
    if bool(_DENIES.search(text)) != bool(_DENIES.search(nearest)):
        return "one of them denies, and the other does not"
    return None


def _pieces(cited: Iterable[str]) -> list[str]:
    return [sentence for text in cited for sentence in sentences(text)]


def _stems(text: str) -> set[str]:
    """The words that carry meaning, each by how it begins: endings differ from one telling to the next."""
    words = (word.casefold() for word in _WORD.findall(text))
    return {word[: max(_STEM_MIN, len(word) - 3)] for word in words if word not in _COMMON}
