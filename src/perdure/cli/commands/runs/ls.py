"""`perdure runs ls`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure.cli.input.lookup import is_held
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, AnyThread, Everywhere, Limit, OnlyTimeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import ago, count, moment, the_last
from perdure.cli.output.ledger_words import show_held, state
from perdure.cli.output.screen import Column, Screen
from perdure.errors import NotFound
from perdure.model.call import OPEN, CallRecord
from perdure.model.run import ENDED, RunRecord, RunState
from perdure.shapes.ledger import RunPage, RunShape
from perdure.shapes.lookup import lately
from perdure.shapes.text import now, stamp
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["OpenCall", "RunLsAnswer", "ls"]

_COLUMNS = (
    Column("thread", "name", is_id=True),
    Column("timeline", "line", is_id=True, leaves=2),
    Column("state"),
    Column("when", "when", leaves=1),
    Column("why", "quiet", gives_way=True),
    Column("run", is_id=True),
)
_CALLS = {
    "proposed": "not begun",
    "requested": "not begun",
    "approved": "approved, not begun",
    "awaiting_approval": "waits for a decision",
    "started": "under way",
    "unknown": "outcome unknown",
    "needs_human": "outcome unknown",
}


class OpenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a listed run that has not ended, or whose outcome is unknown."""

    thread: str
    run: str
    call: str
    tool: str
    state: str
    undone: bool  # it waits for a decision that no person can make, because its turn was undone
    words: str  # the tool, and how far its call is


class RunLsAnswer(RunPage, Answer, frozen=True, kw_only=True):
    """The runs of a thread, oldest first; without one, those of all threads that have not ended.

    With a state and no thread, those of all threads in that state, newest first.
    """

    state: str | None  # null: any, of all threads any that has not ended
    calls: list[OpenCall]
    held: list[str]  # the threads of open runs that were copied or restored, and not released
    unclear: int  # calls of the whole store, or of the thread, whose outcome is unknown

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if not self.runs:
            self._show_nothing(screen)
            self._show_unclear(screen)
            return
        at_now = now()
        screen.table(
            _COLUMNS,
            [
                (
                    "" if self.thread else each.thread,
                    each.timeline if each.timeline != "main" else "",
                    (f"{each.shown_state}, held", "warn") if self._is_held(each) else state(each.shown_state),
                    _when(each, at_now),
                    "; ".join((*((each.why,) if each.why else ()), *self._words(each))),
                    each.id,
                )
                for each in self.runs
            ],
        )
        if self.more:
            screen.say((f"{the_last(len(self.runs), 'run')}; --limit 0 lists all.", "quiet"))
        for run, thread in dict.fromkeys((each.run, each.thread) for each in self.calls if each.undone):
            screen.suggest("Undone while it waited; end it: ", "runs", "cancel", thread, run)
        self._show_next(screen)
        show_held(screen, self.held)
        self._show_unclear(screen)

    def _show_nothing(self, screen: Screen) -> None:
        if self.thread:
            screen.say("There is no run here.")
        elif self.state:
            screen.say(f"No run of any thread is {self.state}.")
        else:
            screen.say("No run is under way, queued, interrupted or waiting.")
            screen.suggest("Those that failed: ", "runs", "ls", "--state", "failed")

    def _is_held(self, run: RunShape) -> bool:
        return run.thread in self.held and run.state not in ENDED

    def _words(self, run: RunShape) -> list[str]:
        return [each.words for each in self.calls if (each.thread, each.run) == (run.thread, run.id)]

    def _show_next(self, screen: Screen) -> None:
        """Print the commands that resume decided or interrupted runs, and the one that shows a call to decide.

        Of held threads none is resumed or decided.
        """
        free = [each for each in self.runs if not self._is_held(each) and not each.set_aside]
        ready = [each for each in free if each.decided or each.interrupted]
        if ready:
            first = ready[0]
            screen.suggest(
                "Go on:  ", "runs", "resume", first.id, "--code", "MODULE:NAME", threads=(first.thread,)
            )
            screen.suggest(
                "Or all: ", "work", "--code", "MODULE:NAME", threads={each.thread for each in ready}
            )
        waiting = [each for each in self.calls if each.state == "awaiting_approval" and not each.undone]
        asked = next((each for each in waiting if each.thread not in self.held), None)
        if asked is not None:
            screen.suggest("Decide: ", "approvals", "show", asked.call)

    def _show_unclear(self, screen: Screen) -> None:
        """Print how many calls have an unknown outcome, and the command that lists them."""
        if self.unclear:
            calls = count(self.unclear, "call")
            screen.say(("! ", "warn"), f"The outcome of {calls} is unknown, and a person has to settle it.")
            screen.suggest("List them: ", "calls", "ls", *((self.thread,) if self.thread else ()))


