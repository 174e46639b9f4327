"""Turns without end, through the face: what a process does until it is killed.

The next process can do each step again: it names its writes, and it reads the current state.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

from perdure import Store
from tests.crash.day import Fact, Gone, Held, InAgentMap, Moved, Step

__all__ = ["promised", "turns"]

THREAD, AGENT = "trip-42", "planner"
NOTE = "carrots, " * 100


def turns(first: int) -> Iterator[tuple[str, Step]]:
    """Turns from number `first` on, with forks, promotions, undos and removals between them, by name."""
    for number in count(first):
        yield f"turn {number}", _turn(number)
        if number % 3 == 1:
            yield f"fork {number}", _fork(number)
            yield f"promote {number}", _promote(number)
        if number % 3 == 2:
            yield f"undo {number}", _undo(number)
            yield f"redo {number}", _redo(number)
        if number % 4 == 3:
            yield f"remove {number}", _remove(number)


def promised(name: str) -> list[Fact]:
    """What can be said of the step of that name before it is made."""
    kind, _, number = name.partition(" ")
    return [InAgentMap(AGENT, f"/seen/{number}", int(number))] if kind == "turn" else []


def _turn(number: int) -> Step:
    def turn(store: Store) -> list[Fact]:
        thread = store.thread(THREAD, agent=AGENT)
        with thread.change(f"turn {number}", op_id=f"turn-{number}") as change:
            change.say("user", f"and number {number}")
            change.put("/last.json", number)
            change.put(f"/notes/{number}", f"{number} {NOTE}")
            change.agent.put(f"/seen/{number}", number)
        assert change.head is not None
        assert change.head.commit is not None
        values = (("/last.json", number), (f"/notes/{number}", f"{number} {NOTE}"))
        return [
            Moved(THREAD, change.head),
            Held(THREAD, change.head.commit, values),
            InAgentMap(AGENT, f"/seen/{number}", number),
        ]

    return turn


def _fork(number: int) -> Step:
    def fork(store: Store) -> list[Fact]:
        line = store.thread(THREAD).fork(f"line-{number}", at=f"HEAD~{number % 2}", op_id=f"fork-{number}")
        with line.change("on the fork", op_id=f"on-fork-{number}") as change:
            change.put("/forked.json", number)
            change.agent.put(f"/forked/{number}", number)
        assert change.head is not None
        return [Moved(THREAD, change.head)]

    return fork


def _promote(number: int) -> Step:
    def promote(store: Store) -> list[Fact]:
        head = store.thread(THREAD).promote(f"line-{number}", op_id=f"promote-{number}")
        return [Moved(THREAD, head), InAgentMap(AGENT, f"/forked/{number}", number)]

    return promote


def _undo(number: int) -> Step:
    return lambda store: [Moved(THREAD, store.thread(THREAD).undo(op_id=f"undo-{number}"))]


def _redo(number: int) -> Step:
    return lambda store: [Moved(THREAD, store.thread(THREAD).redo(op_id=f"redo-{number}"))]


def _remove(number: int) -> Step:
    def remove(store: Store) -> list[Fact]:
        id = f"draft {number} of {os.getpid()}"  # a process that does the step again has a draft of its own
        thread = store.thread(id, agent=AGENT)
        thread.put("/draft.json", number)
        thread.rm()
        return [Gone(id)]

    return remove
