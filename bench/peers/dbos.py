"""DBOS on SQLite: a turn is one workflow of four steps, and the output of each step is kept.

A workflow has no state of its own, so a state write is part of the output of its step.
Durability is what DBOS sets for SQLite by default.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dbos import DBOS

from bench.workload import STEPS, Turn

__all__ = ["open_peer"]


class _Dbos:
    name = "DBOS"

    def __init__(self, directory: Path) -> None:
        self.path = directory / "dbos.db"
        self._turn: Turn | None = None
        DBOS(
            config={
                "name": "bench",
                "system_database_url": f"sqlite:///{self.path}",
                "log_level": "ERROR",
                "console_log_level": "ERROR",
            }
        )

        @DBOS.step()
        def step(at: int) -> list[Any]:
            assert self._turn is not None
            said = self._turn.steps[at]
            return [said.body, said.key, said.document if said.key is not None else None]

        @DBOS.workflow()
        def workflow() -> None:
            for at in range(STEPS):
                step(at)

        self._workflow = workflow
        DBOS.launch()

    def turn(self, turn: Turn) -> None:
        self._turn = turn
        self._workflow()

    def close(self) -> None:
        DBOS.destroy(destroy_registry=True)


def open_peer(directory: Path) -> _Dbos:
    """A DBOS application on a new database."""
    return _Dbos(directory)
