"""Writers that go on through an outage, and a count of what they wrote that does not ask the engine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager
from itertools import pairwise
from threading import Event, Thread
from typing import NamedTuple

import psycopg

from perdure.engines.postgres.connections import parse_address
from perdure.engines.postgres.engine import PostgresEngine
from perdure.errors import InDoubt, Unavailable
from perdure.model.head import Head
from perdure.testing.engines.builders import START, Made, made, moved, write

__all__ = ["Load", "Tally", "Writer", "load", "opened", "stored_ops", "tally"]


class Acknowledged(NamedTuple):
    """A write that the engine gave a receipt for."""

    op_id: str
    head: Head
    at: float


class Writer(Thread):
    """Commits on a timeline of its own; what is not acknowledged is sent again under the same op_id."""

    def __init__(self, url: str, space: str, *, wait_seconds: float) -> None:
        super().__init__(daemon=True)
        self._url, self.space, self._wait_seconds = url, space, wait_seconds
        self.acknowledged: list[Acknowledged] = []
        self.pending: str | None = None  # the op_id whose outcome is not known
        self.doubts, self.refusals = 0, 0
        self.failed: BaseException | None = None
        self.ends = Event()

    def run(self) -> None:
        try:
            with closing(opened(self._url, wait_seconds=self._wait_seconds)) as engine:
                self._write(engine)
        except BaseException as error:
            self.failed = error

    def _write(self, engine: PostgresEngine) -> None:
        tip: Made | None = None
        head = START
        while not self.ends.is_set():
            number = len(self.acknowledged)
            tip = made(f"{self.space} {number}", tip)
            self.pending = f"op {number}"
            wanted = write(self.pending, tip, moved(head, tip), b'"%d"' % number, space=self.space)
            while not self.ends.is_set():
                try:
                    head = engine.apply(wanted).heads[0]
                except InDoubt:
                    self.doubts += 1
                except Unavailable:
                    self.refusals += 1
                    time.sleep(0.1)
                else:
                    self.acknowledged.append(Acknowledged(self.pending, head, time.monotonic()))
                    self.pending = None
                    break


class Load:
    """Four writers."""

    def __init__(self, url: str, name: str, *, wait_seconds: float) -> None:
        self.writers = [Writer(url, f"{name} {n}", wait_seconds=wait_seconds) for n in range(4)]

    @property
    def count(self) -> int:
        """How many writes were acknowledged so far."""
        return sum(len(writer.acknowledged) for writer in self.writers)

    def first_after(self, moment: float) -> float | None:
        """Return when each writer had a receipt again after `moment`; None as long as one has none.

        Raises what a writer met that no outage explains.
        """
        self._check()
        firsts = [
            next((each.at for each in writer.acknowledged if each.at > moment), None)
            for writer in self.writers
        ]
        known = [first for first in firsts if first is not None]
        return max(known) if len(known) == len(firsts) else None

    def pause_seconds(self) -> float:
        """Return the longest time in which no writer had a receipt."""
        moments = sorted(each.at for writer in self.writers for each in writer.acknowledged)
        return max((later - earlier for earlier, later in pairwise(moments)), default=0)

    def stop(self) -> None:
        """End the writers; raise what one met that no outage explains."""
        for writer in self.writers:
            writer.ends.set()
        for writer in self.writers:
            writer.join(90)
            assert not writer.is_alive(), writer.space
        self._check()

    def _check(self) -> None:
        for writer in self.writers:
            if writer.failed is not None:
                raise writer.failed


@contextmanager
def load(url: str, name: str, *, wait_seconds: float = 30.0) -> Generator[Load]:
    """Run four writers."""
    running = Load(url, name, wait_seconds=wait_seconds)
    for writer in running.writers:
        writer.start()
    try:
        yield running
    finally:
        running.stop()


def opened(url: str, *, wait_seconds: float = 30.0) -> PostgresEngine:
    """Open the store of the cluster."""
    return PostgresEngine(parse_address(url, read_only=False), wait_seconds=wait_seconds)


class Tally(NamedTuple):
    """What is wrong with what is stored."""

    acknowledged: int
    lost: int  # acknowledged, and not there
    doubled: int  # there more than once
    unasked: int  # there, and neither acknowledged nor in doubt
    gaps: int  # writers whose versions or ledger positions are not 1, 2, 3, …

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.unasked or self.gaps)


_STORED = """
SELECT l.op_id, encode(l.digest, 'hex') FROM perdure.log l JOIN perdure.spaces s ON s.tenant = l.tenant AND s.id = l.space
WHERE s.tenant = '' AND s.name = %s AND l.op_id IS NOT NULL ORDER BY l.row_id
"""
_ENTRIES = """
SELECT e.position, e.body FROM perdure.entries e JOIN perdure.spaces s ON s.tenant = e.tenant AND s.id = e.space
WHERE s.tenant = '' AND s.name = %s ORDER BY e.position
"""
_VERSION = """
SELECT max(h.version) FROM perdure.heads h JOIN perdure.spaces s ON s.tenant = h.tenant AND s.id = h.space
WHERE s.tenant = '' AND s.name = %s
"""


def stored_ops(connection: psycopg.Connection, space: str) -> list[tuple[str, str]]:
    """Return the op_ids that are stored in a space, in order, each with the digest of its commit."""
    return [
        (bytes(op_id).decode(), digest) for op_id, digest in connection.execute(_STORED, (space.encode(),))
    ]


def tally(url: str, writers: list[Writer]) -> Tally:
    """Compare what was acknowledged with what the leader has, by plain SQL."""
    lost = doubled = unasked = gaps = 0
    with psycopg.connect(url, target_session_attrs="read-write", connect_timeout=5) as connection:
        for writer in writers:
            space = writer.space.encode()
            stored = stored_ops(connection, writer.space)
            promised = {(each.op_id, str(each.head.commit)) for each in writer.acknowledged}
            entries = connection.execute(_ENTRIES, (space,)).fetchall()
            bodies = Counter(bytes(body) for _, body in entries)
            lost += len(promised - set(stored))
            names = Counter(op_id for op_id, _ in stored)
            doubled += sum(n - 1 for n in (*names.values(), *bodies.values()))
            unasked += len(set(names) - {each.op_id for each in writer.acknowledged} - {writer.pending})
            versions = [each.head.version for each in writer.acknowledged]
            ((version,),) = connection.execute(_VERSION, (space,)).fetchall()
            is_whole = (
                versions == list(range(1, len(versions) + 1))
                and (version or 0) == len(stored)
                and [position for position, _ in entries] == list(range(1, len(stored) + 1))
                and [bytes(body) for _, body in entries] == [b'"%d"' % n for n in range(len(stored))]
            )
            gaps += not is_whole
    return Tally(sum(len(writer.acknowledged) for writer in writers), lost, doubled, unasked, gaps)
