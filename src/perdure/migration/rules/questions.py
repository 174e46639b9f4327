"""What is open: questions that nobody has answered yet, and what was said to be undecided.

    asked      a question is open until the other side has spoken words of its own after it
    declared   "open question: …", "we still need to decide …", "… to be decided", "not sure yet whether …"; it
               is open until a later message of the same conversation says what was decided about it

Polite endings ("Is there anything else I can help with?") are no questions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.migration.rules.decisions import decisions
from perdure.migration.rules.requests import asked, users_own
from perdure.migration.rules.words import Found, Words, sentences, shortened

__all__ = ["QUESTIONS_MAX", "questions"]

QUESTIONS_MAX = 12  # the newest

_POLITE = re.compile(
    r"\b(?:anything else|something (?:else|specific)|how (?:can|may|could) i (?:help|assist)|what can i (?:do|help)"
    r"|how are you|help you (?:today|with)|assist you|let me know|what would you like to (?:do|know|talk|discuss)"
    r"|would you like (?:me to|to know|more)|do you (?:want me to|have any (?:other |further )?questions)|make sense|right)\b[^?]*\?"
    r"|\b(?:any (?:other|further|more) questions|want to know more|what do you think|how does (?:that|this|it) (?:sound|look)"
    r"|does (?:that|this|it) (?:help|work|answer|look)|is (?:that|this|it) (?:ok(?:ay)?|all right|alright|what you)"
    r"|(?:would you like|do you want|shall we|can i|could i|may i)\b[^?]*\b(?:else|more|further|anything|adjust\w*|changes?)"
    r"|shall i (?:go on|continue|proceed)(?=\?))\b[^?]*\?",
    re.IGNORECASE,
)
_DECLARED = re.compile(
    r"\bopen (?:question|point|issue)s?\s*:|\b(?:still|yet) (?:need|have|want) to (?:decide|figure out|agree|settle|clarify|find out)"
    r"|\b(?:tbd|to be (?:decided|determined|clarified|confirmed)|undecided|remains? open|not (?:yet )?decided)\b"
    r"|\b(?:not sure (?:yet )?(?:whether|if|how|which|what)|(?:don't|do not) know yet)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[a-z0-9]{4,}")
_SHARED_MIN = 2  # words that a decision shares with a declared question that it answers


def questions(said: Sequence[Words]) -> list[Found]:
    """The open questions, in the order in which they were asked."""
    found = [*_declared(said), *_asked(said)]
    order = {words.id: at for at, words in enumerate(said)}
    found.sort(key=lambda each: order[each.event])
    return list({each.text.lower(): each for each in found}.values())[-QUESTIONS_MAX:]


def _asked(said: Sequence[Words]) -> list[Found]:
    own = {words.id: words for words in users_own(said)}
    spoken = [
        own.get(words.id, words)
        for words in said
        if words.text.strip() and (words.id in own or _answers(words))
    ]
    found: list[Found] = []
    for words in reversed(spoken):
        if words.role != spoken[-1].role:
            break
        found[:0] = _of(words)
    return found


def _answers(words: Words) -> bool:
    """Whether these are words of the assistant that do not merely announce what it is about to do."""
    return words.role == "assistant" and not words.calls


def _of(words: Words) -> list[Found]:
    found = [
        sentence
        for sentence in (asked(words) if words.role == "user" else sentences(words.text))
        if sentence.endswith("?") and not (words.role == "assistant" and _POLITE.search(sentence))
    ]
    return [Found(shortened(sentence), words.id, f"question.{words.role}") for sentence in found]


def _declared(said: Sequence[Words]) -> list[Found]:
    order = {words.id: at for at, words in enumerate(said)}
    settled = [(order[each.event], _words(each.text)) for each in decisions(said)]
    found: list[Found] = []
    for at, words in enumerate(said):
        for sentence in sentences(words.text):
            if not _DECLARED.search(sentence):
                continue
            about = _words(sentence)
            if not any(later > at and len(about & told) >= _SHARED_MIN for later, told in settled):
                found.append(Found(shortened(sentence), words.id, "question.declared"))
    return found


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))
