"""What the user wants in all.

1 the newest sentence of the user that names a goal ("my goal is …", "we are trying to …")
2 the request that opened the present topic: a question, an order, a wish
3 the first sentence of the user that is no greeting

A request continues the topic before it if it refers to it ("and a hard one?", "make it shorter"), says hardly
anything by itself, or shares a word with it.  Any other request opens a topic, and so does one that says so
("different question: …").
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.migration.rules.requests import ORDERS, asked, is_courtesy, is_request, is_standing, users_own
from perdure.migration.rules.words import Found, Words, sentences, shortened

__all__ = ["goal"]

_TOPIC_WORDS_MIN = 3  # that a request says by itself if it opens a topic

_OPENS = re.compile(
    r"^(?:(?:ok(?:ay)?|thanks|thank you|great|now|and|so|well|alright)\b[,:.! ]*)*(?:(?:a |one |an? )?(?:different|another|new|next"
    r"|unrelated|separate|other|quick|more) (?:question|topic|thing|task|subject|request|matter|issue|problem)\b"
    r"|something (?:else|different|completely different)\b|on (?:another|a different) note|chang(?:e|ing) (?:of |the )?(?:subject|topic)"
    r"|moving on|next(?: up)?[,:]|by the way|btw\b|let'?s talk about|switching (?:to|topics))",
    re.IGNORECASE,
)
_REFERS = re.compile(
    r"^(?:and|also|but|or|then|actually|instead|again|wait|sorry|hmm+|no|yes|what about|how about|same)\b"
    r"|\b(?:it|its|that|this|these|those|them|they|him|her|one|ones|there|same|again|instead|more|another|rest|above"
    r"|previous|both|also|too|else|shorter|longer)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]{4,}")
_ANY_WORD = re.compile(r"[^\W_]{3,}")
_ENDING = re.compile(r"(?:ies|ing|ed|es|s)$")
_GOAL = re.compile(
    r"\b(?:(?:my|our|the|your)(?: \w+)? (?:goal|objective|aim|mission) (?:is|was|here is|now is)"
    r"|(?:i am|i'm|i’m|we are|we're|we’re) (?:now )?(?:trying|working|aiming|looking) (?:to|on|at)"
    r"|(?:what (?:i|we) (?:really |actually )?(?:want|need) is)"
    r"|(?:new|change of|changed) (?:goal|plan)\b)",
    re.IGNORECASE,
)
_COMMON = frozenset(
    """
    about after again all and any anything are because before being below but can could did does doing done
    down each else every everyone five for four from get give good great had has have having hello help her
    here him himself his how into its just know last let like made make many may maybe might mine much must
    need next not nothing now one only other our out over please see shall she should since some something
    sorry such tell thank thanks that the their them then there these they thing things this those three
    today tomorrow too two under until use very want was way well were what when where which while who why
    will wish with without would write year you your yours
    """.split()  # noqa: SIM905  # a list of this length is read as words
)


def goal(first: Words | None, said: Sequence[Words], *, whole: bool) -> Found | None:
    """What the user wants in all; `first` are the user's first words, `whole` whether `said` begins with them."""
    own = users_own(said)
    for words in reversed(own):
        for sentence in reversed(sentences(words.text)):
            if _GOAL.search(sentence):
                return Found(shortened(sentence), words.id, "goal.stated")
    opened = _opening(said)
    if opened is not None:
        return _first_request(users_own([opened]), "goal.topic_request")
    begin = own if whole else users_own([first] if first else [])
    return _first_request(begin, "goal.first_request") or _first_words(begin)


def _first_request(own: Sequence[Words], rule: str) -> Found | None:
    for words in own:
        for sentence in asked(words):
            if is_request(sentence) and not is_standing(sentence):
                return Found(shortened(sentence), words.id, rule)
    return None


def _first_words(own: Sequence[Words]) -> Found | None:
    for words in own:
        for sentence in asked(words):
            if not is_courtesy(sentence):
                return Found(shortened(sentence), words.id, "goal.first_words")
    return None


def _opening(said: Sequence[Words]) -> Words | None:
    """The message of the user that opened the present topic; None: no later request opened another than the first."""
    own = {words.id: words for words in users_own(said)}
    opened: Words | None = None
    vocabulary: set[str] = set()
    has_begun = False
    for words in said:
        request = _request_in(own[words.id]) if words.id in own else None
        if request is not None and has_begun and _is_new(request, vocabulary):
            opened, vocabulary = words, set()
        has_begun = has_begun or request is not None
        vocabulary |= _content(words.text)
    return opened


def _request_in(words: Words) -> str | None:
    """The message from its first request on."""
    found = [sentence for sentence in asked(words) if not is_standing(sentence)]
    begin = next((at for at, sentence in enumerate(found) if is_request(sentence)), None)
    return None if begin is None else " ".join(found[begin:])


def _is_new(request: str, vocabulary: set[str]) -> bool:
    if _OPENS.match(request):
        return True
    if _REFERS.search(request) or len(_own_words(request)) < _TOPIC_WORDS_MIN:
        return False
    return _content(request).isdisjoint(vocabulary)


def _own_words(request: str) -> set[str]:
    """The words of a request that say what is asked for, without what every request has."""
    return {word for word in _ANY_WORD.findall(request.lower()) if word not in _COMMON}


def _content(text: str) -> set[str]:
    """The words of a text that say what it is about, without their endings."""
    words = (word for word in _WORD.findall(text.lower()) if word not in _COMMON and word not in ORDERS)
    return {_ENDING.sub("", word) for word in words}
