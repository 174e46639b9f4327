"""What the user wants in all.

1 the newest sentence of the user that names a goal ("my goal is …", "we are trying to …")
2 the request that opened the present topic: a question, an order, a wish
3 the first sentence of the user that is no greeting
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.migration.rules.requests import asked, is_courtesy, is_request, is_standing, users_own
from holdfast.migration.rules.topics import opening
from holdfast.migration.rules.words import Found, Words, sentences, shortened

__all__ = ["goal"]

_GOAL = re.compile(
    r"\b(?:(?:my|our|the|your)(?: \w+)? (?:goal|objective|aim|mission) (?:is|was|here is|now is)"
    r"|(?:i am|i'm|i’m|we are|we're|we’re) (?:now )?(?:trying|working|aiming|looking) (?:to|on|at)"
    r"|(?:what (?:i|we) (?:really |actually )?(?:want|need) is)"
    r"|(?:new|change of|changed) (?:goal|plan)\b)",
    re.IGNORECASE,
)


def goal(first: Words | None, said: Sequence[Words], *, whole: bool) -> Found | None:
    """What the user wants in all; `first` are the user's first words, `whole` whether `said` begins with them."""
    own = users_own(said)
    for words in reversed(own):
        for sentence in reversed(sentences(words.text)):
            if _GOAL.search(sentence):
                return Found(shortened(sentence), words.id, "goal.stated")
    opened = opening(said)
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
