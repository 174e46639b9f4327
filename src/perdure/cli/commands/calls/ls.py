"""`perdure calls ls`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.runs.show import placed_run
from perdure.cli.completion import in_store
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, AnyThread, Everywhere, Limit, OnlyTimeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import ago, the_last
from perdure.cli.output.ledger_words import on_one_line, state
from perdure.cli.output.screen import Column, Screen
from perdure.errors import NotFound
from perdure.model.call import UNCLEAR, CallRecord, CallState
from perdure.model.head import MAIN
from perdure.shapes.ledger import CallPage, CallRecordShape
from perdure.shapes.lookup import interrupted_calls, lately
from perdure.shapes.text import now
from perdure.store.store import Store

__all__ = ["Calls", "ls"]

_COLUMNS = (
    Column("thread", "name", is_id=True),
    Column("tool", "tool", gives_way=True),
    Column("arguments", gives_way=True),
    Column("state"),
    Column("last", "when", leaves=1),
    Column("call", is_id=True),
)


class Calls(CallPage, Answer, frozen=True, kw_only=True):
    """The tool calls of a thread, oldest first; without a thread, all calls whose outcome is unknown.

    The outcome of a call that was under way when its run was interrupted is unknown, too.
    """

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if not self.calls:
            if self.thread:
                screen.say("There is no tool call here.")
            else:
                self._say_none(screen)
            return
        at_now = now()
        screen.table(
            _COLUMNS,
            [
                (
                    "" if self.thread else each.thread,
                    each.tool,
                    on_one_line(each.arguments),
                    state(each.state, each.outcome),
                    ago(each.at, at_now),
                    each.id,
                )
                for each in self.calls
            ],
        )
        if self.more:
            screen.say((f"{the_last(len(self.calls), 'call')}; --limit 0 lists all.", "quiet"))
        if not self.thread:
            self._suggest(screen)

    def _say_none(self, screen: Screen) -> None:
        screen.say("No call has an unknown outcome, and none was interrupted.")
        screen.suggest("Calls under way: ", "runs", "ls")

    def _suggest(self, screen: Screen) -> None:
        """Print how to go on with an interrupted call, and with one whose outcome is unknown."""
        ids = [each.id for each in self.calls]
        cut = next((each for each in self.calls if each.state == "started"), None)
        if cut is not None:
            resume = ("runs", "resume", cut.thread, cut.run or "RUN", "--code", "MODULE:NAME")
            screen.wrap(
                ("A call that is started was under way when its process ended; its run settles it.", "quiet")
            )
            screen.suggest("Resume its run: ", *resume, threads=(cut.thread,))
            threads = {each.thread for each in self.calls if each.state == "started"}
            screen.suggest("Or all runs:    ", "work", "--code", "MODULE:NAME", threads=threads)
        unclear = next((each for each in self.calls if each.state in UNCLEAR), None)
        if unclear is not None:
            place = (unclear.thread, screen.short_id(unclear.id, ids))
            screen.suggest("Look at one: ", "calls", "show", *place)
            screen.suggest("Settle it:   ", "calls", "resolve", *place, "done", "--why", "TEXT")
            screen.say(("             not_done, if it was not done", "quiet"))


class FoundCalls(Calls, frozen=True, kw_only=True):
    """The calls of all threads in a state, or of a tool, oldest first."""

    def _say_none(self, screen: Screen) -> None:
        screen.say("No thread has such a call.")

    def _suggest(self, screen: Screen) -> None:
        last = self.calls[-1]
        place = (last.thread, screen.short_id(last.id, [each.id for each in self.calls]))
        screen.suggest("Look at one: ", "calls", "show", *place)


def ls(
    thread: AnyThread = None,
    /,
    *,
    run: Annotated[
        str | None, Parameter(metavar="RUN", completer=in_store, help="Only calls of this run")
    ] = None,
    state: Annotated[CallState | None, Parameter(metavar="STATE", help="Only calls in this state")] = None,
    tool: Annotated[str | None, Parameter(metavar="NAME", help="Only calls of this tool")] = None,
    limit: Limit = 50,
    timeline: OnlyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Calls:
    """List the tool calls of a thread, or all calls whose outcome is unknown

    Calls that were under way when the process of their run ended are among the latter. With --state or --tool the calls
    of all threads are listed.
    All timelines of a thread share one ledger: an undo or a fork takes no call back.
    """

    def wanted(each: tuple[str, CallRecord]) -> bool:
        _, call = each
        return state in (None, call.state) and timeline in (None, call.timeline) and tool in (None, call.tool)

    with reading(everywhere) as store:
        if run is not None:
            thread, run = placed_run(store, thread, run)
        if thread is None and (state is not None or tool is not None):
            return _everywhere(store, wanted, limit)
        found = (
            list(filter(wanted, [*interrupted_calls(store), *store.unclear_calls()]))
            if thread is None
            else lately(lambda last: _of(store, thread, run, last), wanted, limit)
        )
        if not found and thread is not None:
            store.thread(thread, timeline=timeline or MAIN)  # says which there are, if there is no such one
        kept = found[-limit:] if limit else found
        return Calls(thread=thread, calls=list(_shapes(store, kept)), more=len(kept) < len(found))


def _everywhere(store: Store, wanted: Callable[[tuple[str, CallRecord]], bool], limit: int) -> Calls:
    """Return the last calls of all threads that are wanted, by the time of their last change."""
    found: list[tuple[str, CallRecord]] = []
    for thread in store.threads():
        with suppress(NotFound):  # a thread that is removed in the meantime
            found += lately(lambda last, id=thread.id: _of(store, id, None, last), wanted, limit)
    found.sort(key=lambda each: each[1].at)
    kept = found[-limit:] if limit else found
    return FoundCalls(thread=None, calls=list(_shapes(store, kept)), more=len(kept) < len(found))


def _of(store: Store, thread: str, run: str | None, limit: int | None) -> list[tuple[str, CallRecord]]:
    return [(thread, each) for each in store.thread(thread).calls(run=run, limit=limit)]


def _shapes(store: Store, found: list[tuple[str, CallRecord]]) -> Iterator[CallRecordShape]:
    for thread, record in found:
        with suppress(NotFound):  # the call of a thread that was removed
            yield CallRecordShape.traced(store.thread(thread), record)
