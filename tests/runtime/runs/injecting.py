"""An engine between a store and its real one, which does something at a chosen write."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from perdure import Store
from perdure.engines import registry
from perdure.engines.contract import Engine, Receipt, Recorded, Write
from perdure.errors import InDoubt, Unavailable
from perdure.store.plumbing.handles import (
    Ids,
    StoreResources,
)

__all__ = ["Action", "Injecting", "Nameless", "Wire", "engine", "in_doubt", "opened", "unavailable"]

Action = Callable[["Wire", Write], Receipt]


class Wire:
    """The way of writes to the real engine; `action` stands in for the writes from number `nth` on."""

    def __init__(self, inner: Engine) -> None:
        """Pass everything on."""
        self.inner = inner
        self.count = 0  # of the writes since the last arming
        self.nth, self.times = 0, 0  # 0: nothing happens
        self.action: Action = unavailable
        self.blind = False  # nothing that was recorded can be asked about

    def arm(self, action: Action, *, nth: int, times: int = 1) -> None:
        """Let `action` happen at write number `nth` from here, and at those after it, `times` in all."""
        self.action, self.nth, self.times, self.count = action, nth, times, 0

    def disarm(self) -> None:
        """Pass everything on again."""
        self.nth, self.blind = 0, False

    def apply(self, write: Write) -> Receipt:
        """Pass the write on, unless it is one of those that were chosen."""
        self.count += 1
        if self.nth and self.nth <= self.count < self.nth + self.times:
            return self.action(self, write)
        return self.inner.apply(write)

    def recorded(self, space: str, op_id: str) -> Recorded | None:
        """What became of a write, unless nobody can tell."""
        if self.blind:
            raise Unavailable("the store cannot be read now.")
        return self.inner.recorded(space, op_id)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the real engine's."""
        return getattr(self.inner, name)


def unavailable(wire: Wire, write: Write) -> Receipt:
    """Refuse the write: nothing was written."""
    raise Unavailable("the disk is full; nothing was written.")


def in_doubt(*, applied: bool, blind: bool = False) -> Action:
    """Lose the answer to a write that was, or was not, applied; `blind`: nor can anybody ask about it."""

    def action(wire: Wire, write: Write) -> Receipt:
        if applied:
            wire.inner.apply(write)
        wire.blind = wire.blind or blind
        raise InDoubt(write.op_id)

    return action


class Injecting:
    """A store that can be opened again and again, each time with a wire of its own."""

    def __init__(self, url: str) -> None:
        """Open the engine of that address."""
        self.wire = Wire(engine(url))
        self.store = opened(self.wire, url)


class Nameless(Wire):
    """A wire to an engine under one and the same name for whoever holds anything, in every store."""

    def holder(self) -> str:
        """Not the process's own, which is another each time and part of what the ledger says."""
        return "nameless"

    def gone(self, holder: str) -> bool:
        """Whoever has no name is there."""
        return False


def opened(
    wire: Wire, url: str, *, clock: Callable[[], int] | None = None, ids: Callable[[], str] | None = None
) -> Store:
    """A store whose writes pass that wire."""

    def system() -> int:
        return time.time_ns() // 1_000

    now = clock or system
    resources = StoreResources(engine=cast("Engine", wire), clock=now, ids=ids or Ids(now))
    return Store(resources, url, read_only=False)


def engine(url: str) -> Engine:
    """The engine of that address."""
    return registry.open_engine(url, read_only=False, create=True, durability="process_crash")
