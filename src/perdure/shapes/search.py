"""A search of messages for words: the same for the server and the command line.

A message is found if its text has all the words, in any order and in any case; a word may be a part of another.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perdure.errors import Invalid
from perdure.projections.transcript import Turn
from perdure.shapes.conversation import MessageShape, turns_of
from perdure.shapes.lookup import view_at
from perdure.store.thread import Thread

__all__ = ["FoundMessage", "SearchPage", "found_in", "search_back", "words_in"]

_TURNS_AT_ONCE = 50


class FoundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that has all the words."""

    thread: str
    timeline: str
    turn: int
    message: MessageShape


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that have all the words, thread by thread, the newest first; of many threads those of main."""

    query: str
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
            text = entry.text.casefold()
            if all(word in text for word in words):
                shape = MessageShape.of(entry)
                yield FoundMessage(
                    thread=thread.id, timeline=thread.timeline, turn=turn.number, message=shape
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
