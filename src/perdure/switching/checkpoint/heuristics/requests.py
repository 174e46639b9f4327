"""What the user asks for: which sentences are requests, and the one that a conversation is at.

    task   1 the newest message of the user that asks for something
           2 the same, where nothing the user says is a request

What frameworks write in the user's name (notes on tool results, files handed over, complaints of a
validator) is no request of the user, nor is a thank-you, a greeting, or a bare yes.

What the user wants in all.

1 the newest sentence of the user that names a goal ("my goal is …", "we are trying to …")
2 the request that opened the present topic: a question, an order, a wish
3 the first sentence of the user that is no greeting

A request continues the topic before it if it refers to it ("and a hard one?", "make it shorter"), says hardly
anything by itself, or shares a word with it.  Any other request opens a topic, and so does one that says so
("different question: …").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from perdure.switching.checkpoint.heuristics.sentences import RuleMatch, Utterance, sentences, shortened

__all__ = [
    "ORDERS",
    "agrees",
    "asked",
    "is_courtesy",
    "is_request",
    "is_standing",
    "task",
    "users_own",
    "goal",
]


TASK_MAX = 600  # characters
NOD_WORDS_MAX = 4

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
    r"|for context:\s*\[|fix the errors and try again)"
    r"|^(?:please )?(?:see|find|refer to|view|here(?:'s| is| are)|attached(?: is| are)?)\b[^.!?\n]{0,40}"
    r"\b(?:attach\w*|files?|documents?|images?|pictures?|screenshots?)(?:\(s\))?\W*\Z",
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
    r"|actually|instead|but|well|yes|no|alright|perfect|sorry|wait|hm+|oh|on second thoughts?|in one sentence)\b[,:.!]*\s*)+",
    re.IGNORECASE,
)
_STANDING = re.compile(
    r"^(?:(?:and|also|please|but|ok(?:ay)?)\b[, ]*)*(?:from now on|going forward|in (?:the )?future|always|never|don'?t ever|do not ever)\b",
    re.IGNORECASE,
)
_SETTLES = re.compile(
    r"^(?:(?:ok(?:ay)?|then|so|well|yes|hm+|and)\b[, ]*)*(?:let'?s (?:go with|use|stick|take|keep|do|start with)|go with|stick (?:with|to))\b",
    re.IGNORECASE,
)
_STATES = re.compile(
    r"^(?:i'?m|i’m|i am|i have|i've|we're|we are|we have|it'?s|it is|my|our|that'?s|there (?:is|are))\b",
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
ORDERS = frozenset(_VERBS.split())


def users_own(said: Iterable[Utterance]) -> list[Utterance]:
    """The messages in which the user speaks, without what a framework wrote in the user's name."""
    spoken = [
        msgspec.structs.replace(words, text=_HANDED_OVER.sub("", words.text.lstrip()))
        for words in said
        if words.role == "user"
    ]
    return [words for words in spoken if words.text.strip() and not _is_framework(words.text)]


def task(said: Sequence[Utterance]) -> RuleMatch | None:
    """What the user asked for last, and whether it was answered."""
    own = users_own(said)
    asked_before = _questioned(said)
    for words in reversed(own):
        found = [sentence for sentence in asked(words) if not _is_nod(sentence)]
        begin = next((at for at, sentence in enumerate(found) if _is_task(sentence)), None)
        if begin is not None and not (words.id in asked_before and _is_short_answer(found)):
            return _task(said, words, found[begin:])
        rest = [sentence for sentence in found if not _is_beside(sentence)]
        if rest and words.id not in asked_before:
            return _task(said, words, rest)
    unasked = [words for words in own if words.id not in asked_before]
    return _last_request(said, unasked) or _last_request(said, own)


def _last_request(said: Sequence[Utterance], own: Sequence[Utterance]) -> RuleMatch | None:
    """The newest request of any kind: a rule for later, or a fact, where the user says nothing else."""
    for words in reversed(own):
        found = [each for each in asked(words) if not is_courtesy(each) and not agrees(each)]
        if found:
            return _task(said, words, found)
    return None


def _is_task(sentence: str) -> bool:
    return is_request(sentence) and not is_standing(sentence) and not _SETTLES.match(sentence)


def _is_nod(sentence: str) -> bool:
    """Whether a sentence only agrees ("ok do it"); one that agrees and goes on is more."""
    return agrees(sentence) and len(sentence.split()) <= NOD_WORDS_MAX and not sentence.endswith("?")


