"""Rules over messages: goal, task, decisions and open questions without a model, each with its source.

Made for English.  The rules do not look at code, quotations, pasted files and the reasoning that some models write
into their answers: a decision inside a quoted mail is not a decision of this conversation.  Nor do they look at what
frameworks write in the user's name: notes on tool results, files handed over, complaints of a validator.

Task: the newest message of the user that asks for something.  A thank-you, a greeting or a bare yes is no request;
"do it again" is one.

Goal:
    1 the newest sentence of the user that names a goal ("my goal is …", "we are trying to …")
    2 the request that opened the present topic: a question, an order, a wish
    3 the first sentence of the user that is no greeting
A request continues the topic before it if it refers to it ("and a hard one?", "make it shorter"), says hardly
anything by itself, or shares a word with it.  Any other request opens a topic, and so does one that says so
("different question: …").

Decisions: sentences of the user that decide, and proposals of the assistant that the user accepted.
    user        "we decided …", "let's use …", "go with …", "I prefer …", "use … instead", "from now on …", "never …"
    correction  "actually make that Saturday", "change it to blue": replaces the decision that it corrects
    answer      what the user answers to a choice that the assistant offers: "CSV or Excel?" "CSV, please."
    assistant   "I suggest …", "we could use …", "shall I …?", "let's …", counted only if the user's next words agree
A decision that the user takes back ("forget that", "never mind", "scrap …") ends the one before it.

Open questions: questions without an answer, and what was said to be undecided.
    asked      a question is open until the other side has spoken words of its own after it
    declared   "open question: …", "we still need to decide …", "… to be decided", "not sure yet whether …"; it
               is open until a later message of the same conversation says what was decided about it
Polite endings ("Is there anything else I can help with?") are no questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

__all__ = [
    "goal",
    "task",
    "decisions",
    "questions",
    "RuleMatch",
    "Utterance",
    "clean",
    "shortened",
    "sentences",
]

SENTENCE_MAX = 300  # characters; a longer sentence is cut, with an ellipsis
LOOKED_AT_MAX = (
    8_000  # characters of one message that the rules read: half from its beginning, half from its end
)

_LINE_MAX = 1_000  # characters of one sentence that the rules read

_LETTER = re.compile(r"[^\W_]")
_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_THOUGHT = re.compile(r"<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_ENCLOSED = re.compile(
    r"<(file|document|attachment|tool-content)\b[^>]{0,500}>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE
)
_TABLE = re.compile(r"^[ \t]*\|.*$", re.MULTILINE)
_QUOTED = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_MARKS = re.compile(r"^\s*(?:#{1,6}\s+|[-*+•]\s+|\d{1,3}[.)]\s+)")
_EMPHASIS = re.compile(r"\*\*|__(?=\S)|(?<=\S)__")
_END = re.compile(r"""(?<=[.!?…])["'”’)\]]*\s+(?=\S)|(?<=\?)(?=[A-Z])""")
_SHORT = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|mr|mrs|ms|dr|prof|no|fig|approx|inc|ltd|st|u\.s)|\b[A-Z])\.$", re.IGNORECASE
)
# Controls, marks that turn or hide text, lone surrogates, private letters: spelled out, because Python's own classes
# change from version to version, and a checkpoint must be the same in each.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ue000-\uf8ff\ufeff\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)


class Utterance(msgspec.Struct, frozen=True):
    """The text of one message."""

    id: str  # of the message
    role: str  # `user` or `assistant`
    text: str
    calls: bool = False  # True: it requested tool calls


class RuleMatch(msgspec.Struct, frozen=True):
    """One text that a rule found, with its message."""

    text: str
    event: str  # the message that says so
    rule: str


def sentences(text: str) -> tuple[str, ...]:
    """Split a text into sentences, each on one line and without marks of lists and headings."""
    half = LOOKED_AT_MAX // 2
    return _sentences(text if len(text) <= LOOKED_AT_MAX else f"{text[:half]}\n{text[-half:]}")


def clean(text: str) -> str:
    """Return the text on one line: white space as one space, without invisible characters."""
    return " ".join(_UNSEEN.sub(" ", text).split())


