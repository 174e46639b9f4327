"""A call that is cut off after its effect, on a store whose clocks a test sets, and taken up by another opening."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from perdure import Store, Thread
from perdure.engines.contract import Instant
from perdure.engines.memory import MemoryStore
from perdure.errors import Unavailable
from perdure.runtime.calls.direct_call import CallResult
from tests.ledger.holders import Clocked
from tests.runtime.runs.injecting import Wire, opened, unavailable

__all__ = ["DAY", "Place"]

DAY = 86_400


class Place:
    """One store, opened again and again; whoever had it open before is gone."""

    def __init__(self) -> None:
        """Open it for the first time."""
        self._kept = MemoryStore()
        self._now = Instant("boot:1", 10**12)
        self.wall = 10**15  # µs since 1970
        self.wire, self.engine = self._open()
        self.store = self._store()

    @property
    def thread(self) -> Thread:
        """The thread that calls are made on."""
        return self.store.thread("trip", agent="planner")

    def cut_off(self, tool: Callable[..., Any], arguments: Mapping[str, Any], *, id: str, after: int) -> None:
        """Make a call whose process can write nothing after so many writes, and then ends."""
        thread = self.thread
        self.wire.arm(unavailable, nth=after + 1, times=100)
        with pytest.raises(Unavailable):
            thread.call(tool, arguments, id=id)  # pyright: ignore[reportArgumentType]
        self.again()

    def again(self) -> None:
        """End the process, and open the store anew."""
        self._now = self.engine.now
        self.engine.close()
        self.wire, self.engine = self._open()
        self.store = self._store()

    def pass_(self, seconds: float) -> None:
        """Let time pass on the engine's clock alone."""
        self.engine.pass_(seconds)

    def boot(self) -> None:
        """Start the machine anew: its clock has another name."""
        self.engine.now = Instant("boot:2", 0)

    def call(self, tool: Callable[..., Any], arguments: Mapping[str, Any], *, id: str) -> CallResult:
        """Make a call, or go on with it."""
        return self.thread.call(tool, arguments, id=id)  # pyright: ignore[reportArgumentType]

    def _open(self) -> tuple[Wire, Clocked]:
        engine = Clocked(self._kept)
        engine.now = self._now
        return Wire(engine), engine

    def _store(self) -> Store:
        return opened(self.wire, "memory:", clock=lambda: self.wall)
