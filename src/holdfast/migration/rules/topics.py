"""Topics: which message of the user opened what a conversation is about now.

A request goes on with the topic before it if it leans on that ("and a hard one?", "make it shorter"), says hardly
anything by itself, or shares a word with it.  Any other request opens a topic, and so does one that says so
("different question: …").
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.migration.rules.requests import ORDERS, asked, is_request, is_standing, users_own
from holdfast.migration.rules.words import Words

__all__ = ["opening"]

WORDS_MIN = 3  # that a request says by itself if it opens a topic

_OPENS = re.compile(
    r"^(?:(?:ok(?:ay)?|thanks|thank you|great|now|and|so|well|alright)\b[,:.! ]*)*(?:(?:a |one |an? )?(?:different|another|new|next"
    r"|unrelated|separate|other|quick|more) (?:question|topic|thing|task|subject|request|matter|issue|problem)\b"
    r"|something (?:else|different|completely different)\b|on (?:another|a different) note|chang(?:e|ing) (?:of |the )?(?:subject|topic)"
    r"|moving on|next(?: up)?[,:]|by the way|btw\b|let'?s talk about|switching (?:to|topics))",
    re.IGNORECASE,
)
_LEANS = re.compile(
    r"^(?:and|also|but|or|then|actually|instead|again|wait|sorry|hmm+|no|yes|what about|how about|same)\b"
    r"|\b(?:it|its|that|this|these|those|them|they|him|her|one|ones|there|same|again|instead|more|another|rest|above"
    r"|previous|both|also|too|else|shorter|longer)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]{4,}")
_ANY_WORD = re.compile(r"[^\W_]{3,}")
_ENDING = re.compile(r"(?:ies|ing|ed|es|s)$")
_COMMON = frozenset(
    """
    about after again all and any are but can did does for get give had has her him his how its let make may not now one our out see she tell the too two use was way who why write you
    anything because before being below could does doing done down each else every everyone five
    four from good great have having hello help here himself into just know last like made many maybe might mine much
    must need next nothing only other over please shall should since some something sorry such thank thanks that
    their them then there these they thing things this those three today tomorrow under until very want well were what
    when where which while will wish with without would year your yours
    """.split()  # noqa: SIM905  # a list of this length is read as words
)


def opening(said: Sequence[Words]) -> Words | None:
    """The message of the user that opened the present topic; None: no later request opened another than the first."""
    own = {words.id: words for words in users_own(said)}
    opened: Words | None = None
    vocabulary: set[str] = set()
    has_begun = False
    for words in said:
        request = _request(own[words.id]) if words.id in own else None
        if request is not None and has_begun and _is_new(request, vocabulary):
            opened, vocabulary = words, set()
        has_begun = has_begun or request is not None
        vocabulary |= _content(words.text)
    return opened


def _request(words: Words) -> str | None:
    """The message from its first request on."""
    found = [sentence for sentence in asked(words) if not is_standing(sentence)]
    begin = next((at for at, sentence in enumerate(found) if is_request(sentence)), None)
    return None if begin is None else " ".join(found[begin:])


def _is_new(request: str, vocabulary: set[str]) -> bool:
    if _OPENS.match(request):
        return True
    if _LEANS.search(request) or len(_telling(request)) < WORDS_MIN:
        return False
    return _content(request).isdisjoint(vocabulary)


def _telling(request: str) -> set[str]:
    """The words of a request that say what is asked for, without what every request has."""
    return {word for word in _ANY_WORD.findall(request.lower()) if word not in _COMMON}


def _content(text: str) -> set[str]:
    """The words of a text that say what it is about, without their endings."""
    words = (word for word in _WORD.findall(text.lower()) if word not in _COMMON and word not in ORDERS)
    return {_ENDING.sub("", word) for word in words}
