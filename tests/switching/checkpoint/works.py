"""Threads with work in them, for the tests of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import perdure
from perdure import Agent, Store, Thread, Tool, testing
from perdure.history.space import Space
from perdure.testing.script import ScriptStep

__all__ = ["Work", "opened", "space_of"]


def space_of(thread: Thread) -> Space:
    """The space behind a thread."""
    return thread._space


class Work:
    """A desk that books and looks things up, and counts what it did."""

    def __init__(self, store: Store, id: str = "trip") -> None:
        """Work on one thread of the store."""
        self.store, self.id = store, id
        self.booked: list[str] = []

        @perdure.tool(effect="external_write")
        def book(flight: str) -> str:
            self.booked.append(flight)
            return f"booked {flight}"

        @perdure.tool(effect="external_write", ask=True)
        def pay(amount: int) -> str:
            self.booked.append(f"paid {amount}")
            return f"paid {amount}"

        @perdure.tool(effect="read_only")
        def look(city: str) -> str:
            return f"rain in {city}"

        self.tools: list[Tool] = [book, pay, look]

    def thread(self, *steps: ScriptStep | Callable[..., ScriptStep], backend: str = "script:one") -> Thread:
        """The thread with an agent whose model will say this."""
        script = testing.Script(*steps, backend=backend)
        return self.store.thread(self.id, agent=Agent("desk", tools=self.tools).on(script), owner="ann")

    def turn(
        self, words: str, *steps: ScriptStep | Callable[..., ScriptStep], backend: str = "script:one"
    ) -> Thread:
        """Run one turn; the thread after it."""
        thread = self.thread(*steps, backend=backend)
        thread.run(words)
        return thread


@contextmanager
def opened(path: Path | None = None) -> Generator[Store]:
    """A store in memory, or in a file."""
    with perdure.open("memory:" if path is None else str(path / "work.db")) as store:
        yield store
