"""What was decided: sentences of the user that decide, and proposals of the assistant that the user took up.

    user        "we decided …", "let's use …", "go with …", "I prefer …", "use … instead", "from now on …", "never …"
    correction  "actually make that Saturday", "change it to blue": takes the place of the decision that it corrects
    answer      what the user answers to a choice that the assistant offers: "CSV or Excel?" "CSV, please."
    assistant   "I suggest …", "we could use …", "shall I …?", "let's …", counted only if the user's next words agree

A decision that the user takes back ("forget that", "never mind", "scrap …") ends the one before it.

What is open: questions that nobody has answered yet, and what was said to be undecided.

    asked      a question is open until the other side has spoken words of its own after it
    declared   "open question: …", "we still need to decide …", "… to be decided", "not sure yet whether …"; it
               is open until a later message of the same conversation says what was decided about it

Polite endings ("Is there anything else I can help with?") are no questions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.switching.checkpoint.heuristics.requests import agrees, asked, users_own
from perdure.switching.checkpoint.heuristics.sentences import RuleMatch, Utterance, sentences, shortened

__all__ = ["DECISIONS_MAX", "decisions", "QUESTIONS_MAX", "questions"]


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
    r"|undo that|i(?:'ve| have)? changed my mind|we(?:'ve| have)? changed our minds?|ignore (?:that|what i said))[,;:. ]*",
    re.IGNORECASE,
)
_CORRECTS = re.compile(
    r"^(?:(?:hm+|oh|no|ok(?:ay)?|sorry|wait|well|actually|on second thoughts?|rather|correction)\b[,:;. ]*)*"
    r"(?:(?:please |let's |can you |could you )*(?:make|change|move|switch|set|turn) (?:it|that|this|them)\b(?! (?:a bit|a little|more))"
    r"|.{0,80}\b(?:instead|after all)\b)"
    r"|^(?:(?:hm+|oh|no|sorry|wait)\b[,:;. ]*)*(?:actually|on second thoughts?|correction)\b[,: ]*"
    r".{0,60}\b(?:is|are|would be|works) (?:better|enough|fine|best)\b",
    re.IGNORECASE,
)
_MEANS_LAST = re.compile(
    r"^(?:hm+|oh|no|sorry|wait|actually|on second thoughts?|correction)\b|\b(?:it|that|this|them)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]{4,}")
_CHOICE = re.compile(r"\bor\b", re.IGNORECASE)
_UNDECIDED = re.compile(
    r"\b(?:not sure|don'?t know|no idea|unsure|maybe|later|whatever|you (?:decide|choose|pick)|doesn'?t matter|up to you|depends)\b",
    re.IGNORECASE,
)
ANSWER_WORDS_MAX = 16
_NEAR = 2  # messages of the user after which "it" means something else


def decisions(said: Sequence[Utterance]) -> list[RuleMatch]:
    """The decisions, in the order in which they were made."""
    own = {words.id: words for words in users_own(said)}
    heard = _Heard()
    for words in said:
        if words.role == "assistant":
            heard.listen(words)
        elif words.id in own:
            heard.hear(own[words.id])
    return list({each.text.lower(): each for each in heard.found}.values())[-DECISIONS_MAX:]


class _Heard:
    """The decisions so far, and what the assistant has put to the user."""

    def __init__(self) -> None:
        self.found: list[RuleMatch] = []
        self._made_at: list[int] = []  # at which message of the user each was made
        self._proposed: list[RuleMatch] = []
        self._choice: str | None = None  # between what the user was asked to choose
        self._messages = 0

    def listen(self, words: Utterance) -> None:
        """Take in what the assistant says; a message without words changes nothing."""
        if not words.text.strip():
            return
        self._proposed = _proposals(words)
        asked = [sentence for sentence in sentences(words.text) if sentence.endswith("?")]
        self._choice = asked[-1] if asked and _CHOICE.search(asked[-1]) else None

    def hear(self, words: Utterance) -> None:
        """Take in what the user says."""
        spoken = sentences(words.text)
        self._messages += 1
        if spoken and self._choice is not None and _chooses(spoken[0]):
            self._add(f"{self._choice} {spoken[0]}", words.id, "decision.answer")
            spoken = spoken[1:]
        elif spoken and agrees(spoken[0]) and self._proposed:
            best = self._proposed[-1]
            self._add(best.text, best.event, best.rule)
        for sentence in spoken:
            self._sentence(sentence, words.id)
        self._proposed, self._choice = [], None

    def _sentence(self, sentence: str, event: str) -> None:
        back = _TAKES_BACK.match(sentence)
        if back:
            del self.found[-1:], self._made_at[-1:]
            if len(sentence[back.end() :].split()) > 1:
                self._add(sentence, event, "decision.correction")
        elif sentence.endswith("?"):
            pass
        elif _CORRECTS.match(sentence):
            if self._is_corrected_by(sentence):
                del self.found[-1:], self._made_at[-1:]
            self._add(sentence, event, "decision.correction")
        elif _DECIDES.search(sentence):
            self._add(sentence, event, "decision.user")

    def _is_corrected_by(self, sentence: str) -> bool:
        """Whether a correction takes the place of the last decision: it is near, and meant or named by it."""
        if not self.found or self._messages - self._made_at[-1] > _NEAR:
            return False
        shared = set(_WORD.findall(sentence.lower())) & set(_WORD.findall(self.found[-1].text.lower()))
        return bool(_MEANS_LAST.search(sentence) or shared)

    def _add(self, text: str, event: str, rule: str) -> None:
        self.found.append(RuleMatch(shortened(text), event, rule))
        self._made_at.append(self._messages)


def _chooses(sentence: str) -> bool:
    """Whether a sentence answers a choice: short, no question, and not a way around it."""
    if sentence.endswith("?") or len(sentence.split()) > ANSWER_WORDS_MAX:
        return False
    return not (_UNDECIDED.search(sentence) or _DECIDES.search(sentence) or _CORRECTS.match(sentence))


def _proposals(words: Utterance) -> list[RuleMatch]:
    """What the assistant proposes; a question that only asks to go on stands behind the proposal itself."""
    found = [sentence for sentence in sentences(words.text) if _PROPOSES.search(sentence)]
    stated = [sentence for sentence in found if not sentence.endswith("?")]
    return [RuleMatch(shortened(sentence), words.id, "decision.confirmed") for sentence in stated or found]


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
_QUESTION_WORD = re.compile(r"[a-z0-9]{4,}")
_SHARED_MIN = 2  # words that a decision shares with a declared question that it answers


def questions(said: Sequence[Utterance]) -> list[RuleMatch]:
    """The open questions, in the order in which they were asked."""
    found = [*_declared(said), *_asked(said)]
    order = {words.id: at for at, words in enumerate(said)}
    found.sort(key=lambda each: order[each.event])
    return list({each.text.lower(): each for each in found}.values())[-QUESTIONS_MAX:]


def _asked(said: Sequence[Utterance]) -> list[RuleMatch]:
    own = {words.id: words for words in users_own(said)}
    spoken = [
        own.get(words.id, words)
        for words in said
        if words.text.strip() and (words.id in own or _answers(words))
    ]
    found: list[RuleMatch] = []
    for words in reversed(spoken):
        if words.role != spoken[-1].role:
            break
        found[:0] = _of(words)
    return found


def _answers(words: Utterance) -> bool:
    """Whether these are words of the assistant that do not merely announce what it is about to do."""
    return words.role == "assistant" and not words.calls


def _of(words: Utterance) -> list[RuleMatch]:
    found = [
        sentence
        for sentence in (asked(words) if words.role == "user" else sentences(words.text))
        if sentence.endswith("?") and not (words.role == "assistant" and _POLITE.search(sentence))
    ]
    return [RuleMatch(shortened(sentence), words.id, f"question.{words.role}") for sentence in found]


def _declared(said: Sequence[Utterance]) -> list[RuleMatch]:
    order = {words.id: at for at, words in enumerate(said)}
    settled = [(order[each.event], _words(each.text)) for each in decisions(said)]
    found: list[RuleMatch] = []
    for at, words in enumerate(said):
        for sentence in sentences(words.text):
            if not _DECLARED.search(sentence):
                continue
            about = _words(sentence)
            if not any(later > at and len(about & told) >= _SHARED_MIN for later, told in settled):
                found.append(RuleMatch(shortened(sentence), words.id, "question.declared"))
    return found


def _words(text: str) -> set[str]:
    return set(_QUESTION_WORD.findall(text.lower()))
