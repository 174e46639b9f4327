"""Lays out the messages of a timeline as a model is shown them: every call has its result right after it.

The transcript has events in the order in which they happened: the result of a call may come long after the call,
twice, or never.  A `Conversation` has exactly one result for each call, the last one, in the message right after the
call; for a call without a result it says so.  A result without a call is left out, and so is an empty message.
If the model has spoken since it made a call, a note also says where the result arrived that the call has ended: a
request never ends with the model's own words because a call was decided late.
Calls that were made before another backend took over are told in sentences instead.

`lay` builds a conversation: the words of the system with which it begins, the leading note, older messages that are
needed, then every message from one on.

`Cuts` say what is shortened because the context window has no room for it, by how much, and where the whole text is.
Nothing is cut while all of it fits.  Otherwise the results of tools are cut first, oldest first, down to a brief; the
text of other messages is cut only if nothing else helps.  Every cut is marked in the text, and the plan, the losses
of the step and the check of a switch name it with its sizes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal, TypeAlias, cast, overload

import msgspec

from perdure.context.history_window import MessageRef, messages_of
from perdure.context.render.call_summaries import (
    CallFacts,
    CallSummary,
    ended_later,
    in_sentences,
    is_note,
)
from perdure.context.render.notes import as_shown, unforged
from perdure.errors import Forgotten, NotFound
from perdure.history import artifacts
from perdure.history.space import Space
from perdure.model.artifact import parse_reference
from perdure.model.digest import Digest
from perdure.model.message import Block, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.model.recipe import Recipe
from perdure.providers.contract import Loss

__all__ = [
    "BRIEF_ARGUMENTS",
    "BRIEF_RESULT",
    "NO_CUTS",
    "WAITING",
    "Conversation",
    "CutText",
    "Cuts",
    "Laid",
    "MessageTexts",
    "Outcomes",
    "cut_texts",
    "cuts_in",
    "has_short_results",
    "is_short",
    "kept_as",
    "lay",
    "longest",
    "loss_of",
    "noted",
    "shortened",
]

BRIEF_RESULT = 1_200  # characters of a brief result
BRIEF_ARGUMENTS = 600  # the same for the arguments of a call that is told in sentences

_KEPT_AS = "is kept as artifact://sha256/"
_SHORT_MIN = 4_096  # a result that was shortened on arrival has more characters

CutKind: TypeAlias = Literal["tool result", "arguments", "text"]


class Cuts(msgspec.Struct, frozen=True, kw_only=True):
    """How messages are shortened; a message is named by its id."""

    texts: Mapping[str, int] = {}  # by message: the characters that are left of each of its texts
    results: Mapping[str, int] = {}  # the same for results, and for arguments that are told in sentences
    stored: Mapping[str, str] = {}  # by call: artifact://… of a result that is cut
    whole: Mapping[str, str] = {}  # by call: the artifact that replaces a result shortened on arrival
    short: Mapping[str, int] = {}  # by call: the characters of a whole result that stays shortened

    def apply(self, id: str, message: Message, *, told: bool) -> Message:
        """Return the message as it is shown; `told`: its calls are told in sentences."""
        most = self.results.get(id)
        if most is not None:
            message = self._brief(message, most, told=told)
        most = self.texts.get(id)
        return message if most is None else shortened(message, most, self.stored)

    @property
    def is_any(self) -> bool:
        """True if anything is shortened."""
        return bool(self.texts or self.results or self.short)

    def used(self, messages: Sequence[tuple[str, Message]]) -> Cuts:
        """Return the cuts without references to results that are shown whole."""
        stored = {
            each.call: each.reference for each in cut_texts(messages, self) if each.call and each.reference
        }
        return msgspec.structs.replace(self, stored=stored)

    def arguments_max(self, id: str, *, told: bool) -> int | None:
        """Return how long the arguments of a message's calls may be to be shown whole; None: no limit."""
        limits = (self.texts.get(id), self.results.get(id) if told else None)
        return min((each for each in limits if each is not None), default=None)

    def _brief(self, message: Message, most: int, *, told: bool) -> Message:
        calls = tuple(_told_call(call, most) for call in message.tool_calls) if told else message.tool_calls
        results = _results(message.tool_results, most, self.stored)
        if (calls, results) == (message.tool_calls, message.tool_results):
            return message
        return msgspec.structs.replace(message, tool_calls=calls, tool_results=results, vendor_metadata=None)