def ls(
    thread: AnyThread = None,
    /,
    *,
    state: Annotated[RunState | None, Parameter(metavar="STATE", help="Only runs in this state")] = None,
    limit: Limit = 50,
    timeline: OnlyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> RunLsAnswer:
    """List the runs of a thread, or all runs that have not ended

    With --state and without a thread, all runs in that state are listed, newest first: `perdure runs ls --state failed`.
    """

    def wanted(each: tuple[Thread, RunRecord]) -> bool:
        return state in (None, each[1].state) and timeline in (None, each[1].timeline)

    with reading(everywhere) as store:
        opened = None if thread is None else store.thread(thread)
        if opened is not None:
            found = lately(lambda last: _of(opened, last), wanted, limit)
        elif state in ENDED:
            found = [
                run
                for each in store.threads()
                for run in lately(lambda last, on=each: _of(on, last), wanted, limit)
            ]
        else:
            found = list(filter(wanted, _threads(store, store.open_runs())))
        if not found and thread is not None and timeline is not None:
            store.thread(thread, timeline=timeline)  # says which there are, if there is no such one
        found.sort(key=lambda each: each[1].begun_at)
        kept = found[-limit:] if limit else found
        if opened is None and state is not None:
            kept.reverse()
        unclear = [each for each in store.unclear_calls() if thread in (None, each[0])]
        runs = [RunShape.now(on, record) for on, record in kept]
        interrupted = {each.id for each in runs if each.interrupted}
        return RunLsAnswer(
            thread=thread,
            state=state,
            runs=runs,
            more=len(kept) < len(found),
            calls=list(_open_calls(kept, unclear, interrupted)),
            held=_held(kept),
            unclear=len(unclear),
        )


def _open_calls(
    runs: Iterable[tuple[Thread, RunRecord]],
    unclear: Iterable[tuple[str, CallRecord]],
    interrupted: Collection[str],
) -> Iterator[OpenCall]:
    """Yield the calls of runs under way that have not ended, and those of any run whose outcome is unknown."""
    unknown = list(unclear)
    for thread, record in runs:
        undone = _undone(thread, record) if record.state == "waiting" else ()
        of_run = [each for name, each in unknown if (name, each.run) == (thread.id, record.id)]
        if record.state in ("running", "waiting"):
            of_run += [each for each in thread.calls(run=record.id) if each.state in OPEN]
        for each in of_run:
            words = "undone" if each.id in undone else _CALLS.get(each.state, each.state)
            if each.state == "requested" and record.state == "running" and not each.reach.writes:
                words = "under way"  # the start of a call that only reads is not recorded
            if words == "under way" and record.id in interrupted:
                words = f"was {words}"
            yield OpenCall(
                thread=thread.id,
                run=record.id,
                call=each.id,
                tool=each.tool,
                state=each.state,
                undone=each.id in undone,
                words=f"{each.tool}: {words}",
            )


def _held(runs: Iterable[tuple[Thread, RunRecord]]) -> list[str]:
    """Return the threads of runs that have not ended and go on only after a release."""
    threads = {thread.id: thread for thread, record in runs if record.state not in ENDED}
    return sorted(id for id, thread in threads.items() if is_held(thread))


def _undone(thread: Thread, run: RunRecord) -> frozenset[str]:
    """Return the calls of a run that wait for a decision and whose turn was undone, so that no person can decide them."""
    waiting = [each for each in thread.calls(run=run.id) if each.state == "awaiting_approval"]
    with suppress(NotFound):  # the timeline is gone
        open_ = {ticket.call for ticket in thread.on(run.line or run.timeline).approvals()}
        left = [each.id for each in waiting if each.id not in open_]
        tickets = {call: thread.trace(call, history=False).ticket for call in left}
        return frozenset([call for call, ticket in tickets.items() if ticket and not ticket.is_timer])
    return frozenset()


def _when(run: RunShape, at_now: int) -> str:
    """Return when a run began, or for when it is scheduled."""
    is_later = run.due is not None and run.due > stamp(at_now)
    return f"at {moment(run.due or '')}" if is_later else ago(run.begun_at, at_now)


def _of(thread: Thread, limit: int | None) -> list[tuple[Thread, RunRecord]]:
    return [(thread, record) for record in thread.runs(limit=limit)]


def _threads(store: Store, found: list[tuple[str, RunRecord]]) -> Iterator[tuple[Thread, RunRecord]]:
    for id, record in found:
        with suppress(NotFound):  # the run of a thread that was removed
            yield store.thread(id), record
