"""An engine that counts the calls it gets.  On a server each of them is a round trip."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

import perdure
from perdure import Store
from perdure.engines import registry

__all__ = ["KEEPER", "LOCAL", "CountingEngine", "opened"]

LOCAL = frozenset({"instant", "holder", "gone", "check", "close", "wait"})
"""Calls that need no round trip for an operation.

The clock is an offset to the server's, a mark and its proof are of this host, one thread waits for news for all others,
and an engine compares a space once for each opening of the store.
"""


KEEPER = "perdure-leases"
"""The thread that keeps the leases of a process; it looks at all its runs together, four times a second at most."""


class CountingEngine:
    """An engine, with the names of the calls that reached it, in order; `per_question`: an answer counts as a call."""

    def __init__(self, engine: Any, *, per_question: bool = False) -> None:
        """Stand before `engine`."""
        self._engine, self._per_question = engine, per_question
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """Give the engine's own method, which is noted before it is called."""
        method = getattr(self._engine, name)
        if name in LOCAL:
            return method

        def noted(*args: Any, **options: Any) -> Any:
            if threading.current_thread().name == KEEPER:
                return method(*args, **options)
            several = self._per_question and name == "answers"
            self.calls += [name] * (len(args[0]) if several else 1)
            return method(*args, **options)

        return noted


@contextmanager
def opened(
    url: str, monkeypatch: pytest.MonkeyPatch, *, per_question: bool = False
) -> Generator[tuple[Store, list[str]]]:
    """A store on a counting engine, and the calls that it has got."""
    made: list[CountingEngine] = []
    real = registry.open_engine

    def counting(*args: Any, **options: Any) -> Any:
        made.append(CountingEngine(real(*args, **options), per_question=per_question))
        return made[-1]

    with monkeypatch.context() as patched:
        patched.setattr(registry, "open_engine", counting)
        store = perdure.open(url)
    with store:
        yield store, made[0].calls