def shortened(text: str, limit: int = SENTENCE_MAX) -> str:
    """Cut the text, with an ellipsis, if it is longer than `limit`."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


@lru_cache(maxsize=256)  # every rule reads the same messages
def _sentences(text: str) -> tuple[str, ...]:
    for unlooked in (_CODE, _THOUGHT, _ENCLOSED, _TABLE, _QUOTED):
        text = unlooked.sub("\n", text)
    found: list[str] = []
    for line in text.splitlines():
        found += _of_line(_EMPHASIS.sub("", _MARKS.sub("", line)))
    return tuple(found)


def _of_line(line: str) -> list[str]:
    found: list[str] = []
    for piece in _END.split(line):
        part = clean(piece)[:_LINE_MAX]
        if found and len(found[-1]) < _LINE_MAX and _SHORT.search(found[-1][-8:]):
            found[-1] = f"{found[-1]} {part}".rstrip()
        elif _LETTER.search(part):
            found.append(part)
    return found


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
_REPEATS = re.compile(r"\b(?:again|once more)\b", re.IGNORECASE)
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
    """Return the messages of the user, without those that a framework wrote in the user's name."""
    spoken = [
        msgspec.structs.replace(words, text=_HANDED_OVER.sub("", words.text.lstrip()))
        for words in said
        if words.role == "user"
    ]
    return [words for words in spoken if words.text.strip() and not _is_framework(words.text)]


def task(said: Sequence[Utterance], *, newest: bool = True) -> RuleMatch | None:
    """Find what the user asked for last, and whether it was answered; not `newest`: as rules before these did."""
    own = users_own(said)
    asked_before = _questioned(said)
    for words in reversed(own):
        found = [each for each in asked(words) if not _is_nod(each) or (newest and _REPEATS.search(each))]
        begin = next((at for at, sentence in enumerate(found) if _is_task(sentence)), None)
        if begin is not None and not (words.id in asked_before and _is_short_answer(found)):
            return _task(said, words, found[begin:])
        rest = [sentence for sentence in found if not _is_beside(sentence)]
        if rest and words.id not in asked_before:
            return _task(said, words, rest)
    unasked = [words for words in own if words.id not in asked_before]
    return _last_request(said, unasked) or _last_request(said, own)


def _last_request(said: Sequence[Utterance], own: Sequence[Utterance]) -> RuleMatch | None:
    """Find the newest request of any kind: also a rule for later, or a fact, if the user says nothing else."""
    for words in reversed(own):
        found = [each for each in asked(words) if not is_courtesy(each) and not agrees(each)]
        if found:
            return _task(said, words, found)
    return None


def _is_task(sentence: str) -> bool:
    return is_request(sentence) and not is_standing(sentence) and not _SETTLES.match(sentence)


def _is_nod(sentence: str) -> bool:
    """True if a sentence only agrees ("ok do it"); a longer one says more."""
    return agrees(sentence) and len(sentence.split()) <= NOD_WORDS_MAX and not sentence.endswith("?")


def _is_short_answer(found: Sequence[str]) -> bool:
    """True if these few words answer a question rather than ask for something ("net 30 please")."""
    return (
        len(found) == 1
        and len(found[0].split()) <= NOD_WORDS_MAX
        and not found[0].endswith("?")
        and not _orders(found[0])
    )


def _is_beside(sentence: str) -> bool:
    """True if a sentence asks for nothing by itself: thanks, consent, a rule for later, a fact about the user."""
    return bool(is_courtesy(sentence) or agrees(sentence) or is_standing(sentence) or _STATES.match(sentence))


def is_request(sentence: str) -> bool:
    """True if a sentence of the user asks for something."""
    if sentence.rstrip("\"'”’)").endswith("?"):
        return True
    if _orders(sentence):
        return True
    bare = _bare(sentence)
    return bool(_ASKING.match(bare) or _WISH.search(sentence)) and not is_courtesy(sentence)


def is_standing(sentence: str) -> bool:
    """True if a sentence is a rule for later ("from now on …", "never …")."""
    return bool(_STANDING.match(sentence))


def _orders(sentence: str) -> bool:
    """True if a sentence begins with an order."""
    verb = re.match(r"[A-Za-z]+(?:'[a-z]+)?", _bare(sentence))
    return verb is not None and (verb[0].lower() in ORDERS or verb[0].lower() in ("don't", "never", "always"))


def _bare(sentence: str) -> str:
    """Return the sentence without its introductory words."""
    return _LEAD.sub("", _CLAUSE.sub("", _LEAD.sub("", sentence)))


def is_courtesy(sentence: str) -> bool:
    """True if a sentence only greets, thanks or says goodbye."""
    return bool(_GREETING.match(sentence) or _COURTESY.match(sentence)) or not re.search(r"\w", sentence)


