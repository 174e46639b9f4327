"""Repairs a history so that every target accepts it: each call has exactly one result, right after it.

Any history (crashed, trimmed, merged, imported) is repaired: a call without a result gets one that says so, a
result without a call is left out, the last of several results counts, a call with the id of an earlier one
gets an id of its own, and an empty message is left out.  Each repair is an entry in the report.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import msgspec

from perdure.model.message import File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers.contract import Loss

__all__ = ["NO_PLACE", "NO_RESULT", "CallAnswer", "Exchange", "exchanges", "leading_system"]

NO_RESULT = "No result of this call was recorded."
NO_PLACE = "messages"  # of a result that the history does not hold: nothing of it can be lost


class CallAnswer(msgspec.Struct, frozen=True, gc=False):
    """A call and its result."""

    call: ToolCall
    result: ToolResult
    where: int | None  # index of the message with the result; None: the result was added here
    at: int = 0  # which of that message's results it is

    @property
    def place(self) -> str:
        """Return the place of the result, as reports name it."""
        return NO_PLACE if self.where is None else f"messages[{self.where}].tool_results[{self.at}]"


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """One message of the history, and the results of its calls; the message itself holds none.

    Its blocks keep their places, so that a report can name them; empty ones are not written.
    """

    where: int  # its place in the context
    message: Message
    answers: tuple[CallAnswer, ...] = ()  # in the order of the calls


class _OpenCall:
    """A call that waits for its result."""

    __slots__ = ("at", "call", "result", "where")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.result: ToolResult | None = None
        self.where: int | None = None
        self.at = 0  # which of that message's results it is


def exchanges(messages: Sequence[Message], *, continues: bool = False) -> tuple[list[Exchange], list[Loss]]:
    """Return the history in exchanges, and what had to be mended.

    `continues`: the server has the beginning of the conversation, so a result without a call is no loss.
    """
    losses: list[Loss] = []
    asked = {
        where: [_OpenCall(call) for call in message.tool_calls]
        for where, message in enumerate(messages)
        if message.tool_calls
    }
    _match(messages, asked, losses, continues=continues)
    found: list[Exchange] = []
    taken: dict[str, int] = {}  # ids of calls, and how many calls repeated each
    for where, message in enumerate(messages):
        bare = msgspec.structs.replace(message, tool_results=()) if message.tool_results else message
        says = _says(where, message, losses)
        answers: tuple[CallAnswer, ...] = ()
        if where in asked:
            answers = tuple([_answer(where, at, each, losses) for at, each in enumerate(asked[where])])
            bare, answers = _distinct(where, bare, answers, taken, losses)
        if says or answers:
            found.append(Exchange(where, bare, answers))
        elif not message.tool_results:
            losses.append(_loss("dropped", where, "empty message", "it says nothing"))
    return found, losses


def leading_system(found: Sequence[Exchange], losses: list[Loss]) -> tuple[str, Sequence[Exchange]]:
    """Split a history into the words of the system that it begins with, and the rest.

    For formats whose requests have one place for the words of the system.
    """
    said: list[str] = []
    for count, exchange in enumerate(found):
        if exchange.message.role != "system" or exchange.answers:
            return "\n\n".join(said), found[count:]
        losses.append(_loss("converted", exchange.where, "system message", "it is part of the system words"))
        for at, block in enumerate(exchange.message.content):
            if isinstance(block, Text) and block.text:
                said.append(block.text)
            elif isinstance(block, Image | File):
                why = "the system words are text alone"
                losses.append(_loss("dropped", f"{exchange.where}].content[{at}", "media", why))
    return "\n\n".join(said), ()


def _match(
    messages: Sequence[Message], asked: Mapping[int, list[_OpenCall]], losses: list[Loss], *, continues: bool
) -> None:
    """Match every result with its call: the first open one of that id before it, else the last that has one."""
    by_id: dict[str, _SameId] = {}
    for where, calls in asked.items():
        for each in calls:
            by_id.setdefault(each.call.id, _SameId()).add(where, each)
    for where, message in enumerate(messages):
        for at, result in enumerate(message.tool_results):
            same = by_id.get(result.call_id)
            if same is not None:
                same.give(result, where, at, losses)
            elif not continues:
                why = f"no call '{result.call_id}' is in the history"
                losses.append(_loss("dropped", f"{where}].tool_results[{at}", "tool result", why))


class _SameId:
    """The calls of one id; results are matched in their order."""

    __slots__ = ("_calls", "_open", "_places")

    def __init__(self) -> None:
        self._calls: list[_OpenCall] = []
        self._places: list[int] = []  # the message of each
        self._open = 0  # the first that has no result

    def add(self, where: int, call: _OpenCall) -> None:
        self._calls.append(call)
        self._places.append(where)

    def give(self, result: ToolResult, where: int, at: int, losses: list[Loss]) -> None:
        """Give a result to the first open call before it, else to the last before it."""
        before = bisect_left(self._places, where)
        if not before:
            why = "it stood before its call"
            losses.append(_loss("repaired", f"{where}].tool_results[{at}", "tool result", why))
            before = len(self._calls)
        if self._open < before:
            call = self._calls[self._open]
            self._open += 1
        else:
            call = self._calls[before - 1]
            why = "a later result of the same call stands"
            losses.append(_loss("dropped", f"{call.where}].tool_results[{call.at}", "tool result", why))
        call.result, call.where, call.at = result, where, at


def _answer(where: int, at: int, each: _OpenCall, losses: list[Loss]) -> CallAnswer:
    if each.result is not None:
        return CallAnswer(each.call, each.result, each.where, each.at)
    place = f"{where}].tool_calls[{at}"
    losses.append(_loss("repaired", place, "tool call", "it had no result; one that says so was put there"))
    return CallAnswer(each.call, ToolResult(each.call.id, "error", (Text(NO_RESULT),)), None)


def _distinct(
    where: int, message: Message, answers: tuple[CallAnswer, ...], taken: dict[str, int], losses: list[Loss]
) -> tuple[Message, tuple[CallAnswer, ...]]:
    """Return the calls of a message under ids that no other call of the history has."""
    ids = {answer.call.id for answer in answers}
    if len(ids) == len(answers) and taken.keys().isdisjoint(ids):
        taken.update(dict.fromkeys(ids, 1))
        return message, answers
    named: list[CallAnswer] = []
    for at, answer in enumerate(answers):
        id = answer.call.id
        while id in taken:
            taken[answer.call.id] += 1
            id = f"{answer.call.id}~{taken[answer.call.id]}"
        taken[id] = 1
        if id != answer.call.id:
            losses.append(
                _loss("repaired", f"{where}].tool_calls[{at}", "tool call id", "an earlier call has it")
            )
            call = msgspec.structs.replace(answer.call, id=id)
            result = msgspec.structs.replace(answer.result, call_id=id)
            answer = CallAnswer(call, result, answer.where, answer.at)
        named.append(answer)
    calls = tuple(answer.call for answer in named)
    return msgspec.structs.replace(message, tool_calls=calls), tuple(named)


def _says(where: int, message: Message, losses: list[Loss]) -> bool:
    """True if any block has content; empty texts are reported.

    Reasoning without text holds only the vendor's data, which is reported elsewhere.
    """
    empty = [at for at, block in enumerate(message.content) if _is_empty(block)]
    losses += [
        _loss("dropped", f"{where}].content[{at}", "empty block", "it says nothing")
        for at in empty
        if isinstance(message.content[at], Text)
    ]
    return len(empty) < len(message.content)


def _is_empty(block: object) -> bool:
    return isinstance(block, Text | ReasoningSummary) and not block.text


def _loss(kind: str, place: object, what: str, why: str) -> Loss:
    return Loss(kind=kind, where=f"messages[{place}]", what=what, why=why)  # pyright: ignore[reportArgumentType]
