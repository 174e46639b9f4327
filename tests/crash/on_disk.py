"""Stores on a simulated disk, opened as a program would open them and let go of in every way a program ends."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from perdure import Store
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.commit.group import WriteGroup
from perdure.errors import PerdureError
from perdure.store.plumbing import outbox
from perdure.store.plumbing.handles import StoreResources
from perdure.testing.disk import Disk

__all__ = ["FILE", "engine_on", "group_of", "opened", "store_on"]

FILE = "store.db"


def opened(disk: Disk, lock: Path, *, durable: bool = True, wait_seconds: float = 5.0) -> SqliteEngine:
    """The engine on the store that `disk` holds.  Its lock file is a real one: the disk has none."""
    return SqliteEngine(
        Path(FILE),
        durable=durable,
        wait_seconds=wait_seconds,
        vfs=disk.vfs,
        exclusive=True,
        sync_directory=disk.sync_directory,
        lock_path=lock,
    )


@contextmanager
def engine_on(disk: Disk, lock: Path, *, durable: bool = True) -> Generator[SqliteEngine]:
    """The same for a block; afterwards it is closed, or what is left of it after a fault or a kill."""
    engine = opened(disk, lock, durable=durable)
    try:
        yield engine
    finally:
        _let_go(engine)


@contextmanager
def store_on(
    disk: Disk,
    lock: Path,
    *,
    clock: Callable[[], int],
    ids: Callable[[], str],
    durable: bool = True,
) -> Generator[Store]:
    """The store on `disk`, opened as `perdure.open` does: what a dead process left half done is finished."""
    with engine_on(disk, lock, durable=durable) as engine:
        resources = StoreResources(engine=engine, clock=clock, ids=ids)
        outbox.finish_all(resources.named, resources.store)
        yield Store(resources, FILE, read_only=False)


def group_of(engine: SqliteEngine) -> WriteGroup:
    """The engine's one road to the writing connection."""
    group = engine._group
    assert group is not None
    return group


def _let_go(engine: SqliteEngine) -> None:
    with suppress(PerdureError):  # a disk that fails may fail at this too
        engine.close()
