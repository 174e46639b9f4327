"""What the user asks for: the goal that a conversation began with, and the request that it is at.

    goal   1 the newest sentence of the user that names one ("my goal is …", "we are trying to …")
           2 the first request of the user: a question, an order, a wish
           3 the first sentence of the user that is no greeting
    task   1 the newest message of the user that asks for something
           2 the same, where nothing the user says is a request

What frameworks write in the user's name (notes on tool results, files handed over, complaints of a
validator) is no request of the user, nor is a thank-you, a greeting, or a bare yes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.migration.rules.words import Found, Words, sentences, shortened

__all__ = ["agrees", "asked", "goal", "is_courtesy", "is_request", "task", "users_own"]

TASK_MAX = 600  # characters

_GOAL = re.compile(
    r"\b(?:(?:my|our|the|your)(?: \w+)? (?:goal|objective|aim|mission) (?:is|was|here is|now is)"
    r"|(?:i am|i'm|i’m|we are|we're|we’re) (?:now )?(?:trying|working|aiming|looking) (?:to|on|at)"
    r"|(?:what (?:i|we) (?:really |actually )?(?:want|need) is)"
    r"|(?:new|change of|changed) (?:goal|plan)\b)",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"^(?:current |your |the )?(?:task|goal|objective|request|question|query|prompt)\s*:\s*", re.IGNORECASE
)
_CRITERIA = re.compile(
    r"^(?:this is the expected criteria|this is the context|you must return the actual complete)",
    re.IGNORECASE,
)
_GREETING = re.compile(
    r"^(?:hi|hello|hey|hallo|howdy|greetings|dear \w+|good (?:morning|afternoon|evening|day))\b[\w ,'’]{0,24}[.!…]*$",
    re.IGNORECASE,
)
_COURTESY = re.compile(
    r"^(?:(?:ok(?:ay)?|great|perfect|nice|cool|good|well|awesome|excellent|got it|i see|understood|sure|thanks|thank you|thx|cheers"
    r"|many thanks|no problem|you're welcome|bye|goodbye|see you)\b[ ,.!]*)+"
    r"(?:(?:so|very) much|a lot|for (?:that|your help|everything)|again|then|so far)?[ ,.!]*$",
    re.IGNORECASE,
)
_AGREES = re.compile(
    r"^(?:yes|yep|yeah|yup|ok(?:ay)?|sure|agreed|correct|exactly|right|fine|perfect|great|sounds good|looks good|good idea"
    r"|go ahead|do (?:it|that|so)|please do|let's do (?:it|that)|works for me|deal|confirmed|approved|lgtm|absolutely|definitely)\b",
    re.IGNORECASE,
)
_NOT_THE_USERS = re.compile(
    r"^(?:</?[a-z][\w-]*(?: [^>]*)?>|analyze the tool result\b|validation feedback:|\d+ validation errors?:"
    r"|for context:\s*\[|fix the errors and try again)",
    re.IGNORECASE,
)
_HANDED_OVER = re.compile(r"^(?:(?:this is file \w+|attachments from tool call [\w-]+):\s*)+", re.IGNORECASE)
_ASKING = re.compile(
    r"^(?:who|whom|whose|what|what's|which|why|how|can i|may i|in (?:which|what))\b", re.IGNORECASE
)
_CLAUSE = re.compile(
    r"^(?:in|on|at|for|after|before|with|without|using|given|considering|based|if|when|once|while|as|to)\b[^,:]{1,80}[,:]\s*",
    re.IGNORECASE,
)
_WISH = re.compile(
    r"\b(?:please|i (?:want|need|wish|would like|'d like|have to|must)|i'd like|i’d like|we (?:want|need|would like|have to|must)"
    r"|we'd like|you (?:must|should|need to|have to)|help me|let's|let us|(?:can|could|would|will) you)\b",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"^(?:(?:and|now|then|so|also|next|first|second|finally|briefly|ok(?:ay)?|great|thanks|thank you|please|just|only|again|once more"
    r"|actually|instead|but|well|yes|no|alright|perfect|in one sentence)\b[,:.!]*\s*)+",
    re.IGNORECASE,
)
_VERBS = """
    acknowledge act add adjust advise analyse analyze answer append apply approve arrange ask assess assign
    assume attach book brainstorm break bring build buy calculate call cancel categorize change check choose
    cite clarify classify clean close code collect combine come compare compile complete compose compute confirm
    connect consider contact continue convert copy correct count create debug decide define delegate delete
    deliver demonstrate deploy derive describe design detail detect determine develop diagnose discuss display
    do document download draft draw edit elaborate email emit enable ensure enumerate estimate evaluate examine
    execute expand explain explore export express extend extract fetch fill filter find finish fix focus follow
    forget format forward gather generate get give go group guess handle help highlight identify imagine
    implement import improve include increase inform insert inspect install investigate invoke join keep label
    launch lead leave list load locate log look make manage map measure merge migrate modify monitor move
    multiply name navigate note offer open order organize outline output paraphrase parse pay perform pick place
    plan play plot prepare present pretend print process produce propose prove provide publish put query quote
    raise rank rate read rebuild recap recommend record reduce refactor refer refine refund register remember
    remind remove rename reorder repeat rephrase replace reply report request research reserve reset resolve
    respond restart return reverse review revise rewrite run save say schedule search select send separate set
    share shorten show simplify simulate sketch solve sort specify split start state stop store structure submit
    subtract suggest sum summarise summarize support switch take teach tell test think transcribe transfer
    transform translate try turn type understand undo update upload use validate verify visit wait walk watch
    write
