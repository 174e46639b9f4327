"""Progress on long work, shown on the error stream and only to people."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from perdure.cli.output.formatting import size
from perdure.cli.output.screen import console

__all__ = ["working", "ReportProgress"]

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
