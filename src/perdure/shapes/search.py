"""A search of messages for words: the same for the server and the command line.

A message is found if one of its places has all the words, in any order and in any case; a word may be a part of
another.  Its places are its text, its reasoning, each call that it makes, with the tool's name and the arguments, and
each result that it brings.  A result that is kept as an artifact is not read.
"""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import msgspec

from perdure.errors import Invalid
from perdure.model.message import Block, Message, ReasoningSummary, Text
from perdure.projections.transcript import Turn
from perdure.shapes.conversation import MessageShape, turns_of
from perdure.shapes.imported import titled
from perdure.shapes.lookup import view_at
from perdure.shapes.text import in_json
from perdure.store.thread import Thread

__all__ = ["FoundMessage", "FoundTitle", "SearchPage", "found_in", "search_back", "words_in"]

_TURNS_AT_ONCE = 50
_BEFORE, _EXCERPT = 200, 1_000  # characters of a place: before the first word, and in all


class FoundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that has all the words, and where it has them."""

    thread: str
    timeline: str
    turn: int
    kind: str  # of the first place that has them: text, reasoning, call or result
    text: str  # of that place, around the first word
    call: str | None  # that the place belongs to
    message: MessageShape


class FoundTitle(msgspec.Struct, frozen=True, kw_only=True):
    """A thread whose title has all the words."""

    thread: str
    title: str

    @classmethod
    def every(cls, thread: Thread, words: list[str]) -> list[FoundTitle]:
        """Return the title of a thread if it has all the words."""
        title = titled(thread, words)
        return [] if title is None else [cls(thread=thread.id, title=title)]


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that have all the words in one place, thread by thread, the newest first; of many threads those of main."""

    query: str
    titles: list[FoundTitle]  # of the threads that were looked at
    found: list[FoundMessage]
    scanned: int  # messages that were read for this page
    more: bool  # whether there are threads, or turns of the one thread, that were not read


def words_in(query: str) -> list[str]:
    """Return the words of a query; raises `Invalid` if there is none."""
    words = query.casefold().split()
    if not words:
        raise Invalid("a search needs a word; nothing was read.", code="query_invalid")
    return words


def found_in(thread: Thread, turns: list[Turn], words: list[str]) -> Iterator[FoundMessage]:
    """Yield the messages of turns that have all the words, the newest first."""
    for turn in reversed(turns):
        for entry in reversed(turn.entries):
            place = None if entry.words is None else _place_with(entry.words, words)
            if place is not None:
                yield FoundMessage(
                    thread=thread.id,
                    timeline=thread.timeline,
                    turn=turn.number,
                    kind=place.kind,
                    text=_around(place.text, words[0]),
                    call=place.call,
                    message=MessageShape.of(entry),
                )


class _SearchedText(NamedTuple):
    """One place of a message where words can be."""

    kind: str
    text: str
    call: str | None = None


def _place_with(message: Message, words: list[str]) -> _SearchedText | None:
    """Return the first place of a message that has all the words; None if none has."""
    for place in _places_of(message):
        text = place.text.casefold()
        if all(word in text for word in words):
            return place
    return None


def _places_of(message: Message) -> Iterator[_SearchedText]:
    yield _SearchedText("text", message.text)
    for block in message.content:
        if isinstance(block, ReasoningSummary):
            yield _SearchedText("reasoning", block.text)
    for call in message.tool_calls:
        # A model may have written any letter as an escape.
        arguments = json.dumps(in_json(call.args), ensure_ascii=False) if "\\" in call.args else call.args
        yield _SearchedText("call", f"{call.name} {arguments}", call.id)
    for result in message.tool_results:
        yield _SearchedText("result", _words_of(result.content), result.call_id)


def _words_of(content: tuple[Block, ...]) -> str:
    return "\n".join(block.text for block in content if isinstance(block, Text | ReasoningSummary))


def _around(text: str, word: str) -> str:
    """Return a part of a text around a word; a text that is short is whole."""
    folded = text.casefold()
    at = folded.find(word)
    if len(folded) != len(text):  # a letter may be two when its case is folded, as "ß" is
        at = bisect(list(accumulate(len(each.casefold()) for each in text)), at)
    begin = max(0, min(at - _BEFORE, len(text) - _EXCERPT))
    return (
        f"{'…' if begin else ''}{text[begin : begin + _EXCERPT]}{'…' if begin + _EXCERPT < len(text) else ''}"
    )


def search_back(
    thread: Thread, words: list[str], before: str | None
) -> Iterator[tuple[list[FoundMessage], int, str | None]]:
    """Search a timeline backwards from a moment, None: from its end, some turns at a time.

    Yields what was found, how many messages were read, and the moment where the next turns end; None: the beginning.
    """
    while True:
        turns = turns_of(view_at(thread, before), limit=_TURNS_AT_ONCE)
        before = turns[0].before if turns else None
        yield list(found_in(thread, turns, words)), sum(len(turn.entries) for turn in turns), before
        if before is None:
            return
