"""A graph's messages as elements of a stored list, and as messages of the thread's transcript.

The channel with the messages is a list that is stored by element.  A put that only adds messages appends them; the messages
before are compared, not encoded again.  So the saver remembers the last lists of each digest: what each element was made
from.  A message is a mutable object, so an element is used again only if the message still has the same fields.

Each element names its message in the transcript.  A message that the graph has removed or replaced is taken back there.
"""

from __future__ import annotations

import copy
import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from sys import getrefcount
from threading import Lock
from types import NoneType
from typing import Any, TypeAlias, cast

from langchain_core import messages as lc

from perdure.errors import Invalid
from perdure.integrations.langgraph.codec import MARK, Codec, is_message
from perdure.model.canonical import Json
from perdure.model.digest import Digest
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
from perdure.store.change import Change

__all__ = ["MessageList", "RememberedLists", "decoded", "elements_of", "missed", "transcribe"]

_LISTS_MAX = 256
_RETRACTIONS_MAX = 400  # in one write; beyond that, all of the transcript is said again
_SAID = "said"
_FOREIGN = "perdure:"  # how the id of a message begins that others have said in the thread
_Copied: TypeAlias = tuple[tuple[str, Callable[[Any], Any]], ...]
_Parts: TypeAlias = tuple[type[lc.BaseMessage], dict[str, Any], dict[str, Any] | None]
_parts_of = cast("Callable[[Any], _Parts]", attrgetter("__class__", "__dict__", "__pydantic_extra__"))
_ALONE = max(map(getrefcount, [object()]))  # the count of references to what only one list refers to
_reuse = Lock()
_ROLES: dict[str, Role] = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


class MessageList:
    """The elements of a list of messages: how each is stored, and the parts that its message had then.

    The parts are in one list, so that thousands of messages are compared in one step.
    """

    __slots__ = ("_copied", "_objects", "_parts", "stored")

    def __init__(self) -> None:
        """Begin with no element."""
        self.stored: list[dict[str, Json]] = []
        self._parts: list[_Parts] = []
        self._copied: list[_Copied] = []  # the fields that each reader gets a copy of
        self._objects: list[
            lc.BaseMessage
        ] = []  # messages that a reader or a writer had last; as many as parts, or none

    def __len__(self) -> int:
        """Return the number of elements."""
        return len(self.stored)

    def add(self, stored: dict[str, Json], message: lc.BaseMessage) -> None:
        """Add an element that was made from a message."""
        fields = {key: _own(each) for key, each in message.__dict__.items()}
        self.stored.append(stored)
        self._parts.append((type(message), fields, _own(message.__pydantic_extra__)))
        self._copied.append(_copied(fields))

    def add_from(self, other: MessageList, start: int, end: int) -> None:
        """Add elements of another list."""
        self.stored += other.stored[start:end]
        self._parts += other._parts[start:end]
        self._copied += other._copied[start:end]

    def keep(self, messages: Sequence[lc.BaseMessage]) -> None:
        """Remember the messages of a writer: a reader gets those that no other code holds."""
        self._objects = list(messages)

    def is_of(self, index: int, message: Any) -> bool:
        """True if the message still is what an element was made from."""
        return _parts_of(message) == self._parts[index]

    def shared(self, messages: Sequence[Any]) -> int:
        """Return how many messages at the beginning are those of the elements."""
        first = messages[: len(self)]
        try:
            if len(first) == len(self) and [*map(_parts_of, first)] == self._parts:
                return len(self)
        except AttributeError:
            pass  # not all of them are messages
        are_of = (is_message(each) and self.is_of(at, each) for at, each in enumerate(first))
        return next((at for at, is_same in enumerate(are_of) if not is_same), len(first))

    def by_id(self, start: int) -> dict[str, int]:
        """Return the indexes of the elements from `start` on, by the ids of their messages."""
        return {str(self.fields(at).get("id")): at for at in range(start, len(self))}

    def fields(self, index: int) -> Mapping[str, Any]:
        """Return the fields of the message of an element."""
        return self._parts[index][1]

    def messages(self) -> list[lc.BaseMessage]:
        """Return messages with these fields, which share nothing with others that can be changed.

        A message that was handed out before is handed out again if nothing but this list refers to it.  The lock makes
        sure that of two readers at once only one finds that.
        """
        with _reuse:
            before = self._objects
            is_alone = len(before) == len(self) and max(map(getrefcount, before), default=0) <= _ALONE
            if is_alone and [*map(_parts_of, before)] == self._parts:
                return list(before)
            self._objects = list(map(_message_of, self._parts, self._copied))
            return list(self._objects)


