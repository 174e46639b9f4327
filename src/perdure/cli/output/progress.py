"""Progress on long work, shown on the error stream and only to people."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from perdure.cli.output.screen import console
from perdure.shapes.text import size

if TYPE_CHECKING:
    from perdure.history.verify import Progress as VerifyProgress

__all__ = ["checking", "working", "ReportProgress"]

ReportProgress: TypeAlias = Callable[[str, int], None]
"""Called with the kind of the work, and how much of it is done."""


@contextmanager
def working(title: str, *, total: int | None = None, quiet: bool = False) -> Generator[ReportProgress]:
    """Show a bar while the block works, without a terminal nothing.

    `total` is in bytes; None if it is unknown: the bar then shows only that work goes on.
    """
    on = console(stderr=True)
    if quiet or not on.is_terminal:
        yield lambda _what, _done: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[reached]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=on, transient=True) as progress:
        task = progress.add_task(title, total=total, reached="")
        shown = "{:,}".format if total is None else size
        yield lambda _what, done: progress.update(task, completed=done, reached=shown(done))


@contextmanager
def checking(title: str, *, quiet: bool = False) -> Generator[VerifyProgress | None]:
    """Show a bar with a percentage and the time that is left while the block verifies; without a terminal nothing."""
    on = console(stderr=True)
    if quiet or not on.is_terminal:
        yield None
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left:", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=on, transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda _space, done, total: progress.update(task, completed=done, total=total)
