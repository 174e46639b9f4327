"""Progress on long work, shown on the error stream and only to people."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from holdfast.cli.screen import console

__all__ = ["Tell", "working"]

Tell: TypeAlias = Callable[[str, int], None]
"""Told what is being worked on, and how far it has come."""


@contextmanager
def working(title: str, *, total: int | None = None, quiet: bool = False) -> Generator[Tell]:
    """Show a bar while the block works, or a spinner where nobody knows the end; nothing without a terminal."""
    on = console(stderr=True)
    if quiet or not on.is_terminal:
        yield lambda _what, _done: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    counted = (
        (SpinnerColumn(), TextColumn("{task.completed:,.0f}"))
        if total is None
        else (BarColumn(), MofNCompleteColumn())
    )
    title_column = TextColumn("{task.description}", markup=False)
    with Progress(title_column, *counted, TimeElapsedColumn(), console=on, transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda _what, done: progress.update(task, completed=done)
