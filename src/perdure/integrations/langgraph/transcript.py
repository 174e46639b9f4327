"""A graph's messages as elements of a stored list, and as messages of the thread's transcript.

The channel with the messages is a list that is stored by element.  A put that only adds messages appends them; the messages
before are not encoded again.  So the saver remembers the last lists of each digest: what each element was made from, and
the very objects that were put or handed out last.

A message is a mutable object, so an element is used again only if the message still has the same fields.  To compare the
fields of thousands of messages takes longer than to write a new one.  So a list remembers what tells that one of the last
messages was altered: pydantic notes a field that is set, and the lists and dictionaries inside a message are looked at.  A
step inside a run looks into the last of those; the put that ends a run, and every other put, looks into all of them.  So a
node that alters an old message in place has it stored at the end of its run.  Only an alteration that goes past pydantic,
such as `message.__dict__["content"] = …`, is not seen.

Each element names its message in the transcript.  A message that the graph has removed or replaced is taken back there.
"""

from __future__ import annotations

import copy
import json
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from sys import getrefcount
from threading import Lock
from types import NoneType
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec
from langchain_core import messages as lc

from perdure.errors import Invalid
from perdure.history import artifacts
from perdure.integrations.checkpoint_layout import SESSION_PATH
from perdure.integrations.langgraph.codec import MARK, Codec, is_message
from perdure.ledger import calls, settlement
from perdure.model.canonical import Json
from perdure.model.digest import Digest
from perdure.model.limits import Limits
from perdure.model.message import (
    Block,
    Image,
    Message,
    ReasoningSummary,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from perdure.projections.transcript import TranscriptEntry
from perdure.runtime.calls.pending_call import encode_result
from perdure.runtime.import_commit import OpenImports
from perdure.runtime.tools.result import keep
from perdure.store.change import Change
from perdure.store.thread import Thread

__all__ = [
    "ListChange",
    "MessageList",
    "RememberedLists",
    "decoded",
    "elements_of",
    "full_at",
    "missed",
    "new_results",
    "retract",
    "settle_imported",
    "transcribe",
]

_LISTS_MAX, _ELEMENTS_MAX = 256, 100_000
_RETRACTIONS_MAX = 400  # in one write; beyond that, all of the transcript is said again
_PACKED_MIN = 64  # messages; as many may be newer in any case
_LAST = 320  # lists and dictionaries inside messages that every put looks into; a message has up to five
_SAID = "said"
_LOOK_BACK_MAX = 200  # messages in which the call of a new result is looked for
_FOREIGN = "perdure:"  # how the id of a message begins that others have said in the thread
_Copied: TypeAlias = tuple[tuple[str, Callable[[Any], Any]], ...]
_fields_of = cast("Callable[[Any], dict[str, Any]]", attrgetter("__dict__"))
_extra_of = cast("Callable[[Any], dict[str, Any] | None]", attrgetter("__pydantic_extra__"))
_NO_FIELDS: dict[str, Any] = {}  # what an empty field is compared with; a reader gets a copy
_NO_ITEMS: list[Any] = []
_ALONE = max(map(getrefcount, [object()]))  # the count of references to what only one list refers to
_reuse = Lock()
_ROLES: dict[str, Role] = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


class _Elements:
    """What the lists of messages that grew from each other have in common; the longest of them may add to it.

    Each kind of part is in one list, so that thousands of messages are compared in three steps that make no object for
    each of them: what Python's collector of garbage has to visit costs more than the comparison.
    """

    __slots__ = ("copied", "extras", "fields", "longest", "stored", "types")

    def __init__(self, longest: MessageList) -> None:
        """Begin with no element."""
        self.longest: weakref.ref[MessageList] = weakref.ref(longest)
        self.stored: list[dict[str, Json]] = []
        self.types: list[type[lc.BaseMessage]] = []
        self.fields: list[dict[str, Any]] = []
        self.extras: list[dict[str, Any] | None] = []
        self.copied: list[_Copied] = []  # the fields that each reader gets a copy of

    def add(self, other: _Elements, start: int, end: int) -> None:
        """Add elements of others."""
        self.stored += other.stored[start:end]
        self.types += other.types[start:end]
        self.fields += other.fields[start:end]
        self.extras += other.extras[start:end]
        self.copied += other.copied[start:end]


class _WatchedNames(set[str]):
    """The names of the fields of a message that were set.  pydantic adds a name when a field is set again: then it is noted.

    Messages that were remembered together share `noted`.  A copy is a plain set, as that of any message.
    """

    __slots__ = ("noted",)

    def __init__(self, names: Iterable[str], noted: list[str]) -> None:
        """Begin with the names of the fields that were set so far."""
        super().__init__(names)
        self.noted = noted

    def add(self, name: str, /) -> None:
        """Add a name, and note it."""
        super().add(name)
        self.noted[:] = (name,)

    def __reduce__(self) -> tuple[type[set[str]], tuple[list[str]]]:
        """Return how a copy is made."""
        return set, (list(self),)


def _watch(messages: Iterable[Any], noted: list[str]) -> None:
    """Have fields noted that are set from now on; to be called before the fields are compared or copied."""
    for each in messages:
        if is_message(each):
            names = each.__pydantic_fields_set__
            if type(names) is not _WatchedNames or names.noted:
                object.__setattr__(each, "__pydantic_fields_set__", _WatchedNames(names, noted))


class _RememberedMessages:
    """Messages that a reader or a writer had last, and what tells that none of them was altered since.

    They are those of the first elements.
    """

    __slots__ = ("elements", "empty", "expected", "filled", "messages", "noted", "others")

    def __init__(self, elements: _Elements) -> None:
        """Begin with no message."""
        self.elements = elements
        self.messages: list[lc.BaseMessage] = []
        self.noted: list[str] = []  # for messages that are not watched yet
        self.others: dict[int, list[str]] = {}  # where the fields of the others are noted
        self.empty: list[Any] = []  # the lists and dictionaries inside the messages that have nothing in them
        self.filled: list[Any] = []  # the others
        self.expected: list[Any] = []  # what these have in them

    def add(self, messages: Sequence[lc.BaseMessage]) -> None:
        """Remember watched messages that are those of the next elements."""
        elements, start = self.elements, len(self.messages)
        self.messages += messages
        for at, message in enumerate(messages, start):
            names, parts, fields = message.__pydantic_fields_set__, message.__dict__, elements.fields[at]
            noted = names.noted if isinstance(names, _WatchedNames) else _UNWATCHED
            if noted is not self.noted:
                self.others[id(noted)] = noted
            pairs = [(parts.get(key), fields[key]) for key, _ in elements.copied[at]]
            for part, expected in (*pairs, (message.__pydantic_extra__, elements.extras[at])):
                if expected:
                    self.filled.append(part)
                    self.expected.append(expected)
                elif part is not None:
                    self.empty.append(part)

    def are_unaltered(self, *, is_step: bool = False) -> bool:
        """True if the messages have the parts of their elements; a step looks into the last ones alone."""
        if self.noted or any(self.others.values()) or not _IS_NOTED:
            return False
        if is_step:
            return not any(self.empty[-_LAST:]) and self.filled[-_LAST:] == self.expected[-_LAST:]
        return not any(self.empty) and self.filled == self.expected


def _is_noted() -> bool:
    """True if this version of pydantic notes a field that is set."""
    message = lc.HumanMessage("")
    noted: list[str] = []
    _watch([message], noted)
    message.content = "altered"
    return noted == ["content"]


_UNWATCHED = ["a message whose fields are not noted"]
_IS_NOTED = _is_noted()


class MessageList:
    """The elements of a list of messages: how each is stored, and the parts that its message had then."""

    __slots__ = ("__weakref__", "_elements", "_length", "_objects", "_packed", "_spare")

    def __init__(self, elements: _Elements | None = None) -> None:
        """Begin with no element, or with those of another list."""
        self._elements = _Elements(self) if elements is None else elements
        self._length = 0
        self._objects = _RememberedMessages(self._elements)  # messages that a reader or a writer had last
        self._spare = self._objects  # those that one had before
        self._packed = 0  # how many messages were last made one after the other

    def __len__(self) -> int:
        """Return the number of elements."""
        return self._length

    @property
    def stored(self) -> list[dict[str, Json]]:
        """How the elements are stored; if a longer list has grown from this one, also how those after them are."""
        return self._elements.stored

    def add(self, stored: dict[str, Json], message: lc.BaseMessage) -> None:
        """Add an element that was made from a message."""
        fields = {key: _own(each) for key, each in message.__dict__.items()}
        elements = self._elements
        elements.stored.append(stored)
        elements.types.append(type(message))
        elements.fields.append(fields)
        elements.extras.append(_own(message.__pydantic_extra__))
        elements.copied.append(_copied(fields))
        self._length += 1

    def add_from(self, other: MessageList, start: int, end: int) -> None:
        """Add elements of another list."""
        self._elements.add(other._elements, start, end)
        self._length += end - start

    def grown(self) -> MessageList:
        """Return a list with the same elements to which others are added; this one stays as it is.

        It shares the elements, unless another list has grown from this one already.
        """
        with _reuse:
            is_longest = self._elements.longest() is self
            found = MessageList(self._elements if is_longest else None)
            if is_longest:
                self._elements.longest, found._length = weakref.ref(found), self._length
        if not is_longest:
            found.add_from(self, 0, self._length)
        found._packed = self._packed
        return found

    def keep(
        self, messages: Sequence[lc.BaseMessage], before: MessageList, known: _RememberedMessages | None
    ) -> None:
        """Remember the messages of a writer, and the spare ones of the list before: a reader gets those that no other code holds.

        `known`: what the list before has remembered of the first ones; None: nothing.
        """
        with _reuse:
            is_moved = known is not None and before._objects is known and len(known.messages) == len(before)
            objects = known if known is not None and is_moved else _RememberedMessages(self._elements)
            objects.elements = self._elements
            if is_moved:
                before._objects = _RememberedMessages(before._elements)
            objects.add(messages[len(objects.messages) :])
            self._objects, self._spare = objects, before._spare

    def is_of(self, index: int, message: Any) -> bool:
        """True if the message still is what an element was made from."""
        return (
            type(message) is self._elements.types[index]
            and _fields_of(message) == self._elements.fields[index]
            and _extra_of(message) == self._elements.extras[index]
        )

    def unaltered(self, messages: Sequence[Any], *, is_step: bool) -> _RememberedMessages | None:
        """Return what is remembered of the first messages, if they are those of all elements; None: they have to be compared.

        Of old messages a step finds out only that they are the same objects and no field was set, or equal ones.
        """
        known = self._objects
        is_known = messages[: len(self)] == known.messages and len(known.messages) == len(self)
        is_own = is_known and known.elements is self._elements
        return known if is_own and known.are_unaltered(is_step=is_step) else None

    def shared(self, messages: Sequence[Any]) -> int:
        """Return how many messages at the beginning are those of the elements, by comparing all their parts."""
        first = messages[: len(self)]
        if self._are_of(first):
            return len(self)
        are_of = (is_message(each) and self.is_of(at, each) for at, each in enumerate(first))
        return next((at for at, is_same in enumerate(are_of) if not is_same), len(first))

    def _are_of(self, messages: Sequence[Any]) -> bool:
        """True if these are messages of all elements, with the same parts; False also if a longer list has grown from this one."""
        elements = self._elements
        return (
            [*map(type, messages)] == elements.types
            and [*map(_fields_of, messages)] == elements.fields
            and [*map(_extra_of, messages)] == elements.extras
        )

    def by_id(self, start: int) -> dict[str, int]:
        """Return the indexes of the elements from `start` on, by the ids of their messages."""
        return {str(self.fields(at).get("id")): at for at in range(start, len(self))}

    def fields(self, index: int) -> Mapping[str, Any]:
        """Return the fields of the message of an element."""
        return self._elements.fields[index]

    def messages(self) -> list[lc.BaseMessage]:
        """Return messages with these fields, which share nothing with others that can be changed.

        A message that was handed out before is handed out again if nothing but this list refers to it.  LangGraph's objects
        of a run refer to each other, so that they live on until Python's collector finds them; the spare messages are those
        of a run before.  The lock makes sure that of two readers at once only one finds a message.

        Messages that were made in many turns are spread over the memory, and whatever reads them all takes twice as long.
        So this method makes every message again once the list has grown by a quarter since it last did.
        """
        with _reuse:
            is_packed = len(self) <= _PACKED_MIN + self._packed * 5 // 4
            found = self._reused(self._objects) if is_packed else None
            if found is None:
                found = self._reused(self._spare) if is_packed else None
                if found is None:
                    found, self._packed = _RememberedMessages(self._elements), len(self)
                    found.add(self._made(range(len(self)), found.noted))
                self._spare = self._objects if is_packed else _RememberedMessages(self._elements)
            self._objects = found
            return list(found.messages)

    def _reused(self, before: _RememberedMessages) -> _RememberedMessages | None:
        """Return messages of all elements, those `before` as far as nothing else refers to them; None if that is less than half."""
        counts = [*map(getrefcount, before.messages)]
        are_taken = bool(counts) and max(counts) > _ALONE
        taken = {at for at, count in enumerate(counts) if count > _ALONE} if are_taken else set[int]()
        if 2 * (len(counts) - len(taken)) <= len(self):
            return None
        is_own = before.elements is self._elements and len(counts) <= len(self)
        if is_own and not taken and before.are_unaltered():
            before.add(self._made(range(len(counts), len(self)), before.noted))
            return before
        found, old = _RememberedMessages(self._elements), before.messages[: len(self)]
        _watch(old, found.noted)
        old = [each if at not in taken and self.is_of(at, each) else None for at, each in enumerate(old)]
        new = iter(self._made([at for at, each in enumerate(old) if each is None], found.noted))
        found.add([next(new) if each is None else each for each in old])
        found.add(self._made(range(len(old), len(self)), found.noted))
        return found

    def _made(self, indexes: Iterable[int], noted: list[str]) -> list[lc.BaseMessage]:
        """Return new messages with the parts of elements, watched."""
        parts = self._elements
        return [
            _message_of(parts.types[at], parts.fields[at], parts.extras[at], parts.copied[at], noted)
            for at in indexes
        ]


def _copied(fields: Mapping[str, Any]) -> _Copied:
    """Return the fields that can be changed in place, each with the way to copy it; an empty one is quick to copy."""
    plain = (str, int, float, bool, NoneType)
    ways: dict[Any, Callable[[Any], Any]] = {dict: dict, list: list}
    return tuple(
        (key, copy.deepcopy if each else ways.get(type(each), copy.deepcopy))
        for key, each in fields.items()
        if type(each) not in plain
    )


def _message_of(
    kind: type[lc.BaseMessage],
    fields: dict[str, Any],
    extra: dict[str, Any] | None,
    copied: _Copied,
    noted: list[str],
) -> lc.BaseMessage:
    own = fields.copy()
    for key, way in copied:
        own[key] = way(fields[key])
    found, put = kind.__new__(kind), object.__setattr__
    put(found, "__dict__", own)
    put(found, "__pydantic_fields_set__", _WatchedNames(own, noted))
    put(found, "__pydantic_extra__", None if extra is None else copy.deepcopy(extra) if extra else {})
    put(found, "__pydantic_private__", None)
    return found


def _own(value: Any) -> Any:
    """Return a copy of a value that shares nothing which can be changed; the empty ones are two objects, which no code changes."""
    if value is None or type(value) is str:
        return value
    if type(value) in (dict, list) and not value:
        return _NO_FIELDS if type(value) is dict else _NO_ITEMS
    return copy.deepcopy(value)


class RememberedLists:
    """The elements of the lists that were stored or read last, by the digest of the list."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._lists: OrderedDict[Digest, MessageList] = OrderedDict()
        self._lock = Lock()

    def get(self, digest: Digest) -> MessageList | None:
        """Return the elements of a list; they must not be altered."""
        with self._lock:
            found = self._lists.get(digest)
            if found is not None:
                self._lists.move_to_end(digest)
            return found

    def put(self, digest: Digest, elements: MessageList, *, instead_of: Digest | None = None) -> None:
        """Remember the elements of a list; the one that it grew from is not needed any more."""
        with self._lock:
            if instead_of is not None:
                self._lists.pop(instead_of, None)
            self._lists[digest] = elements
            self._lists.move_to_end(digest)
            while len(self._lists) > 1 and (
                len(self._lists) > _LISTS_MAX or sum(map(len, self._lists.values())) > _ELEMENTS_MAX
            ):
                self._lists.popitem(last=False)


def decoded(codec: Codec, stored: Sequence[Json]) -> MessageList | None:
    """Return the elements of a stored list; None if not all of them are messages."""
    found = MessageList()
    for each in stored:
        if not isinstance(each, dict) or each.get(MARK) != "message":
            return None
        found.add(cast("dict[str, Json]", each), codec.decode(each))
    return found


class ListChange(NamedTuple):
    """How a list of messages becomes another one."""

    before: MessageList
    after: MessageList
    shared: int  # as many elements at the beginning are as they were stored
    gone: list[int]  # the elements of the list before that the other one does not have
    is_anew: bool  # so many are gone that all of the transcript is said again
    known: _RememberedMessages | None = (
        None  # what the list before remembers of the messages that are as they were
    )

    def unsaid(self) -> Iterator[int]:
        """Yield the indexes of the elements that the transcript does not have yet."""
        return (at for at in range(self.shared, len(self.after)) if _SAID not in self.after.stored[at])

    def parts(self, limits: Limits) -> list[int]:
        """Return the indexes at which a write of new messages is full; empty if one write is enough."""
        if len(self.after) - self.shared <= 1 and not self.gone:
            return []
        sizes = ((at, len(msgspec.json.encode(self.after.stored[at]))) for at in self.unsaid())
        return full_at(sizes, limits, events=len(self.gone))


def full_at(sizes: Iterable[tuple[int, int]], limits: Limits, *, events: int = 0) -> list[int]:
    """Return the indexes of the messages that do not fit into the write of those before, given by index and bytes.

    The first write has `events` already.  Half of the limits is left for what else is in it.
    """
    found: list[int] = []
    size = 0
    for at, more in sizes:
        if events >= limits.write_events_max // 2 or (size and size + more > limits.write_bytes_max // 4):
            found.append(at)
            events = size = 0
        events, size = events + 1, size + more
    return found


def elements_of(
    codec: Codec, messages: Sequence[Any], before: MessageList, *, is_step: bool = False
) -> ListChange | None:
    """Return how the list `before` becomes a list of these messages; None if not all of them are messages.

    `is_step`: a run has taken a step and goes on, so older messages are looked into by a later put.
    """
    if not all(map(is_message, messages[len(before) :])):
        return None
    known = before.unaltered(messages, is_step=is_step)
    if known is None:
        _watch(messages, [])
    else:
        _watch(messages[len(before) :], known.noted)
    shared = before.shared(messages) if known is None else len(before)
    if shared == len(before):
        found = before.grown()
    else:
        found = MessageList()
        found.add_from(before, 0, shared)
    left = before.by_id(shared)
    for message in messages[shared:]:
        if not is_message(message):
            return None
        at = left.get(str(message.id))
        if at is not None and before.is_of(at, message):
            del left[str(message.id)]
            found.add_from(before, at, at + 1)
        else:
            found.add(cast("dict[str, Json]", codec.encode(message)), message)
    taken = {id(each) for each in found.stored[shared:]}
    gone = [at for at in range(shared, len(before)) if id(before.stored[at]) not in taken]
    if len(gone) <= _RETRACTIONS_MAX:
        return ListChange(before, found, shared, gone, False, known)
    found.stored[:] = [{key: each[key] for key in each if key != _SAID} for each in found.stored]
    return ListChange(before, found, 0, [], True)


def retract(change: Change, new: ListChange) -> None:
    """Take back the messages that are gone."""
    if new.is_anew:
        change.retract_all()
    for at in new.gone:
        said = new.before.stored[at].get(_SAID)
        if said and isinstance(said, str):
            change.retract(said)


def transcribe(change: Change, new: ListChange, end: int, spoken: Callable[[], Collection[str]]) -> None:
    """Say the new messages before the index `end`; each new element then has the id of its message.

    `spoken` returns the ids of the transcript: a message that `missed` took from there is not said again.
    """
    after = new.after
    known: Collection[str] | None = None
    for at in new.unsaid():
        if at >= end:
            return
        stored, fields = after.stored[at], after.fields(at)
        role = _role(fields)
        if role is None:
            continue
        own, _, part = str(fields.get("id") or "").removeprefix(_FOREIGN).partition("#")
        if str(fields.get("id")).startswith(_FOREIGN):
            known = spoken() if known is None else known
        is_known = known is not None and own in known
        # One message of the transcript may be several here; the first of them stands for it.
        said = ("" if part else own) if is_known else _say(change, role, fields)
        after.stored[at] = {**stored, _SAID: said}


def new_results(new: ListChange | None) -> list[ToolResult]:
    """Return the results of tools among the messages that the transcript does not have yet."""
    found: list[ToolResult] = []
    every = () if new is None else (new.after.fields(at) for at in new.unsaid())
    for fields in every:
        if _role(fields) == "tool":
            found += _message("tool", tuple(_blocks(fields.get("content"))), fields).tool_results
    return found


def settle_imported(thread: Thread, at: Digest | None, results: Sequence[ToolResult]) -> None:
    """Settle the imported calls of unknown outcome that `results` answer; `at` is the commit before theirs."""
    if not results or thread.get(SESSION_PATH, default=None) is None:
        return
    space = thread._space  # pyright: ignore[reportPrivateUsage]
    imports = OpenImports(space, at, messages_max=_LOOK_BACK_MAX)
    for result in results:
        held = imports.take(result.call_id)
        if held is None or held.record.state != "unknown" or result.call_id in imports.seen:
            continue
        mine = ToolResult(held.record.id, result.status, result.content)
        kept = keep(mine)
        answer = settlement.answered(
            held,
            at=space.clock(),
            staged=artifacts.stage(space, (kept.content,), media_type=kept.media_type),
            preview=encode_result(mine),
            status=mine.status,
            result_label=held.record.label or "",
        )
        calls.post_first(space, answer)  # None: another process has settled it


def missed(transcript: Sequence[TranscriptEntry], stored: Sequence[Json]) -> list[lc.BaseMessage]:
    """Return the messages of a transcript that the elements of a stored list do not stand for."""
    said = {str(each.get(_SAID)) for each in stored if isinstance(each, dict)}
    tools = {
        call.id: call.name
        for entry in transcript
        if entry.words is not None
        for call in entry.words.tool_calls
    }
    found: list[lc.BaseMessage] = []
    for entry in transcript:
        if entry.words is not None and entry.id not in said:
            found += _messages_of(entry.words, _FOREIGN + entry.id, tools)
    return found


def _messages_of(words: Message, id: str, tools: Mapping[str, str]) -> Iterable[lc.BaseMessage]:
    content = _content(words.content)
    match words.role:
        case "user":
            yield lc.HumanMessage(content, id=id)
        case "system":
            yield lc.SystemMessage(content, id=id)
        case "assistant":
            calls = [
                {"name": each.name, "args": _arguments(each), "id": each.id} for each in words.tool_calls
            ]
            yield lc.AIMessage(content, id=id, tool_calls=calls)
        case "tool":
            for number, each in enumerate(words.tool_results):
                yield lc.ToolMessage(
                    _content(each.content),
                    id=f"{id}#{number}" if number else id,
                    tool_call_id=each.call_id,
                    name=tools.get(each.call_id),
                    status=each.status,
                )


def _content(blocks: Sequence[Block]) -> Any:
    """Return content as LangChain has it: a text, or blocks; media are named by their address."""
    if all(isinstance(each, Text) for each in blocks) and len(blocks) <= 1:
        return blocks[0].text if blocks and isinstance(blocks[0], Text) else ""
    found: list[dict[str, str]] = []
    for each in blocks:
        match each:
            case Text():
                found.append({"type": "text", "text": each.text})
            case ReasoningSummary():
                found.append({"type": "reasoning", "reasoning": each.text})
            case _:
                kind = "image" if isinstance(each, Image) else "file"
                found.append({"type": kind, "url": each.uri, "mime_type": each.mime_type})
    return found


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        given = call.arguments
    except Invalid:
        given = None
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {"arguments": call.args}


def _role(fields: Mapping[str, Any]) -> Role | None:
    return _ROLES.get(str(fields.get("type", "")).lower().removesuffix("messagechunk"))


def _say(change: Change, role: Role, fields: Mapping[str, Any]) -> str:
    about: Mapping[str, Any] = fields.get("response_metadata") or {}
    provider, model = about.get("model_provider"), about.get("model_name")
    named: dict[str, Any] = {"provider": provider, "model": model} if provider and model else {}
    blocks = tuple(_blocks(fields.get("content")))
    try:
        return change.add(_message(role, blocks, fields), **named)
    except Invalid:  # what no provider would accept is in the channel; its words are in the transcript
        return change.add(Message(role if role != "tool" else "user", blocks or (Text("[no text]"),)))


def _message(role: Role, blocks: tuple[Block, ...], fields: Mapping[str, Any]) -> Message:
    if role == "tool":
        status = "error" if fields.get("status") == "error" else "success"
        return Message("tool", (), (), (ToolResult(str(fields.get("tool_call_id")), status, blocks),))
    calls = tuple(
        ToolCall(str(each["id"]), str(each["name"]), json.dumps(each["args"], default=repr))
        for each in fields.get("tool_calls") or ()
        if role == "assistant"
    )
    return Message(role, blocks, calls)


def _blocks(content: Any) -> Iterable[Block]:
    """Yield the texts of a message; another block is named by its type, and is whole in the channel."""
    if isinstance(content, str):
        if content:
            yield Text(content)
        return
    for block in content or ():
        if isinstance(block, str):
            yield Text(block)
        elif isinstance(block, Mapping):
            given = cast("Mapping[str, Any]", block)
            text = given.get("text")
            yield Text(text if isinstance(text, str) else f"[{given.get('type', 'content')}]")