NO_CUTS = Cuts()


def cuts_in(recipe: Recipe) -> Cuts:
    """Return the cuts of a recipe."""
    return Cuts(
        texts=recipe.cut,
        results=recipe.cut_results,
        stored=recipe.stored,
        whole=recipe.whole,
        short=recipe.short,
    )


def kept_as(reference: str) -> str:
    """Return the end of the mark in a result that is shortened on arrival: where the whole is."""
    return f"is kept as {reference} …]"


def has_short_results(message: Message) -> bool:
    """True if a result of a message was shortened on arrival."""
    return bool(message.tool_results) and any(map(is_short, message.tool_results))


def is_short(result: ToolResult) -> bool:
    """True if a result was shortened on arrival."""
    for block in result.content:
        if isinstance(block, Text) and len(block.text) > _SHORT_MIN and _KEPT_AS in block.text:
            return True
    return False


class CutText(msgspec.Struct, frozen=True, kw_only=True):
    """One text that is shown in part."""

    kind: CutKind
    message: str  # its id
    where: str  # among the messages that are shown
    characters: int  # of the whole
    characters_shown: int
    call: str | None = None
    tool: str = ""
    reference: str | None = None  # artifact://… of the whole; None: it is in the history alone

    @property
    def what(self) -> str:
        """The name of the text, for a reader."""
        match self.kind:
            case "tool result":
                return f"the result of {self.tool}" if self.tool else "a tool result"
            case "arguments":
                return f"the arguments of {self.tool}"
            case "text":
                return "a message"

    @property
    def sizes(self) -> str:
        """The shown and the whole number of characters."""
        return f"{self.characters_shown:,} of {self.characters:,} characters"


def cut_texts(messages: Sequence[tuple[str, Message]], cuts: Cuts) -> Iterator[CutText]:
    """Yield the texts that are shown in part, of messages that are given with their ids."""
    tools = {call.id: call.name for _, message in messages for call in message.tool_calls}
    for at, (id, message) in enumerate(messages):
        text, result = cuts.texts.get(id), cuts.results.get(id)
        for index, block in enumerate(message.content if text is not None else ()):
            if isinstance(block, Text) and text is not None and len(block.text) > text:
                where = f"messages[{at}].content[{index}]"
                length = len(block.text)
                yield CutText(kind="text", message=id, where=where, characters=length, characters_shown=text)
        for index, each in enumerate(message.tool_results):
            if each.call_id in cuts.short:
                yield _short_text(each, id, f"messages[{at}].toolResults[{index}]", cuts, tools)
        most = min(each for each in (text, result) if each is not None) if text or result else None
        if most is None:
            continue
        for index, call in enumerate(message.tool_calls):
            if len(call.args) > most:
                yield CutText(
                    kind="arguments",
                    message=id,
                    where=f"messages[{at}].toolCalls[{index}].args",
                    characters=len(call.args),
                    characters_shown=0 if text is not None else most,
                    call=call.id,
                    tool=call.name,
                )
        for index, each in enumerate(message.tool_results):
            size = sum(len(block.text) for block in each.content if isinstance(block, Text))
            shown = sum(min(most, len(block.text)) for block in each.content if isinstance(block, Text))
            if shown < size and each.call_id not in cuts.short:
                yield CutText(
                    kind="tool result",
                    message=id,
                    where=f"messages[{at}].toolResults[{index}]",
                    characters=size,
                    characters_shown=shown,
                    call=each.call_id,
                    tool=tools.get(each.call_id, ""),
                    reference=cuts.stored.get(each.call_id),
                )


def _short_text(
    result: ToolResult, message: str, where: str, cuts: Cuts, tools: Mapping[str, str]
) -> CutText:
    """Describe a result that was shortened on arrival and whose whole does not fit."""
    texts = [_without_mark(block.text) for block in result.content if isinstance(block, Text)]
    return CutText(
        kind="tool result",
        message=message,
        where=where,
        characters=cuts.short[result.call_id],
        characters_shown=sum(len(text) for text in texts),
        call=result.call_id,
        tool=tools.get(result.call_id, ""),
        reference=cuts.stored.get(result.call_id),
    )


def _without_mark(text: str) -> str:
    """Return a text that was shortened on arrival, without the line that says so."""
    head, mark, tail = text.rpartition(_KEPT_AS)
    return head.rpartition("\n")[0] + tail.partition("\n")[2] if mark else text


