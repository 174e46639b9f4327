"""`perdure export`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter
from msgspec import UNSET

from perdure.cli import gitting
from perdure.cli.answer import Answer
from perdure.cli.gitting import Directory, Follow, Projected
from perdure.cli.losses import LossShape, losses_of, show_losses
from perdure.cli.options import EVERYWHERE, At, Everywhere, Timeline
from perdure.cli.safe import safe_json
from perdure.cli.screen import Screen, console
from perdure.cli.sql import map_entries
from perdure.cli.stores import engine, reading
from perdure.cli.wording import count
from perdure.engines.registry import export_tables, open_sql
from perdure.errors import Invalid
from perdure.model.head import MAIN

__all__ = ["Exported", "Tabled", "export"]


_AnyThread: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="THREAD",
        help="The thread's id; all threads if left out with --format sqlite",
        show_default=False,
    ),
]
_Format: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--format",
        metavar="API",
        help="The wire format, such as openai-chat; or sqlite, for plain tables",
    ),
]
_Output: TypeAlias = Annotated[
    str | None, Parameter(name="--output", metavar="FILE", help="The new file that --format sqlite writes")
]


class Exported(Answer, frozen=True, kw_only=True):
    """A thread as a request in a vendor's format, and what is lost on the way."""

    thread: str
    timeline: str
    format: str
    body: dict[str, Any]
    losses: list[LossShape]

    def show(self, screen: Screen) -> None:
        """Print the request alone, so that it can be kept in a file; losses go to the error stream."""
        screen.say(safe_json(self.body))
        if self.losses:
            show_losses(Screen(console(stderr=True)), self.losses)


class Tabled(Answer, frozen=True, kw_only=True):
    """The views of a store as plain tables in a new SQLite file."""

    thread: str | None  # null: all threads
    output: str
    tables: dict[str, int]  # rows by table

    def show(self, screen: Screen) -> None:
        """Print where they are, and how many rows each has."""
        screen.say("Wrote ", count(len(self.tables), "table"), " to ", (self.output, "name"))
        screen.facts((name, count(rows, "row")) for name, rows in self.tables.items())


def export(
    thread: _AnyThread = None,
    /,
    *,
    format: _Format = None,
    output: _Output = None,
    model: Annotated[
        str | None, Parameter(metavar="NAME", help="The model it is for; none in particular if left out")
    ] = None,
    timeline: Timeline = MAIN,
    at: At = None,
    git: Directory = None,
    follow: Follow = False,
    everywhere: Everywhere = EVERYWHERE,
) -> Exported | Tabled | Projected | Iterator[Projected]:
    """Write a thread in a vendor's format, to git, or as plain tables

    With --format a request goes to the output, what could not be carried over unchanged to the
    error stream. `perdure import` makes a thread of it again.

    With --git the whole thread becomes a bare repository that is read and never read back: a git
    commit for each commit, a branch for each timeline, messages and state as files. Done again, it
    goes on from what is there.

    With --format sqlite the views of the store become plain tables of a new SQLite file, those that
    open what is packed too, of one thread or of all. Any program that reads SQLite reads it.
    """
    if format == "sqlite":
        return _tabled(thread, output, everywhere)
    if thread is None or output is not None:
        raise Invalid(
            "--output belongs to --format sqlite; nothing was written. Leave it out: a request goes to the output."
            if thread is not None
            else "nobody said which thread; nothing was written. Name one: only --format sqlite takes all."
        )
    if git is not None:
        if format is not None or model is not None or at is not None or timeline != MAIN:
            raise Invalid(
                "--git writes the whole thread; nothing was written. Leave out --format, --model, --timeline and --at."
            )
        return (gitting.follow if follow else gitting.project)(thread, git, everywhere)
    if format is None or follow:
        raise Invalid(
            "there is no --follow without --git; nothing was written. Name a directory."
            if follow
            else "nobody said as what; nothing was written. Give --format API or --git DIR."
        )
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        rendered = found.export(format, model=model, at=UNSET if at is None else at)
    return Exported(
        thread=thread,
        timeline=timeline,
        format=format,
        body=rendered.body,
        losses=losses_of(rendered.losses),
    )


def _tabled(thread: str | None, output: str | None, everywhere: Everywhere) -> Tabled:
    if output is None:
        raise Invalid(
            "--format sqlite writes a file; nothing was written. Name a new one with --output FILE."
        )
    if thread is None:
        with engine(everywhere):
            pass  # says in the usual words if this is no store of ours
    else:
        with reading(everywhere) as store:
            store.thread(thread)
    with closing(open_sql(everywhere.store, entries=map_entries)) as opened:
        written = export_tables(opened, Path(output), thread=thread)
    return Tabled(thread=thread, output=output, tables=written)
