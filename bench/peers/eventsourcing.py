"""The eventsourcing library: a conversation as an aggregate, one event saved for each step.

A state write is an event of its own, saved in the same transaction as the message.
Durability is SQLite's default, FULL, which is as good as the baseline's EXTRA where there is a write-ahead log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from bench.workload import Turn

__all__ = ["open_peer"]


class _Conversation(Aggregate):
    def __init__(self) -> None:
        self.messages: list[str] = []
        self.state: dict[str, str] = {}

    @event("Said")
    def say(self, body: str) -> None:
        self.messages.append(body)

    @event("Put")
    def put(self, key: str, document: str) -> None:
        self.state[key] = document


class _EventSourcing:
    name = "eventsourcing"

    def __init__(self, directory: Path) -> None:
        self.path = directory / "eventsourcing.db"
        self._application: Application[Any] = Application(
            env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(self.path)}
        )
        self._conversation = _Conversation()
        self._application.save(self._conversation)

    def turn(self, turn: Turn) -> None:
        for step in turn.steps:
            self._conversation.say(step.body)
            if step.key is not None:
                self._conversation.put(step.key, step.document)
            self._application.save(self._conversation)

    def close(self) -> None:
        self._application.close()


def open_peer(directory: Path) -> _EventSourcing:
    """An application on a new database."""
    return _EventSourcing(directory)