def loss_of(cut: CutText) -> Loss:
    """Return the loss for a cut."""
    where = f"; the whole is {cut.reference}" if cut.reference else "; the whole is in the history"
    why = f"the window has no room for all of it: {cut.sizes} are shown{where}"
    return Loss(kind="dropped", where=cut.where, what=f"part of {cut.what}", why=why)


def shortened(message: Message, most: int, stored: Mapping[str, str] | None = None) -> Message:
    """Cut each text of more than `most` characters in its middle, and mark it there."""
    return msgspec.structs.replace(
        message,
        content=_blocks(message.content, most),
        tool_calls=tuple(_call(call, most) for call in message.tool_calls),
        tool_results=_results(message.tool_results, most, stored or {}),
        vendor_metadata=None,
    )


def longest(message: Message) -> int:
    """Return the length of the longest text of a message, arguments of calls included."""
    blocks = [*message.content, *(block for each in message.tool_results for block in each.content)]
    texts = [getattr(block, "text", "") for block in blocks] + [call.args for call in message.tool_calls]
    return max(map(len, texts), default=0)


def _results(results: Sequence[ToolResult], most: int, stored: Mapping[str, str]) -> tuple[ToolResult, ...]:
    return tuple(
        ToolResult(each.call_id, each.status, _blocks(each.content, most, stored.get(each.call_id)))
        for each in results
    )


def _blocks(blocks: Sequence[Block], most: int, reference: str | None = None) -> tuple[Block, ...]:
    found: list[Block] = []
    for block in blocks:
        match block:
            case Text(text=text):
                found.append(block if len(text) <= most else Text(_middle_out(text, most, reference)))
            case ReasoningSummary():
                pass
            case _:
                found.append(block)
    return tuple(found)


def _call(call: ToolCall, most: int) -> ToolCall:
    if len(call.args) <= most:
        return call
    return ToolCall(call.id, call.name, json.dumps({"perdure_left_out": f"{len(call.args):,} characters"}))


def _told_call(call: ToolCall, most: int) -> ToolCall:
    """Cut the arguments of a call; they become part of a sentence, and need not be JSON."""
    left = len(call.args) - most
    if left <= 0:
        return call
    return ToolCall(call.id, call.name, f"{call.args[:most]}… (+{left:,} characters)")


def _middle_out(text: str, most: int, reference: str | None) -> str:
    left = len(text) - most
    head = most * 2 // 3
    whole = f"; the whole is {reference}" if reference else ""
    # The cut begins a new line, which must not look like a note.
    return unforged(
        f"{text[:head]}\n[… {left:,} of {len(text):,} characters are left out here by Perdure, because the model's window "
        f"has no room for them{whole} …]\n{text[len(text) - (most - head) :]}"
    )


# Part of recorded contexts: one is rebuilt byte for byte, so this text and the sentences about calls never change.
WAITING = (
    "This call has not been carried out yet: it waits for somebody's decision. Do not repeat it; "
    "its result will stand here once there is one."
)

_CHUNK = 256
_UNKNOWN = CallFacts()


class Messages(Sequence[Message]):
    """Immutable messages in chunks that longer sequences share, so that a long conversation is hardly copied."""

    __slots__ = ("_chunks", "_tail")

    def __init__(self, chunks: tuple[tuple[Message, ...], ...], tail: tuple[Message, ...]) -> None:
        """Begin with full chunks, and the messages after them."""
        self._chunks, self._tail = chunks, tail

    def __len__(self) -> int:
        """The number of messages."""
        return len(self._chunks) * _CHUNK + len(self._tail)

    def __iter__(self) -> Iterator[Message]:
        """The messages, oldest first."""
        return chain(*self._chunks, self._tail)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        """One message, or several."""
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        length = len(self._chunks) * _CHUNK + len(self._tail)
        at = index + length if index < 0 else index
        if not 0 <= at < length:
            raise IndexError(index)
        chunk, place = divmod(at, _CHUNK)
        return self._chunks[chunk][place] if chunk < len(self._chunks) else self._tail[place]

    def __eq__(self, other: object) -> bool:
        """Compare with any sequence of messages."""
        return isinstance(other, Sequence) and list(self) == list(cast("Sequence[object]", other))

    def __hash__(self) -> int:
        """Hash all messages."""
        return hash(tuple(self))

    def __repr__(self) -> str:
        """Show the number of messages."""
        return f"<{len(self)} messages>"


