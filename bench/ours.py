"""Perdure, driven as a program would drive it, and its engine alone.

For the engine alone the writes are made beforehand, by the same program on a store in
memory that keeps what it is asked to apply.  What is left is what the engine costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import perdure
from bench.sync import without_syncs
from bench.workload import STEPS, Turn
from perdure.engines.contract import Engine, Receipt, Write
from perdure.engines.registry import open_engine
from perdure.model.limits import Limits
from perdure.store.plumbing.handles import Ids, StoreResources
from perdure.store.store import Store

__all__ = ["EngineAlone", "Face", "recorded_store"]

AGENT = "bench"


class Face:
    """One thread of a store, through the public Python face."""

    name = "Perdure"

    def __init__(
        self, directory: Path, *, thread: str = "t", durable: bool = True, store: Store | None = None
    ) -> None:
        self.path = directory / "perdure.db"
        self._owned = store is None
        with without_syncs(not durable):
            durability = "power_loss" if durable else "process_crash"
            self.store = store or perdure.open(self.path, durability=durability)
        self.thread = self.store.thread(thread, agent=AGENT)

    def turn(self, turn: Turn) -> None:
        for step in turn.steps:
            with self.thread.change(step.reason, run=turn.run) as change:
                change.add(step.message)
                if step.key is not None:
                    change.put(step.key, cast("Any", step.value))

    def close(self) -> None:
        if self._owned:
            self.store.close()


class EngineAlone:
    """An engine under ready-made writes: SQLite's, or the one at `url`."""

    name = "its engine alone"

    def __init__(
        self, directory: Path, turns: Sequence[Turn], *, url: str | None = None, thread: str = "t"
    ) -> None:
        store, taken = recorded_store()
        face = Face(directory, store=store, thread=thread)
        begun = len(taken)
        for turn in turns:
            face.turn(turn)
        self.path = directory / "engine.db"
        self._engine = open_engine(
            url or str(self.path), read_only=False, create=True, durability="power_loss"
        )
        for write in taken[:begun]:
            self._engine.apply(write)
        self._writes = iter(taken[begun:])

    def turn(self, turn: Turn) -> None:
        for _ in range(STEPS):
            self._engine.apply(next(self._writes))

    def close(self) -> None:
        self._engine.close()


class _Taking:
    """An engine that keeps what it is asked to apply."""

    def __init__(self, engine: Engine, taken: list[Write]) -> None:
        self._engine, self._taken = engine, taken

    def apply(self, write: Write) -> Receipt:
        self._taken.append(write)
        return self._engine.apply(write)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def recorded_store(url: str = "memory:") -> tuple[Store, list[Write]]:
    """A store, and the list to which everything is added that its engine is asked to apply."""
    taken: list[Write] = []
    engine = cast(
        "Engine", _Taking(open_engine(url, read_only=False, create=True, durability="power_loss"), taken)
    )
    clock = iter(range(1_700_000_000_000_000, 1_800_000_000_000_000)).__next__
    resources = StoreResources(engine=engine, clock=clock, ids=Ids(clock), limits=Limits())
    return Store(resources, url, read_only=False), taken
