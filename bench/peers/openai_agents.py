"""The OpenAI Agents SDK with its SQLiteSession: items of a conversation, and no state.

Each step is one `add_items`.  The session has no place for state, so a state write is added
as one more item.
Durability is SQLite's default, FULL, which is as good as the baseline's EXTRA where there is a write-ahead log.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agents import SQLiteSession

from bench.workload import Turn

__all__ = ["open_peer"]


class _Session:
    name = "OpenAI Agents SQLiteSession"

    def __init__(self, directory: Path) -> None:
        self.path = directory / "session.db"
        self._loop = asyncio.new_event_loop()
        self._session = SQLiteSession("t", self.path)
        self._loop.run_until_complete(self._session.add_items([{"role": "system", "content": "begin"}]))

    def turn(self, turn: Turn) -> None:
        for step in turn.steps:
            items: list[Any] = [{"role": step.message.role, "content": step.body}]
            if step.key is not None:
                items.append({"role": "system", "content": step.document, "key": step.key})
            self._loop.run_until_complete(self._session.add_items(items))

    def close(self) -> None:
        self._session.close()
        self._loop.close()


def open_peer(directory: Path) -> _Session:
    """A session on a new database."""
    return _Session(directory)
