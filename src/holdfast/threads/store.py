"""The store: an engine opened by a program, with its threads and agents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.history import verify
from holdfast.history.verify import Report
from holdfast.model.head import MAIN
from holdfast.runtime.agent import Agent
from holdfast.threads import directory
from holdfast.threads.agents import AgentMap
from holdfast.threads.loops import blocking
from holdfast.threads.shelf import Shelf
from holdfast.threads.thread import Thread

__all__ = ["Store"]


@blocking
class Store:
    """Everything that one database holds.  Use it in a `with` statement, or close it."""

    def __init__(self, shelf: Shelf, url: str, *, read_only: bool) -> None:
        """Hold an engine that is open; `holdfast.open` is the way to get a store."""
        self._shelf = shelf
        self.url = url
        self.read_only = read_only

    def __enter__(self) -> Self:
        """Give the store itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self._shelf.engine.close()

    def __repr__(self) -> str:
        """Name the store."""
        return f"<Store '{self.url}'{' read-only' if self.read_only else ''}>"

    def thread(
        self, id: str, *, agent: Agent | str | None = None, owner: str | None = None, timeline: str = MAIN
    ) -> Thread:
        """Open a thread; with `agent` one that does not exist is begun.

        Without `agent`, or on another timeline than `main`, it only opens, else `NotFound`.  Raises `Conflict` if the thread is another
        agent's or another owner's.
        """
        declared = None if agent is None else _declared(agent)
        record = self._record(id, declared, owner, begins=timeline == MAIN)
        thread = Thread(self._shelf, id, record, declared or Agent(record.agent))
        found = thread if timeline == MAIN else thread.on(timeline)
        if declared is not None and not self.read_only:
            directory.record_agent(self._shelf.store, declared, declared=isinstance(agent, Agent))
        return found

    def threads(self, *, owner: str | None = None, agent: Agent | str | None = None) -> Iterator[Thread]:
        """All threads by id, or those of one owner or agent, read as they are asked for."""
        name = None if agent is None else _declared(agent).name
        for id, record in directory.threads(self._shelf.store):
            if owner in (None, record.owner) and name in (None, record.agent):
                yield Thread(self._shelf, id, record, Agent(record.agent))

    def agent(self, agent: Agent | str) -> AgentMap:
        """The map that an agent keeps across its threads."""
        return AgentMap(self._shelf, _declared(agent), declared=isinstance(agent, Agent))

    def agents(self) -> Iterator[str]:
        """The names of all agents, sorted, read as they are asked for."""
        return (record.name for record in directory.agents(self._shelf.store))

    def verify(self) -> Report:
        """Check everything that is stored: `.ok`, and `.faults` by name.  Never raises on damaged data."""
        return verify.verify(self._shelf.engine)

    def backup(self, path: str | Path) -> None:
        """Write a consistent copy to a new file while others write; raises `Conflict` if the file exists."""
        self._shelf.engine.backup(Path(path))

    def facts(self) -> dict[str, str | int]:
        """What is known about the engine: kind, place, versions, settings, sizes."""
        return self._shelf.engine.facts()

    def close(self) -> None:
        """Release everything.  Closing again is no error."""
        self._shelf.engine.close()

    def _record(self, id: str, agent: Agent | None, owner: str | None, *, begins: bool) -> directory.Record:
        """What the directory says about a thread; one that is named with its agent is begun, on `main`."""
        if agent is None:
            record = directory.find(self._shelf.store, id)
        elif begins and not self.read_only:
            record = directory.begin(self._shelf.store, id, agent, owner)
        else:
            why = (
                "This store is read-only."
                if self.read_only
                else f"A thread begins on '{MAIN}': open it there."
            )
            record = directory.find(self._shelf.store, id, advice=why)
        directory.check_record(record, id, agent and agent.name, owner)
        return record


def _declared(agent: Agent | str) -> Agent:
    return agent if isinstance(agent, Agent) else Agent(agent)