class Conversation:
    """Messages that grow one by one, in a shape that every backend accepts."""

    __slots__ = (
        "_announced",
        "_chunks",
        "_harmless",
        "_open",
        "_places",
        "_spoke",
        "_tail",
        "_told",
        "ended_later",
        "harmless",
        "spoken",
        "unclear",
    )

    def __init__(self, harmless: Collection[str] = (), announced: Collection[str] | None = None) -> None:
        """Begin with no message; `harmless` are tools that make no external write.

        That matters for calls whose effect is not in the history: imported ones.  `announced` are the calls of which
        a note says that they ended later; None: all that did.
        """
        self._announced = announced
        self._spoke = -1  # the place of the model's last message
        self.ended_later: tuple[str, ...] = ()  # calls of which a note says so
        self._harmless = harmless
        self.harmless: set[str] = set()  # those whose calls were told in sentences
        self._chunks: tuple[tuple[Message, ...], ...] = ()
        self._tail: list[Message] = []
        self._places: dict[str, tuple[int, int]] = {}  # by call: the message and the index of its result
        self._open: dict[str, ToolCall] = {}  # calls without a result
        self._told: dict[int, tuple[CallSummary, ...]] = {}  # by the place of a note: the calls in it
        self.spoken = 0  # the number of messages of the assistant
        self.unclear: set[str] = set()  # calls with a result that leaves their outcome unknown

    def __len__(self) -> int:
        """The number of messages."""
        return len(self._chunks) * _CHUNK + len(self._tail)

    def add(self, message: Message, *, told: Mapping[str, CallFacts] | None = None) -> None:
        """Add one more message of the transcript; with `told` its calls are told in sentences.

        `told` is what the history says of calls beside the conversation.
        """
        if message.tool_results:
            later: list[CallSummary] = []
            for result in message.tool_results:
                call = self._open.pop(result.call_id, None)
                self._put(result)
                if call is not None and self._is_late(call):
                    is_unclear = call.id in self.unclear
                    later.append(CallSummary(call, _UNKNOWN, result, is_unclear=is_unclear))
            if later and message.role == "tool":
                self.ended_later += tuple([each.call.id for each in later])
                self._append(ended_later(later))
        if message.role == "tool":
            return
        if message.tool_results:
            message = msgspec.structs.replace(message, tool_results=())
        calls = message.tool_calls
        is_one_new = len(calls) == 1 and calls[0].id not in self._places  # as nearly always
        if calls and not is_one_new:
            first = {call.id: call for call in reversed(calls) if call.id not in self._places}
            calls = tuple([call for call in calls if first.get(call.id) is call])
            if len(calls) != len(message.tool_calls):  # a second call with the same id is left out
                message = msgspec.structs.replace(message, tool_calls=calls)
        if not message.content and not calls:
            return
        if told is not None and calls:
            self._tell(message, calls, told)
            return
        self._append(message)
        if calls:
            self._expect(calls)

    def extend(self, messages: Iterable[Message]) -> None:
        """Add several messages."""
        for message in messages:
            self.add(message)

    def messages(self) -> Messages:
        """Return the messages that a model is shown."""
        return Messages(self._chunks, tuple(self._tail))

    @property
    def tells(self) -> bool:
        """True if it has notes about calls."""
        return bool(self._told or self.ended_later)

    @property
    def calls_in_words(self) -> tuple[str, ...]:
        """The calls that are told in sentences."""
        return tuple(each.call.id for told in self._told.values() for each in told)

    def open(self) -> list[ToolCall]:
        """Return the calls that have no result."""
        return list(self._open.values())

    def explain(self, call: str, words: str) -> None:
        """Set the text that is shown for a call without a result."""
        self._put(ToolResult(call, "error", (Text(words),)))

    def _is_late(self, call: ToolCall) -> bool:
        """True if the model has spoken since it made the call, and a note says that the call has ended."""
        is_announced = self._announced is None or call.id in self._announced
        return is_announced and self._places[call.id][0] < self._spoke

    def _append(self, message: Message) -> None:
        if message.role == "assistant":
            self.spoken += 1
            self._spoke = len(self)
        self._tail.append(message)
        if len(self._tail) == _CHUNK:
            self._chunks, self._tail = (*self._chunks, tuple(self._tail)), []

    def _expect(self, calls: tuple[ToolCall, ...]) -> None:
        place = len(self)
        for index, call in enumerate(calls):
            self._places[call.id] = (place, index)
            self._open[call.id] = call
        results = [ToolResult(call.id, "error", (Text(WAITING),)) for call in calls]
        self._append(Message("tool", (), (), tuple(results)))

    def _tell(self, message: Message, calls: tuple[ToolCall, ...], known: Mapping[str, CallFacts]) -> None:
        """Add the text of a message, and a note that describes its calls.

        The vendor's metadata belong to the calls, so they are left out with them.
        """
        if message.content:
            self._append(msgspec.structs.replace(message, tool_calls=(), vendor_metadata=None))
        place = len(self)
        for index, call in enumerate(calls):
            self._places[call.id] = (place, index)
        self._open |= {call.id: call for call in calls}
        told = tuple(CallSummary(call, self._known(call, known), None, WAITING) for call in calls)
        self._told[place] = told
        self._append(in_sentences(told))

    def _known(self, call: ToolCall, known: Mapping[str, CallFacts]) -> CallFacts:
        """Return what the history says of a call; if it says nothing, the declared effect of its tool."""
        found = known.get(call.id, _UNKNOWN)
        if found.effect is not None or call.name not in self._harmless:
            return found
        self.harmless.add(call.name)
        return msgspec.structs.replace(found, effect="read_only")

    def _put(self, result: ToolResult) -> None:
        place = self._places.get(result.call_id)
        if place is None:
            return
        at, index = place
        chunk, offset = divmod(at, _CHUNK)
        within = list(self._chunks[chunk]) if chunk < len(self._chunks) else self._tail
        within[offset] = self._answered(at, index, result, within[offset])
        if chunk < len(self._chunks):
            self._chunks = (*self._chunks[:chunk], tuple(within), *self._chunks[chunk + 1 :])

    def _answered(self, at: int, index: int, result: ToolResult, before: Message) -> Message:
        """Return the message `before` at a place, with one more result in it."""
        told = self._told.get(at)
        if told is None:
            results = list(before.tool_results)
            results[index] = result
            return Message("tool", (), (), tuple(results))
        is_open = result.call_id in self._open
        new = CallSummary(
            told[index].call,
            told[index].known,
            None if is_open else result,
            _words(result) if is_open else "",
            result.call_id in self.unclear,
        )
        self._told[at] = (*told[:index], new, *told[index + 1 :])
        return in_sentences(self._told[at])


