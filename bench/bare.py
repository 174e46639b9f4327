"""The baseline: the same bytes in bare SQLite tables, in as many durable transactions.

What one would write by hand who wants nothing but durability: no history of the state, no
digests, no check for other writers.  It is given ready-made bytes, so what it costs is
SQLite and the disk.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from bench.sync import without_syncs
from bench.workload import Turn

__all__ = ["Bare"]

_TABLES = """
CREATE TABLE IF NOT EXISTS messages(
    thread TEXT, seq INTEGER, body TEXT, PRIMARY KEY (thread, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state(
    thread TEXT, key TEXT, value TEXT, PRIMARY KEY (thread, key)
) WITHOUT ROWID;
"""
_SAY = "INSERT INTO messages VALUES (?,?,?)"
_PUT = "INSERT INTO state VALUES (?,?,?) ON CONFLICT DO UPDATE SET value=excluded.value"


class Bare:
    """One connection to a bare database, on one thread of conversation."""

    name = "bare SQLite"

    def __init__(self, directory: Path, *, thread: str = "t", durable: bool = True) -> None:
        self.path = directory / "bare.db"
        self._thread = thread
        with without_syncs(not durable):
            self._db = apsw.Connection(str(self.path))
        self._db.set_busy_timeout(60_000)
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "extra" if durable else "off")
        with self._db:
            self._db.execute(_TABLES)
        last = self._db.execute("SELECT max(seq) FROM messages WHERE thread=?", (thread,)).get
        self._seq = 0 if last is None else int(last)

    def turn(self, turn: Turn) -> None:
        for step in turn.steps:
            self._db.execute("BEGIN IMMEDIATE")
            self._seq += 1
            self._db.execute(_SAY, (self._thread, self._seq, step.body))
            if step.key is not None:
                self._db.execute(_PUT, (self._thread, step.key, step.document))
            self._db.execute("COMMIT")

    def put(self, key: str, document: str) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(_PUT, (self._thread, key, document))
        self._db.execute("COMMIT")

    def load(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Every message, in order, and the state."""
        said = self._db.execute("SELECT body FROM messages WHERE thread=? ORDER BY seq", (self._thread,))
        messages = [body for (body,) in said]
        state = self._db.execute("SELECT key, value FROM state WHERE thread=?", (self._thread,))
        return messages, list(state)

    def close(self) -> None:
        self._db.close()