def agrees(sentence: str) -> bool:
    """True if a sentence begins by agreeing."""
    return bool(_AGREES.match(sentence))


def _task(said: Sequence[Utterance], words: Utterance, sentences: Sequence[str]) -> RuleMatch:
    place = next(at for at, each in enumerate(said) if each.id == words.id)
    answered = any(
        each.role == "assistant" and each.text.strip() and not each.calls for each in said[place + 1 :]
    )
    rule = "task.answered" if answered else "task.open"
    return RuleMatch(shortened(" ".join(sentences), TASK_MAX), words.id, rule)


def _questioned(said: Sequence[Utterance]) -> set[str]:
    """Return the messages of the user that follow a question of the assistant: if they request nothing, they answer it."""
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
    """Return the sentences of a message of the user, without labels and without the additions of a framework."""
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


_TOPIC_WORDS_MIN = 3  # words of its own that a request needs to open a topic

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
    """Find the user's goal; `first` is the user's first message, `whole` says whether `said` begins with it."""
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
    """Find the message of the user that opened the present topic; None: it is still the first topic."""
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
    """Return the text of a message from its first request on; None: it has no request."""
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
    """Return the specific words of a request, without common ones."""
    return {word for word in _ANY_WORD.findall(request.lower()) if word not in _COMMON}


def _content(text: str) -> set[str]:
    """Return the specific words of a text, without their endings."""
    words = (word for word in _WORD.findall(text.lower()) if word not in _COMMON and word not in ORDERS)
    return {_ENDING.sub("", word) for word in words}


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
_CHOICE = re.compile(r"\bor\b", re.IGNORECASE)
_UNDECIDED = re.compile(
    r"\b(?:not sure|don'?t know|no idea|unsure|maybe|later|whatever|you (?:decide|choose|pick)|doesn'?t matter|up to you|depends)\b",
    re.IGNORECASE,
)
ANSWER_WORDS_MAX = 16
_NEAR = 2  # after so many messages of the user, "it" means another thing


def decisions(said: Sequence[Utterance]) -> list[RuleMatch]:
    """Find the decisions, in the order in which they were made."""
    own = {words.id: words for words in users_own(said)}
    heard = _Heard()
    for words in said:
        if words.role == "assistant":
            heard.listen(words)
        elif words.id in own:
            heard.hear(own[words.id])
    return list({each.text.lower(): each for each in heard.found}.values())[-DECISIONS_MAX:]


class _Heard:
    """Collects the decisions so far, and what the assistant has proposed."""

    def __init__(self) -> None:
        self.found: list[RuleMatch] = []
        self._made_at: list[int] = []  # the number of the user's message for each
        self._proposed: list[RuleMatch] = []
        self._choice: str | None = None  # the question that offers a choice
        self._messages = 0

    def listen(self, words: Utterance) -> None:
        """Read a message of the assistant; an empty one changes nothing."""
        if not words.text.strip():
            return
        self._proposed = _proposals(words)
        asked = [sentence for sentence in sentences(words.text) if sentence.endswith("?")]
        self._choice = asked[-1] if asked and _CHOICE.search(asked[-1]) else None

    def hear(self, words: Utterance) -> None:
        """Read a message of the user."""
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
        """True if a correction replaces the last decision: it is near, and refers to it or shares a word with it."""
        if not self.found or self._messages - self._made_at[-1] > _NEAR:
            return False
        shared = set(_WORD.findall(sentence.lower())) & set(_WORD.findall(self.found[-1].text.lower()))
        return bool(_MEANS_LAST.search(sentence) or shared)

    def _add(self, text: str, event: str, rule: str) -> None:
        self.found.append(RuleMatch(shortened(text), event, rule))
        self._made_at.append(self._messages)


def _chooses(sentence: str) -> bool:
    """True if a sentence answers a choice: it is short, no question, and does not evade it."""
    if sentence.endswith("?") or len(sentence.split()) > ANSWER_WORDS_MAX:
        return False
    return not (_UNDECIDED.search(sentence) or _DECIDES.search(sentence) or _CORRECTS.match(sentence))


def _proposals(words: Utterance) -> list[RuleMatch]:
    """Find what the assistant proposes; a statement counts before a question that only asks to go on."""
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
_SHARED_MIN = 2  # words that a decision shares with the declared question that it answers


def questions(said: Sequence[Utterance]) -> list[RuleMatch]:
    """Find the open questions, in the order in which they were asked."""
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
    """True if this is a message of the assistant without tool calls, which would only announce them."""
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
