"""Looking over an engine's shoulder: what its writing connection executes, and threads held where a test wants them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from threading import Event, Thread
from typing import Any

import pytest

from perdure.engines.contract import Receipt, Write
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.database import Database
from perdure.errors import PerdureError
from tests.crash.on_disk import group_of

__all__ = ["Crowd", "Spy", "spied"]

DEADLINE_SECONDS = 60.0  # far beyond what any of this takes; it only turns a hang into a failure


class Spy:
    """A connection that tells of each statement before and after it is executed."""

    def __init__(
        self,
        database: Database,
        before: Callable[[str], object] | None = None,
        after: Callable[[str], object] | None = None,
    ) -> None:
        self._database, self._before, self._after = database, before, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def execute(self, statements: str, bindings: Any = None) -> Any:
        """Run SQL."""
        if self._before is not None:
            self._before(statements)
        cursor = self._database.execute(statements, bindings)
        if self._after is not None:
            self._after(statements)
        return cursor


def spied(
    engine: SqliteEngine,
    *,
    before: Callable[[str], object] | None = None,
    after: Callable[[str], object] | None = None,
) -> None:
    """Tell of what the group of `engine` executes itself: BEGIN, COMMIT, barriers, upkeep."""
    group = group_of(engine)
    group._db = spy = Spy(group._db, before, after)  # pyright: ignore[reportAttributeAccessIssue]
    group._execute = spy.execute


class Crowd:
    """Writers of one process who are made to queue, so that they are committed as one group.

    The first writer holds the lead until the others stand in line.  When it has written, `then`
    is called, and the next group is the whole line, in the order in which they came.
    """

    def __init__(
        self, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]
    ) -> None:
        self._group = group_of(engine)
        self._leads, self._let_go = Event(), Event()
        self._threads: list[Thread] = []
        self._answers: dict[int, Receipt | PerdureError] = {}
        lock, left = self._group._file_lock, Event()
        acquire, release = lock.acquire, lock.release

        def held(seconds: float) -> bool:
            self._leads.set()
            assert self._let_go.wait(DEADLINE_SECONDS)
            return acquire(seconds)

        def released(*, settled: bool, spaces: Collection[int] = (0,)) -> None:
            release(settled=settled, spaces=spaces)
            if not left.is_set():
                left.set()
                then()

        monkeypatch.setattr(lock, "acquire", held)
        monkeypatch.setattr(lock, "release", released)

    def come(self, wanted: Write, *, behind: int = 0) -> None:
        """Hand in a write from a thread of its own, and wait until it stands in line, `behind` so many others."""
        number = len(self._threads)
        thread = Thread(target=self._write, args=(number, wanted), daemon=True)
        self._threads.append(thread)
        thread.start()
        assert self._leads.wait(DEADLINE_SECONDS)
        while len(self._group._queue) < number + behind:
            thread.join(0.001)

    def answers(self) -> list[Receipt | PerdureError]:
        """Let them all go; what each was told, in the order in which they came."""
        self._let_go.set()
        for thread in self._threads:
            thread.join(DEADLINE_SECONDS)
        return [self._answers[number] for number in range(len(self._threads))]

    def _write(self, number: int, wanted: Write) -> None:
        try:
            self._answers[number] = self._group.apply(wanted)
        except PerdureError as error:
            self._answers[number] = error
