"""Processes that keep a lease, for tests that stop them or have them fork."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from perdure.engines.sqlite import SqliteEngine
from perdure.runtime.session.lease_keeper import LeaseKeeper
from tests.crash.forks import forked, succeeded
from tests.crash.processes import Pipe
from tests.ledger.holders import space_on, take

__all__ = ["fork_while_keeping", "keep"]


def keep(pipe: Pipe, path: str, ttl: float) -> None:
    """Keep `main`; say whether it is still ours, and when it is lost."""
    space = space_on(SqliteEngine(Path(path)))
    owners = LeaseKeeper(ttl=ttl, poll=0.05)
    lost = threading.Event()
    lease = take(space, "theirs", ttl, owners=owners)
    keeping = owners.hold(lease, space=space, lost=lost.set, cancelled=lambda why: None)
    pipe.send(lease)
    while pipe.recv():
        pipe.send((keeping.still_ours(), lost.wait(60)))


def fork_while_keeping(pipe: Pipe, path: str, ttl: float) -> None:
    """Keep `main`; a forked child finds that it is not its own, and keeps a line of its own for longer than a lease."""
    space = space_on(SqliteEngine(Path(path)))
    owners = LeaseKeeper(ttl=ttl, poll=0.05)
    lost: list[str] = []
    lease = take(space, ttl=ttl, owners=owners)
    keeping = owners.hold(lease, space=space, lost=lambda: lost.append("parent"), cancelled=lambda why: None)

    def live() -> None:
        assert not keeping.still_ours()
        assert not owners.abandoned(space, lease)  # it is the parent's
        own = take(space, "child", ttl, timeline="fork", owners=owners)
        mine = owners.hold(own, space=space, lost=lambda: lost.append("child"), cancelled=lambda why: None)
        time.sleep(2 * ttl)
        assert mine.still_ours()
        assert own.holder != lease.holder
        assert lost == []

    ended_well = succeeded(forked(live))
    pipe.send((ended_well, keeping.still_ours(), lost))
