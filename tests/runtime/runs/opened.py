"""Stores opened with what a program cannot choose: how long leases last, and what the clocks say."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import perdure
from perdure import Store
from perdure.engines import registry
from perdure.engines.contract import Engine
from perdure.engines.sqlite import SqliteEngine
from perdure.runtime.session.environment import StoreRuntime
from perdure.runtime.session.lease_keeper import LeaseKeeper
from perdure.store.plumbing.handles import (
    Ids,
    StoreResources,
)

__all__ = ["copy_of_empty", "store_in", "store_on"]

POLL_SECONDS = 0.02


def store_on(engine: Engine, *, lease: float | None = None, clock: Callable[[], int] | None = None) -> Store:
    """A store on that engine, whose leases last so many seconds; None: as long as usual."""
    owners = LeaseKeeper() if lease is None else LeaseKeeper(ttl=lease, poll=POLL_SECONDS)
    now = clock or (lambda: time.time_ns() // 1_000)
    resources = StoreResources(engine=engine, clock=now, ids=Ids(now), runtimes=[StoreRuntime(owners)])
    return Store(resources, "opened", read_only=False)


def store_in(path: str | Path, *, lease: float | None = None) -> Store:
    """The same in a file, or on a server."""
    if str(path).startswith("postgresql:"):
        engine = registry.open_engine(str(path), read_only=False, create=True, durability="power_loss")
        return store_on(engine, lease=lease)
    return store_on(SqliteEngine(Path(path)), lease=lease)


def copy_of_empty(path: str | Path) -> None:
    """Let there be an empty store; making many anew would mostly wait for the disk."""
    empty = Path(path).with_name("empty.db")
    if not empty.exists():
        perdure.open(empty).close()
    shutil.copyfile(empty, path)
