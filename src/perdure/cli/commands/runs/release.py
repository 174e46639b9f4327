"""`perdure runs release`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.runs.show import placed_run
from perdure.cli.completion import in_store
from perdure.cli.input.stores import writing
from perdure.cli.input.users import decided_by
from perdure.cli.options import EVERYWHERE, By, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Screen
from perdure.errors import Invalid
from perdure.model.names import SERVER_THREAD

__all__ = ["Released", "release"]


class Released(Answer, frozen=True, kw_only=True):
    """The threads whose runs and approvals may go on now."""

    threads: list[str]
    held: int  # threads with open runs or approvals that are still held
    open: list[str] | None = None  # those of `threads` in which something was open; null: they were named
    runs: list[str]  # that were set aside, and that workers take again

    def show(self, screen: Screen) -> None:
        """Print each thread, and how many are left."""
        for thread in self.threads if self.open is None else self.open:
            screen.say("Released: ", (thread, "name"))
        others = 0 if self.open is None else len({*self.threads, SERVER_THREAD}) - 1 - len(self.open)
        if others:
            also = "other thread" if self.open else "thread"
            screen.say((f"Released: {count(others, also)} in which nothing was open.", "quiet"))
        if self.open or (self.open is None and self.threads):
            screen.suggest("See what the original has more: ", "compare", "ORIGINAL")
        for run in self.runs:
            screen.say("Released: run ", (run, "name"))
        if not self.threads and not self.runs:
            screen.say("Nothing was held or set aside; nothing was changed.")
        if self.held:
            screen.say((f"{count(self.held, 'thread')} still held.", "quiet"))


def release(
    threads: Annotated[
        tuple[str, ...],
        Parameter(name="THREAD", completer=in_store, help="The threads' ids", show_default=False),
    ] = (),
    /,
    *,
    all_: Annotated[
        bool, Parameter(name="--all", negative=(), show_default=False, help="All threads that are held")
    ] = False,
    run: Annotated[
        str | None,
        Parameter(
            name="--run",
            metavar="RUN",
            completer=in_store,
            help="This run of the thread, which was set aside",
        ),
    ] = None,
    by: By = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Released:
    """Release the runs of a copied thread, or a run that was set aside

    A copied or restored thread has the same open and queued runs as its original. Release it only if nothing runs the
    original any more: two stores that go on with one run do the same thing twice. What the original has carried out
    since the copy was made is not known here, and is done again, a payment too: `perdure compare ORIGINAL` shows which
    threads have more there. A run is set aside if its process ended three
    times while it made no progress; with --run workers take it again.
    """
    if run is not None:
        return _released_run(threads, run, all_=all_, everywhere=everywhere)
    if bool(threads) == all_:
        raise Invalid(
            "name the threads to release, or give --all; nothing was released.",
            code="release_of_what",
            advice="`perdure doctor` says how many are held.",
        )
    with writing(everywhere) as store:
        before = set(store.held(open_only=True)) - {SERVER_THREAD} if all_ else None
        found = store.release(*threads, by=decided_by(by))
        opened = None if before is None else [each for each in found if each in before]
        return Released(threads=found, open=opened, held=len(store.held(open_only=True)), runs=[])


def _released_run(threads: tuple[str, ...], run: str, *, all_: bool, everywhere: Everywhere) -> Released:
    if len(threads) > 1 or all_:
        raise Invalid(
            "a run is released with its one thread; nothing was released.",
            code="release_of_what",
            advice="Write `perdure runs release --run RUN`.",
        )
    with writing(everywhere) as store:
        thread, run = placed_run(store, next(iter(threads), None), run)
        was_aside = store.thread(thread).release(run)
        return Released(threads=[], held=len(store.held(open_only=True)), runs=[run] if was_aside else [])
