"""What a name in a request means: a moment of a thread, a call, a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from perdure.errors import Held, NotFound
from perdure.ledger.held import check_released
from perdure.ledger.trace import Traced
from perdure.model.call import CallRecord
from perdure.model.run import RunRecord
from perdure.store.agents import AgentMap
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = [
    "call_seen_from",
    "held_from",
    "interrupted_calls",
    "interrupted_runs",
    "lately",
    "run_of",
    "view_at",
]

_T = TypeVar("_T")
_GROWTH = 8


def view_at(line: Thread | AgentMap, at: str | None) -> View:
    """Return a view of `line` at a moment, now if None; later writes do not change the view."""
    return line.at() if at is None else line.at(at)


def call_seen_from(thread: Thread, call: str, timeline: str | None) -> Traced:
    """Read a call and its approval as a timeline sees them; None: the timeline on which it was asked.

    What was decided elsewhere than where it was asked is a call of its own there.
    """
    traced = thread.trace(call)
    if timeline is None or traced.ticket is None or traced.ticket.timeline == timeline:
        return traced
    thread.on(timeline)
    try:
        return thread.trace(f"{traced.ticket.id}/{timeline}")
    except NotFound:
        return traced


def held_from(thread: Thread) -> str | None:
    """Return the address of the store that a thread came from, if it was not released here; None: nothing is held."""
    try:
        check_released(thread._space)  # pyright: ignore[reportPrivateUsage]
    except Held as held:
        return held.source
    return None


def run_of(thread: Thread, id: str | None, timeline: str | None) -> RunRecord | None:
    """Return the run of that id, None: the last, of one timeline if it is named; None if there is none."""

    def wanted(each: RunRecord) -> bool:
        return timeline in (None, each.timeline) and id in (None, each.id)

    found = lately(lambda last: thread.runs(limit=last), wanted, 1, others=False)
    return found[-1] if found else None


def lately(
    read: Callable[[int | None], list[_T]], wanted: Callable[[_T], bool], limit: int, *, others: bool = True
) -> list[_T]:
    """Return the last that are wanted: more than `limit` if there are more (0: all), else all there are.

    `read` gives the last so many, None: all; it is called for more until that is enough.  Without `others`,
    `limit` of them are enough.
    """
    enough = limit + others
    last = enough if limit else None  # one more shows whether there are others
    while True:
        given = read(last)
        found = [each for each in given if wanted(each)]
        if last is None or len(found) >= enough or len(given) < last:
            return found
        last *= _GROWTH


def interrupted_runs(store: Store) -> list[tuple[Thread, RunRecord]]:
    """Return the runs whose process ended before they did, with their threads, oldest first."""
    found: list[tuple[Thread, RunRecord]] = []
    for id, run in store.open_runs():
        with suppress(NotFound):  # the run of a thread that was removed
            thread = store.thread(id)
            if run.state == "running" and thread.interrupted(run.id):
                found.append((thread, run))
    return found


def interrupted_calls(
    store: Store, runs: Iterable[tuple[Thread, RunRecord]] | None = None
) -> list[tuple[str, CallRecord]]:
    """Return the calls that were under way when the process of their run ended, with their threads, oldest first.

    `runs` are the interrupted runs, None: they are read.
    """
    found = [
        (thread.id, each)
        for thread, run in (interrupted_runs(store) if runs is None else runs)
        for each in thread.calls(run=run.id)
        if each.state == "started"
    ]
    return sorted(found, key=lambda each: each[1].at)
