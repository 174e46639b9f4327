"""Named points at which a process kills itself, in the middle of what an engine or the face does.

A point is a place in the program as it is; the process that is to die there changes its own
copy of the program so that arriving there for the n-th time is the last thing that it does.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

from perdure import Store
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.commit import group
from perdure.engines.sqlite.commit.group import WriteGroup
from perdure.engines.sqlite.format import index
from perdure.store.plumbing import directory, outbox
from tests.crash.spying import spied

__all__ = ["POINTS", "RANDOM", "arm", "often"]

RANDOM = "wherever it is"  # killed by another process

Fall = Callable[[], None]


def often() -> None:
    """Make checkpoints and the sorting-in of keys happen every few turns."""
    group._CHECKPOINT_EVERY_PAGES = 30
    index._BATCH_MIN = 80


def arm(store: Store, point: str, after: int) -> None:
    """Let this process die when it reaches `point` for the `after`-th time."""
    engine = store._resources.engine
    assert isinstance(engine, SqliteEngine)
    left = [after]

    def fall() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

    if point != RANDOM:
        POINTS[point](engine, fall)


def _at(sql: str) -> Callable[[SqliteEngine, Fall], None]:
    def point(engine: SqliteEngine, fall: Fall) -> None:
        spied(engine, before=lambda executed: fall() if executed.startswith(sql) else None)

    return point


def _after(sql: str) -> Callable[[SqliteEngine, Fall], None]:
    def point(engine: SqliteEngine, fall: Fall) -> None:
        spied(engine, after=lambda executed: fall() if executed.startswith(sql) else None)

    return point


def _before_call(holder: Any, name: str) -> Callable[[SqliteEngine, Fall], None]:
    def point(engine: SqliteEngine, fall: Fall) -> None:
        real = getattr(holder, name)

        def falling(*args: Any, **named: Any) -> Any:
            fall()
            return real(*args, **named)

        setattr(holder, name, falling)

    return point


def _after_call(holder: Any, name: str) -> Callable[[SqliteEngine, Fall], None]:
    def point(engine: SqliteEngine, fall: Fall) -> None:
        real = getattr(holder, name)

        def falling(*args: Any, **named: Any) -> Any:
            done = real(*args, **named)
            fall()
            return done

        setattr(holder, name, falling)

    return point


def _inside_checkpoint(engine: SqliteEngine, fall: Fall) -> None:
    """SQLite lets other threads run while it checkpoints: one of them kills the process some µs later."""
    real = WriteGroup._checkpoint

    def checkpoint(self: WriteGroup) -> None:
        Thread(target=fall, daemon=True).start()
        real(self)

    WriteGroup._checkpoint = checkpoint


def _between_removals(engine: SqliteEngine, fall: Fall) -> None:
    real = directory._write

    def write(space: Any, op_id: str, cell: Any) -> bool:
        if op_id.startswith("remove:"):
            fall()
        return real(space, op_id, cell)

    directory._write = write


POINTS: dict[str, Callable[[SqliteEngine, Fall], None]] = {
    "before BEGIN": _at("BEGIN"),
    "after INSERT": _after_call(index.Index, "add"),  # which both ways to insert a row call next
    "before COMMIT": _at("COMMIT"),
    "after COMMIT, before the answer": _after("COMMIT"),
    "before the checkpoint": _before_call(WriteGroup, "_checkpoint"),
    "inside the checkpoint": _inside_checkpoint,
    "after the checkpoint": _after_call(WriteGroup, "_checkpoint"),
    "inside the sorting-in of keys": _at("UPDATE meta SET value=? WHERE name='indexed_upto'"),
    "after the sorting-in of keys": _after("UPDATE meta SET value=? WHERE name='indexed_upto'"),
    "between the thread's write and the agent's": _before_call(outbox, "deliver"),
    "between the agent's write and its note": _before_call(outbox, "_empty"),
    "between the two writes of a removal": _between_removals,
}