def _is_short_answer(found: Sequence[str]) -> bool:
    """Whether these few words answer a question rather than ask for something ("net 30 please")."""
    return (
        len(found) == 1
        and len(found[0].split()) <= NOD_WORDS_MAX
        and not found[0].endswith("?")
        and not _orders(found[0])
    )


def _is_beside(sentence: str) -> bool:
    """Whether a sentence asks for nothing by itself: thanks, consent, a rule for later, a fact about the user."""
    return bool(is_courtesy(sentence) or agrees(sentence) or is_standing(sentence) or _STATES.match(sentence))


def is_request(sentence: str) -> bool:
    """Whether a sentence of the user asks for something."""
    if sentence.rstrip("\"'”’)").endswith("?"):
        return True
    if _orders(sentence):
        return True
    bare = _bare(sentence)
    return bool(_ASKING.match(bare) or _WISH.search(sentence)) and not is_courtesy(sentence)


def is_standing(sentence: str) -> bool:
    """Whether a sentence lays down a rule for what comes later ("from now on …", "never …")."""
    return bool(_STANDING.match(sentence))


def _orders(sentence: str) -> bool:
    """Whether a sentence begins with an order."""
    verb = re.match(r"[A-Za-z]+(?:'[a-z]+)?", _bare(sentence))
    return verb is not None and (verb[0].lower() in ORDERS or verb[0].lower() in ("don't", "never", "always"))


def _bare(sentence: str) -> str:
    """The sentence without the words that lead up to it."""
    return _LEAD.sub("", _CLAUSE.sub("", _LEAD.sub("", sentence)))


def is_courtesy(sentence: str) -> bool:
    """Whether a sentence greets, thanks or says goodbye, and nothing else."""
    return bool(_GREETING.match(sentence) or _COURTESY.match(sentence)) or not re.search(r"\w", sentence)


def agrees(sentence: str) -> bool:
    """Whether a sentence begins by agreeing."""
    return bool(_AGREES.match(sentence))


def _task(said: Sequence[Utterance], words: Utterance, sentences: Sequence[str]) -> RuleMatch:
    place = next(at for at, each in enumerate(said) if each.id == words.id)
    answered = any(
        each.role == "assistant" and each.text.strip() and not each.calls for each in said[place + 1 :]
    )
    rule = "task.answered" if answered else "task.open"
    return RuleMatch(shortened(" ".join(sentences), TASK_MAX), words.id, rule)


def _questioned(said: Sequence[Utterance]) -> set[str]:
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


def asked(words: Utterance) -> list[str]:
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


def goal(first: Utterance | None, said: Sequence[Utterance], *, whole: bool) -> RuleMatch | None:
    """What the user wants in all; `first` are the user's first words, `whole` whether `said` begins with them."""
    own = users_own(said)
    for words in reversed(own):
        for sentence in reversed(sentences(words.text)):
            if _GOAL.search(sentence):
                return RuleMatch(shortened(sentence), words.id, "goal.stated")
    opened = _opening(said)
    if opened is not None:
        return _first_request(users_own([opened]), "goal.topic_request")
    begin = own if whole else users_own([first] if first else [])
    return _first_request(begin, "goal.first_request") or _first_words(begin)


def _first_request(own: Sequence[Utterance], rule: str) -> RuleMatch | None:
    for words in own:
        for sentence in asked(words):
            if is_request(sentence) and not is_standing(sentence):
                return RuleMatch(shortened(sentence), words.id, rule)
    return None


def _first_words(own: Sequence[Utterance]) -> RuleMatch | None:
    for words in own:
        for sentence in asked(words):
            if not is_courtesy(sentence):
                return RuleMatch(shortened(sentence), words.id, "goal.first_words")
    return None


def _opening(said: Sequence[Utterance]) -> Utterance | None:
    """The message of the user that opened the present topic; None: no later request opened another than the first."""
    own = {words.id: words for words in users_own(said)}
    opened: Utterance | None = None
    vocabulary: set[str] = set()
    has_begun = False
    for words in said:
        request = _request_in(own[words.id]) if words.id in own else None
        if request is not None and has_begun and _is_new(request, vocabulary):
            opened, vocabulary = words, set()
        has_begun = has_begun or request is not None
        vocabulary |= _content(words.text)
    return opened


def _request_in(words: Utterance) -> str | None:
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
