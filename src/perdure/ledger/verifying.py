"""Verifying a store with its books: everything that history checks, and that calls are what their log says."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from perdure.engines.contract import Engine
from perdure.history import verify as history
from perdure.history.space import THREADS, Space
from perdure.history.verify import Report
from perdure.ledger.faults import faults

__all__ = ["verify"]


def verify(
    engine: Engine,
    *,
    spaces: Iterable[str] | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Report:
    """Check everything that `spaces` hold, all of them if None; never raises on damaged data."""
    return history.verify(engine, spaces=spaces, progress=progress, books=_books)


def _books(space: Space) -> Iterable[tuple[str, str]]:
    return faults(space) if space.name.startswith(THREADS) else ()
