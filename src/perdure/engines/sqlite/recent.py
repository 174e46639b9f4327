"""Recent heads and cells: what this process last saw of them, good until anybody else writes.

A head is asked for before every change, and nearly always by the one who moved it last.  The
lock file counts the writes of all processes.  If it says the same as when a head was seen, and
nobody is writing, the head still stands there, and the database need not be asked.

While this process itself holds the lock nobody else can write.  What it is about to change is
forgotten before COMMIT and known again after it, and nothing that is read meanwhile is kept:
so nobody is told of what is not durable, nor of what has just been overtaken.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final, TypeAlias, TypeVar

from perdure.engines.contract import Cell, Hold, Receipt, Write
from perdure.engines.sqlite.lock import FileLock
from perdure.model.commit import LedgerRead

__all__ = ["LEDGER", "Name", "Recent"]

LEDGER = "\0"  # stands for the end of the ledger where a cell has its name; no cell is called so

_T = TypeVar("_T")
Name: TypeAlias = tuple[str, str, bool]  # a space, a timeline or a cell of it, and whether it is a cell

_HELD_MAX = 4_096  # then all are forgotten, and read again where they are needed
_UNSEEN: Final = object()
_NEVER = -2  # a number of writes that no lock file tells


class Recent:
    """Heads and cells by name.  Thread-safe."""

    def __init__(self, lock: FileLock) -> None:
        """Know nothing yet; `lock` says whether anybody has written since."""
        self._lock = lock
        self._mutex = Lock()
        self._seen: dict[Name, object] = {}
        self._writes = _NEVER  # how many there were when all this was true

    def ask(self, name: Name, read: Callable[[], _T]) -> _T:
        """Where a timeline stands, or a cell, by `read` if that is not known."""
        writes = (
            self._writes if self._lock.is_held else self._lock.writes()
        )  # first: later ones may be missed
        if writes == self._writes:
            found = self._seen.get(name, _UNSEEN)
            if found is not _UNSEEN:
                return found  # pyright: ignore[reportReturnType]  # a name has one kind of thing
        fresh = read()
        if writes >= 0:
            self._note(name, fresh, writes)
        return fresh

    def _note(self, name: Name, found: object, writes: int) -> None:
        with self._mutex:
            if self._lock.is_held or writes < self._writes:
                return
            if writes > self._writes:
                self._seen, self._writes = {}, writes
            self._seen[name] = found

    # ---- by who writes

    def begin(self, writes: int) -> None:
        """The lock is held; so many writes there were before."""
        with self._mutex:
            if writes != self._writes or len(self._seen) > _HELD_MAX:
                self._seen, self._writes = {}, writes

    def unknow(self, write: Write) -> None:
        """This is about to become true."""
        seen, space = self._seen, write.space
        for move in write.moves:
            seen.pop((space, move.timeline, False), None)
        for cell in write.cells:
            seen.pop((space, cell.name, True), None)
        if write.entries:
            seen.pop((space, LEDGER, True), None)

    def know(self, write: Write, holds: list[Hold], receipt: Receipt) -> None:
        """This has become true."""
        seen, space = self._seen, write.space
        for hold in holds:
            seen[space, hold.head.timeline, False] = hold
        for cell, revision in zip(write.cells, receipt.revisions, strict=True):
            seen[space, cell.name, True] = Cell(space, cell.name, revision, cell.value, receipt.position)
        if write.entries:
            seen[space, LEDGER, True] = LedgerRead(receipt.position, receipt.chain)

    def forget(self) -> None:
        """Anything is about to change."""
        self._seen = {}

    def end(self, writes: int) -> None:
        """The lock is held no more; so many writes there have been, -1 if that is not to be relied on."""
        with self._mutex:
            self._writes = _NEVER if writes < 0 else writes
