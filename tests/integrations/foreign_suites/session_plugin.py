"""A plugin of pytest: the OpenAI Agents SDK's own tests of sessions run with our session in place of `SQLiteSession`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from threading import Lock
from typing import Any

import agents

import perdure
from perdure.integrations import foreign_ids
from perdure.integrations.openai_agents import Session

_stores: dict[str, tuple[perdure.Store, int]] = {}  # by path, with the number of sessions that use it
_lock = Lock()


class SwappedSession(Session):
    """Our session with the constructor of theirs."""

    def __init__(
        self, session_id: str, db_path: str | Path = ":memory:", session_settings: Any = None
    ) -> None:
        """Open a thread of that id in a store at that path."""
        in_memory = str(db_path) == ":memory:"
        self._path = str(Path(tempfile.mkdtemp()) / "session.db" if in_memory else db_path)
        with _lock:
            store, users = _stores.get(self._path) or (perdure.open(self._path, blocking=True), 0)
            _stores[self._path] = store, users + 1
        thread = store.thread(foreign_ids.thread_id(session_id), agent="tests")
        super().__init__(thread, session_settings=session_settings)
        self.session_id = session_id

    def close(self) -> None:
        """Close the store after its last session."""
        with _lock:
            store, users = _stores.pop(self._path)
            if users > 1:
                _stores[self._path] = store, users - 1
                return
        store.close()


agents.SQLiteSession = SwappedSession  # pyright: ignore[reportAttributeAccessIssue]