"""
_ORDERS = frozenset(_VERBS.split())


def users_own(said: Iterable[Words]) -> list[Words]:
    """The messages in which the user speaks, without what a framework wrote in the user's name."""
    spoken = [
        msgspec.structs.replace(words, text=_HANDED_OVER.sub("", words.text.lstrip()))
        for words in said
        if words.role == "user"
    ]
    return [words for words in spoken if words.text.strip() and not _is_framework(words.text)]


def goal(first: Words | None, said: Sequence[Words], *, whole: bool) -> Found | None:
    """What the user wants in all; `first` are the user's first words, `whole` whether `said` begins with them."""
    own = users_own(said)
    for words in reversed(own):
        for sentence in reversed(sentences(words.text)):
            if _GOAL.search(sentence):
                return Found(shortened(sentence), words.id, "goal.stated")
    begin = own if whole else users_own([first] if first else [])
    for words in begin:
        first_asked = next((sentence for sentence in asked(words) if is_request(sentence)), None)
        if first_asked is not None:
            return Found(shortened(first_asked), words.id, "goal.first_request")
    for words in begin:
        for sentence in asked(words):
            if not is_courtesy(sentence):
                return Found(shortened(sentence), words.id, "goal.first_words")
    return None


def task(said: Sequence[Words]) -> Found | None:
    """What the user asked for last, and whether it was answered."""
    own = users_own(said)
    asked_before = _questioned(said)
    for words in reversed(own):
        found = asked(words)
        begin = next((at for at, sentence in enumerate(found) if is_request(sentence)), None)
        if begin is not None:
            return _task(said, words, found[begin:])
        rest = [sentence for sentence in found if not is_courtesy(sentence) and not agrees(sentence)]
        if rest and words.id not in asked_before:
            return _task(said, words, rest)
    return None


def is_request(sentence: str) -> bool:
    """Whether a sentence of the user asks for something."""
    if sentence.rstrip("\"'”’)").endswith("?"):
        return True
    bare = _LEAD.sub("", _CLAUSE.sub("", _LEAD.sub("", sentence)))
    verb = re.match(r"[A-Za-z]+(?:'[a-z]+)?", bare)
    if verb and (verb[0].lower() in _ORDERS or verb[0].lower() in ("don't", "never", "always")):
        return True
    return bool(_ASKING.match(bare) or _WISH.search(sentence)) and not is_courtesy(sentence)


def is_courtesy(sentence: str) -> bool:
    """Whether a sentence greets, thanks or says goodbye, and nothing else."""
    return bool(_GREETING.match(sentence) or _COURTESY.match(sentence)) or not re.search(r"\w", sentence)


def agrees(sentence: str) -> bool:
    """Whether a sentence begins by agreeing."""
    return bool(_AGREES.match(sentence))


def _task(said: Sequence[Words], words: Words, sentences: Sequence[str]) -> Found:
    place = next(at for at, each in enumerate(said) if each.id == words.id)
    answered = any(
        each.role == "assistant" and each.text.strip() and not each.calls for each in said[place + 1 :]
    )
    rule = "task.answered" if answered else "task.open"
    return Found(shortened(" ".join(sentences), TASK_MAX), words.id, rule)


def _questioned(said: Sequence[Words]) -> set[str]:
    """The messages of the user that follow a question of the assistant: what is no request there is the answer."""
    found: set[str] = set()
    asked = False
    for words in said:
        if words.role == "assistant":
            last = sentences(words.text)[-1:]
            asked = bool(last) and last[0].endswith("?")
        elif asked and not _is_framework(words.text):
            found.add(words.id)
            asked = False
    return found


def asked(words: Words) -> list[str]:
    """The sentences of a message of the user, without labels before them and without what a framework adds."""
    found: list[str] = []
    for sentence in sentences(words.text):
        if _CRITERIA.match(sentence):
            break
        bare = _LABEL.sub("", sentence)
        if bare:
            found.append(bare)
    return found


def _is_framework(text: str) -> bool:
    return bool(_NOT_THE_USERS.match(text.lstrip()))