def _copied(fields: Mapping[str, Any]) -> _Copied:
    """Return the fields that can be changed in place, each with the way to copy it; an empty one is quick to copy."""
    plain = (str, int, float, bool, NoneType)
    ways: dict[Any, Callable[[Any], Any]] = {dict: dict, list: list}
    return tuple(
        (key, copy.deepcopy if each else ways.get(type(each), copy.deepcopy))
        for key, each in fields.items()
        if type(each) not in plain
    )


def _message_of(parts: _Parts, copied: _Copied) -> lc.BaseMessage:
    kind, fields, extra = parts
    own = fields.copy()
    for key, way in copied:
        own[key] = way(fields[key])
    found, put = kind.__new__(kind), object.__setattr__
    put(found, "__dict__", own)
    put(found, "__pydantic_fields_set__", set(own))
    put(found, "__pydantic_extra__", None if extra is None else copy.deepcopy(extra) if extra else {})
    put(found, "__pydantic_private__", None)
    return found


def _own(value: Any) -> Any:
    """Return a copy of a value that shares nothing which can be changed."""
    if value is None or type(value) is str:
        return value
    if value == {} or value == []:
        return {} if isinstance(value, dict) else []
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
            while len(self._lists) > _LISTS_MAX:
                self._lists.popitem(last=False)


def decoded(codec: Codec, stored: Sequence[Json]) -> MessageList | None:
    """Return the elements of a stored list; None if not all of them are messages."""
    found = MessageList()
    for each in stored:
        if not isinstance(each, dict) or each.get(MARK) != "message":
            return None
        found.add(cast("dict[str, Json]", each), codec.decode(each))
    return found


def elements_of(
    codec: Codec, messages: Sequence[Any], before: MessageList
) -> tuple[MessageList, int, list[int]] | None:
    """Return the elements of a list of messages; None if not all of them are messages.

    Also returns how many of them it shares with the list `before` at the beginning, and which elements of that are gone.
    """
    found = MessageList()
    if not all(map(is_message, messages[len(before) :])):
        return None
    shared = before.shared(messages)
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
    return found, shared, gone


def transcribe(
    change: Change,
    before: MessageList,
    after: MessageList,
    shared: int,
    gone: list[int],
    spoken: Callable[[], Collection[str]],
) -> int:
    """Take back the messages that are gone and say the new ones; each new element then has the id of its message.

    `spoken` returns the ids of the transcript: a message that `missed` took from there is not said again.  Returns how
    many elements at the beginning are as they were stored.
    """
    if len(gone) > _RETRACTIONS_MAX:
        change.retract_all()
        after.stored[:] = [{key: each[key] for key in each if key != _SAID} for each in after.stored]
        shared = 0
    else:
        for at in gone:
            said = before.stored[at].get(_SAID)
            if said and isinstance(said, str):
                change.retract(said)
    known: Collection[str] | None = None
    for at in range(shared, len(after)):
        stored, fields = after.stored[at], after.fields(at)
        role = _ROLES.get(str(fields.get("type", "")).lower().removesuffix("messagechunk"))
        if _SAID in stored or role is None:
            continue
        own, _, part = str(fields.get("id") or "").removeprefix(_FOREIGN).partition("#")
        if str(fields.get("id")).startswith(_FOREIGN):
            known = spoken() if known is None else known
        is_known = known is not None and own in known
        # One message of the transcript may be several here; the first of them stands for it.
        said = ("" if part else own) if is_known else _say(change, role, fields)
        after.stored[at] = {**stored, _SAID: said}
    return shared


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
