"""Processes that hold a line: a space made for leases, an engine whose clock a test sets, and jobs for others."""

from __future__ import annotations

from pathlib import Path

from perdure.engines.contract import CellWrite, Engine, Fence, Instant, Write
from perdure.engines.memory import MemoryEngine, MemoryStore
from perdure.engines.sqlite import SqliteEngine
from perdure.history.space import Space
from perdure.model.digest import Kind, digest_of
from perdure.runtime.session import lease as leases
from perdure.runtime.session.lease import Lease, Roster
from tests.crash.processes import Pipe
from tests.history.hand import Hand

__all__ = ["SECOND", "Clocked", "applied", "hold_line", "space_on", "take"]

SECOND = 1_000_000


class Clocked(MemoryEngine):
    """A memory engine whose clock stands where a test puts it."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        """Begin at some moment of some clock."""
        super().__init__(store)
        self.now = Instant("boot:1", 1_000 * SECOND)

    def instant(self) -> Instant:
        """Where the test put it."""
        return self.now

    def pass_(self, seconds: float) -> None:
        """Let time pass, or turn it back."""
        self.now = Instant(self.now.clock, self.now.at + round(seconds * SECOND))


def space_on(engine: Engine) -> Space:
    """A thread's space."""
    return Hand(engine).space


def applied(space: Space, *cells: CellWrite, fences: tuple[Fence, ...] = ()) -> None:
    """Make these cells true, if the fences hold."""
    name = f"op {space.ids()} {space.engine.holder()}"  # spaces of one test count alike
    write = Write(
        space=space.name, op_id=name, intent=digest_of(Kind.BODY, name.encode()), fences=fences, cells=cells
    )
    space.engine.apply(write)


def take(
    space: Space,
    run: str = "run-1",
    ttl: float = 30,
    after: Lease | None = None,
    *,
    timeline: str = "main",
    owners: Roster | None = None,
) -> Lease:
    """Take a line."""
    taking = leases.taking(space, timeline, run, ttl, after, owners=owners)
    applied(space, taking)
    return leases.taken(taking)


def hold_line(pipe: Pipe, path: str, ttl: float) -> None:
    """Take `main`, say so, and try to write under the lease whenever told."""
    space = space_on(SqliteEngine(Path(path)))
    lease = take(space, "theirs", ttl)
    pipe.send(lease)
    while pipe.recv():
        try:
            applied(space, fences=(leases.fence(lease),))
            pipe.send("written")
        except Exception as error:
            pipe.send(error)
