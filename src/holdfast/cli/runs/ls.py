"""`holdfast runs ls`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from holdfast.cli.answer import Answer
from holdfast.cli.options import EVERYWHERE, AnyThread, Everywhere, Limit, OnlyTimeline
from holdfast.cli.records import RunShape, state
from holdfast.cli.screen import Column, Screen
from holdfast.cli.stores import reading
from holdfast.cli.wording import ago, count, now
from holdfast.model.run import ENDED, RunRecord, RunState
from holdfast.threads.store import Store
from holdfast.threads.thread import Thread

__all__ = ["Runs", "ls", "shape"]

_COLUMNS = (
    Column("thread", "name", gives_way=True),
    Column("timeline", "line", gives_way=True),
    Column("state"),
    Column("begun", "when"),
    Column("why", "quiet", gives_way=True),
    Column("run"),
)


class Runs(Answer, frozen=True, kw_only=True):
    """The runs of a thread, oldest first; without one, those of all threads that have not ended."""

    thread: str | None
    runs: list[RunShape]
    more: bool  # whether there are older ones beyond the limit

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if not self.runs:
            screen.say("There is no run here." if self.thread else "No run is under way, cut off or waiting.")
            return
        at_now = now()
        screen.table(
            _COLUMNS,
            [
                (
                    "" if self.thread else each.thread,
                    each.timeline if each.timeline != "main" else "",
                    state(each.stands),
                    ago(each.begun_at, at_now),
                    each.why or "",
                    each.id,
                )
                for each in self.runs
            ],
        )
        if self.more:
            screen.say((f"The last {count(len(self.runs), 'run')}; --limit 0 lists all.", "quiet"))


def ls(
    thread: AnyThread = None,
    /,
    *,
    state: Annotated[RunState | None, Parameter(metavar="STATE", help="Only runs in this state")] = None,
    limit: Limit = 50,
    timeline: OnlyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Runs:
    """List the runs of a thread, or all that have not ended"""
    with reading(everywhere) as store:
        found = [
            (on, record)
            for on, record in (_open(store) if thread is None else _of(store.thread(thread)))
            if state in (None, record.state) and timeline in (None, record.timeline)
        ]
        found.sort(key=lambda each: each[1].begun_at)
        kept = found[-limit:] if limit else found
        return Runs(
            thread=thread,
            runs=[shape(on, record) for on, record in kept],
            more=len(kept) < len(found),
        )


def shape(thread: Thread, record: RunRecord) -> RunShape:
    """A run as programs read it."""
    open_ = record.state in ("created", "running")
    return RunShape.of(thread.id, record, interrupted=open_ and thread.interrupted(record.id))


def _of(thread: Thread) -> Iterator[tuple[Thread, RunRecord]]:
    return ((thread, record) for record in thread.runs())


def _open(store: Store) -> Iterator[tuple[Thread, RunRecord]]:
    """The runs of every thread that have not ended."""
    running = {thread.id: thread for thread in store.threads(state="running")}
    waiting = {thread.id: thread for thread in store.threads(state="waiting")}
    for thread in (running | waiting).values():
        yield from (each for each in _of(thread) if each[1].state not in ENDED)