def _words(result: ToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, Text))


_LAYOUT_CHUNK = 200  # messages that are read at a time
NO_OUTCOMES: Mapping[str, Digest | None] = {}
Outcomes: TypeAlias = Mapping[str, Digest | None]
"""By call whose outcome was unknown: the body of the result that settled it since; None: it is still unknown."""


class MessageTexts:
    """Reads the messages of a timeline, each once, with the results that settled their calls since."""

    def __init__(
        self, space: Space, outcomes: Callable[[MessageRef], Outcomes] = lambda _: NO_OUTCOMES
    ) -> None:
        """Read from that space; `outcomes` says what is known now of the unclear calls of a message."""
        self._space, self._find_outcomes = space, outcomes
        self._outcomes: dict[str, Outcomes] = {}  # by message
        self._read: dict[str, Message | None] = {}
        self._texts: dict[str, str | None] = {}  # of artifacts

    def of(self, spoken: Sequence[MessageRef]) -> list[Message | None]:
        """Read messages with the bytes of their media; None for a forgotten one."""
        missing = [each for each in spoken if each.id not in self._read]
        for start in range(0, len(missing), _LAYOUT_CHUNK):
            part = missing[start : start + _LAYOUT_CHUNK]
            found = messages_of(self._space, part)
            for each in part:
                message = found.get(each.id)
                if message is not None and each.unclear:
                    message = self._settled(each, message)
                self._read[each.id] = None if message is None else as_shown(self._space, message)
        return [self._read[each.id] for each in spoken]

    def outcomes(self, each: MessageRef) -> Outcomes:
        """Return what is known of the unclear calls of a message."""
        return self._outcomes.get(each.id, NO_OUTCOMES)

    def _settled(self, each: MessageRef, message: Message) -> Message:
        """Replace the results of calls that were settled since."""
        outcomes = self._outcomes[each.id] = self._find_outcomes(each)
        results: list[ToolResult] = []
        for result in message.tool_results:
            settled = outcomes.get(result.call_id)
            if settled is not None:
                later = _result.decode(self._space.body(settled))
                result = ToolResult(result.call_id, later.status, later.content)
            results.append(result)
        return msgspec.structs.replace(message, tool_results=tuple(results))

    def expanded(self, message: Message, whole: Mapping[str, str]) -> Message:
        """Replace shortened results by the whole text of their artifacts, which are given by call."""
        results = tuple(self._expanded(each, whole.get(each.call_id)) for each in message.tool_results)
        if results == message.tool_results:
            return message
        return msgspec.structs.replace(message, tool_results=results, vendor_metadata=None)

    def _expanded(self, result: ToolResult, reference: str | None) -> ToolResult:
        text = None if reference is None else self.artifact_text(reference)
        if text is None:
            return result
        others = [block for block in result.content if not isinstance(block, Text)]
        return ToolResult(result.call_id, result.status, (Text(unforged(text)), *others))

    def artifact_text(self, reference: str) -> str | None:
        """Read the text of an artifact; None: it has none, or is gone."""
        if reference not in self._texts:
            self._texts[reference] = _text_of(self._space, reference)
        return self._texts[reference]


