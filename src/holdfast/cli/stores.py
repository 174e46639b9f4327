"""Opening the store that a command works on.

Only `init`, `import`, `chat` and `demo` make one: a mistyped path never creates anything.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from holdfast.cli.options import Everywhere
from holdfast.engines.contract import Engine
from holdfast.engines.registry import open_engine
from holdfast.threads.opening import open as open_store
from holdfast.threads.store import Store

__all__ = ["engine", "reading", "writing"]


@contextmanager
def reading(everywhere: Everywhere) -> Generator[Store]:
    """The store, for reading; raises `NotFound` if there is none."""
    with open_store(everywhere.store, read_only=True) as store:
        yield store


@contextmanager
def writing(everywhere: Everywhere) -> Generator[Store]:
    """The store, for writing; raises `NotFound` if there is none."""
    with open_store(everywhere.store, create=False) as store:
        yield store


@contextmanager
def engine(everywhere: Everywhere, *, read_only: bool = True) -> Generator[Engine]:
    """The engine below the store, for work on the store as a whole."""
    opened = open_engine(everywhere.store, read_only=read_only, create=False, durability="power_loss")
    try:
        yield opened
    finally:
        opened.close()
