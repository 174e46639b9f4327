"""What was decided: sentences of the user that decide, and proposals of the assistant that the user took up.

    user        "we decided …", "let's use …", "go with …", "I prefer …", "use … instead", "from now on …", "never …"
    assistant   "I suggest …", "we could use …", "shall I …?", "let's …", counted only if the user's next words agree

A decision that the user takes back ("forget that", "never mind", "scrap …") ends the one before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.migration.rules.requests import agrees, users_own
from holdfast.migration.rules.words import Found, Words, sentences, shortened

__all__ = ["DECISIONS_MAX", "decisions"]

DECISIONS_MAX = 12  # the newest

_DECIDES = re.compile(
    r"\b(?:(?:i|we)(?:'ve|’ve| have)? (?:decided|agreed|settled|chosen|opted)\b|it (?:is|was) (?:decided|agreed)"
    r"|decision(?: is)?:|let's (?:use|go|stick|stay|do|keep|take|make|start|skip|drop|switch|move)\b"
    r"|(?:i|we)(?:'ll|’ll| will| shall) (?:use|go with|take|keep|stick|stay|choose|pick)\b"
    r"|go(?:ing)? (?:with|for) (?!a |an )|stick(?:ing)? (?:with|to)|(?:i|we) (?:prefer|choose|pick|want to use)\b"
    r"|(?:use|take|make it|choose|pick) .{1,80}\binstead\b|instead of .{1,60}, (?:use|take)"
    r"|from now on|going forward|(?:we|you) (?:must|should) (?:always|never)|(?:always|never|don't ever|do not ever) \w+)",
    re.IGNORECASE,
)
_PROPOSES = re.compile(
    r"\b(?:i (?:suggest|propose|recommend|would suggest|would recommend|'d suggest|'d recommend)|i’d (?:suggest|recommend)"
    r"|let's|(?:we|you) (?:could|should|can) (?:use|go|take|make|keep|start|choose)|my (?:suggestion|recommendation|proposal) is"
    r"|shall (?:i|we)|should (?:i|we)|(?:would|do) you (?:like|want) (?:me|us) to)\b",
    re.IGNORECASE,
)
_TAKES_BACK = re.compile(
    r"^(?:(?:no|actually|ok(?:ay)?|wait|sorry)\b[, ]*)*(?:forget (?:that|it|about)|never ?mind|scrap (?:that|it)|cancel that"
    r"|undo that|i changed my mind|we changed our mind|ignore (?:that|what i said))",
    re.IGNORECASE,
)


def decisions(said: Sequence[Words]) -> list[Found]:
    """The decisions, in the order in which they were made."""
    own = {words.id: words for words in users_own(said)}
    found: list[Found] = []
    proposed: list[Found] = []
    for words in said:
        if words.role == "assistant":
            proposed = _proposals(words) or ([] if words.text.strip() else proposed)
        elif words.id in own:
            _hear(own[words.id], found, proposed)
            proposed = []
    return list({each.text.lower(): each for each in found}.values())[-DECISIONS_MAX:]


def _hear(words: Words, found: list[Found], proposed: list[Found]) -> None:
    spoken = sentences(words.text)
    if spoken and agrees(spoken[0]):
        found += proposed[-1:]
    for sentence in spoken:
        if _TAKES_BACK.match(sentence):
            del found[-1:]
        elif _DECIDES.search(sentence) and not sentence.endswith("?"):
            found.append(Found(shortened(sentence), words.id, "decision.user"))


def _proposals(words: Words) -> list[Found]:
    return [
        Found(shortened(sentence), words.id, "decision.confirmed")
        for sentence in sentences(words.text)
        if _PROPOSES.search(sentence)
    ]