def _text_of(space: Space, reference: str) -> str | None:
    digest = parse_reference(reference)
    try:
        body = b"".join(artifacts.get(space, digest))
        return _body_text(body) or body.decode()
    except (Forgotten, NotFound, UnicodeDecodeError):
        return None


def _body_text(body: bytes) -> str:
    """Return the text of a result that is stored as blocks; empty for any other."""
    try:
        blocks = _block_lists.decode(body) if body.startswith(b'[{"type":') else []
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return "\n".join(block.text for block in blocks if isinstance(block, Text | ReasoningSummary))


_block_lists = msgspec.json.Decoder(list[Block])
_result = msgspec.json.Decoder(ToolResult)


class Laid(msgspec.Struct, frozen=True):
    """A conversation, and where each message of the timeline is in it."""

    conversation: Conversation
    # By id: the first message of the conversation, and the one after the last.
    spans: Mapping[str, tuple[int, int]]
    history: tuple[Message, ...]  # the messages as they were said
    before_lead: int  # how many of them are before the leading note, if there is one


def lay(
    words: MessageTexts,
    spoken: Sequence[MessageRef],
    *,
    lead: Message | None = None,
    known: Mapping[str, CallFacts] | None = None,
    cuts: Cuts = NO_CUTS,
    harmless: Collection[str] = (),
    announced: Collection[str] | None = None,
    before_lead: int | None = None,
) -> Laid:
    """Lay out these messages, in this order; `before_lead` of them precede the leading note; None: system words do."""
    conversation = Conversation(harmless, announced)
    if before_lead is None:
        before_lead = next((at for at, each in enumerate(spoken) if each.role != "system"), len(spoken))
    leading = () if lead is None else (lead,)
    spans: dict[str, tuple[int, int]] = {}
    history: list[Message] = []
    for at, (each, message) in enumerate(zip(spoken, words.of(spoken), strict=True)):
        if at == before_lead:
            conversation.extend(leading)
        if message is None:
            continue
        history.append(message)
        start = len(conversation)
        whole = words.expanded(message, cuts.whole) if cuts.whole and message.tool_results else message
        shown = cuts.apply(each.id, whole, told=each.told)
        if each.unclear:
            outcomes = words.outcomes(each).items()
            conversation.unclear.update(call for call, settled in outcomes if settled is None)
        conversation.add(shown, told=(known or {}) if each.told else None)
        spans[each.id] = (start, len(conversation))
    conversation.extend(leading if before_lead >= len(spoken) else ())
    return Laid(conversation, spans, tuple(history), before_lead)


def noted(messages: Sequence[Message], note: Message) -> Sequence[Message]:
    """Insert a note just before the current input, which is the last message of the user."""
    last = range(len(messages) - 1, -1, -1)
    place = next((at for at in last if _is_input(messages[at])), len(messages))
    while place > 0 and _is_input(messages[place - 1]):
        place -= 1
    return (*messages[:place], note, *messages[place:])


def _is_input(message: Message) -> bool:
    return message.role == "user" and not is_note(message)
