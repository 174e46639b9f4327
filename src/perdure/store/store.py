"""The store: an open engine with its threads, agents and owners, and the approvals that wait in it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from perdure.engines import loops, registry
from perdure.engines.contract import Engine
from perdure.errors import Busy, Invalid, NotFound, RunFailed, WrongStore
from perdure.history.space import label_of
from perdure.model.head import MAIN
from perdure.runtime.agent.agent import Agent
from perdure.store.agents import AgentMap, Definitions
from perdure.store.plumbing import directory
from perdure.store.plumbing.handles import (
    StoreResources,
    blocking,
    deferred,
)
from perdure.store.thread import Thread

if TYPE_CHECKING:
    from perdure.history.verify import VerifyReport
    from perdure.ledger import tickets, verify
    from perdure.model import memory as memory_model
    from perdure.model.run import RunRecord
    from perdure.model.ticket import Ticket
    from perdure.runtime.session import records, result
    from perdure.runtime.session.result import Result
    from perdure.store import memory as memory_handle
    from perdure.store.memory import Memory
else:
    tickets = deferred("perdure.ledger.tickets")
    verify = deferred("perdure.ledger.verify")
    memory_model = deferred("perdure.model.memory")
    records = deferred("perdure.runtime.session.records")
    result = deferred("perdure.runtime.session.result")
    memory_handle = deferred("perdure.store.memory")

__all__ = ["Store", "Approval", "waiting"]


class Approval(msgspec.Struct, frozen=True):
    """A call of some thread that waits for a decision."""

    thread: str
    ticket: Ticket

    @property
    def call(self) -> str:
        """The id of the call."""
        return self.ticket.call


def waiting(engine: Engine) -> list[Approval]:
    """Read the open tickets of all threads, oldest first."""
    label = cache(partial(label_of, engine))  # a thread may have many
    found = [Approval(label(space), ticket) for space, ticket in tickets.waiting(engine)]
    return sorted(found, key=lambda each: each.ticket.asked_at)


@blocking
class Store:
    """Everything in one database.  Use it in a `with` statement, or close it."""

    def __init__(self, resources: StoreResources, url: str, *, read_only: bool) -> None:
        """Wrap an open engine; programs get a store from `perdure.open`."""
        self._resources = resources
        self.url = url
        self.read_only = read_only
        self._place = registry.place_of(url)
        self.definitions = Definitions(resources, url)  # of agents, written by `perdure agents apply`

    def __enter__(self) -> Self:
        """Give the store itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self._close()

    def __repr__(self) -> str:
        """Name the store."""
        return f"<Store '{self.url}'{' read-only' if self.read_only else ''}>"

    def thread(
        self, id: str, *, agent: Agent | str | None = None, owner: str | None = None, timeline: str = MAIN
    ) -> Thread:
        """Open a thread; with `agent` a thread that does not exist is begun.

        Without `agent`, or on another timeline than `main`, a thread that does not exist is `NotFound`.  Raises
        `Conflict` if the thread belongs to another agent or owner, or if the agent keeps its threads in another store.
        """
        declared = None if agent is None else _declared(agent)
        home = declared.object_storage if declared else None
        if declared is not None and home is not None and registry.place_of(home) != self._place:
            raise WrongStore(declared.name, home, self.url)
        by_name = declared is None or declared == Agent(declared.name)  # the caller gave nothing but the name
        if declared is not None and by_name:
            declared = self._bare(declared.name)
        record = self._record(id, declared, owner, begins=timeline == MAIN)
        thread = Thread(self._resources, id, record, declared or self._bare(record.agent))
        found = thread if timeline == MAIN else thread.on(timeline)
        if declared is not None and not self.read_only:
            directory.record_agent(self._resources.store, declared, declared=not by_name)
        return found

    def threads(
        self,
        *,
        owner: str | None = None,
        agent: Agent | str | None = None,
        state: Literal["running", "waiting"] | None = None,
    ) -> Iterator[Thread]:
        """Yield the threads sorted by id: all, or those of one owner or agent, or those with a run in that state."""
        name = None if agent is None else _declared(agent).name
        spaces = None if state is None else _with_runs(self._resources.engine, state)
        bare = cache(self._bare)  # many threads have the same agent
        for id, record in directory.threads(self._resources.store):
            if spaces is not None and record.space not in spaces:
                continue
            if owner in (None, record.owner) and name in (None, record.agent):
                yield Thread(self._resources, id, record, bare(record.agent))

    def agent(self, agent: Agent | str) -> AgentMap:
        """Return the map that an agent keeps across its threads."""
        return AgentMap(self._resources, _declared(agent), declared=isinstance(agent, Agent))

    def agents(self) -> Iterator[str]:
        """Yield the names of all agents, sorted."""
        return (record.name for record in directory.agents(self._resources.store))

    def memory(self, owner: str) -> Memory:
        """Return the memory of an owner, across all threads and agents; no other owner's items are found there."""
        return memory_handle.Memory(self._resources.memories.of(owner))

    def owners(self) -> Iterator[str]:
        """Yield the names of the owners that have a memory, sorted."""
        engine = self._resources.engine
        prefix = memory_model.MEMORY
        for name in loops.pages(lambda after, limit: engine.spaces(after=after, limit=limit), prefix, str):
            if not name.startswith(prefix):
                return
            yield name.removeprefix(prefix)

    def approvals(self) -> list[Approval]:
        """Read everything that waits for a decision, over all threads, oldest first."""
        return waiting(self._resources.engine)

    def resume(self, agent: Agent) -> list[Result]:
        """Resume every run of this agent that was interrupted or whose approvals are decided; return their results.

        Call it at start-up.  Runs that are live in another process are left alone; a failed run is in the list.
        """
        return [result for result in map(partial(self._resumed, agent), self._interrupted(agent)) if result]

    def _interrupted(self, agent: Agent) -> list[tuple[str, RunRecord]]:
        """Return the runs of this agent that have not ended, each with the id of its thread."""
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(
                f"runs are resumed with their Agent, tools included, not with {agent!r}; nothing was resumed.",
                code="not_an_agent",
            )
        engine = self._resources.engine
        found = [each for each in records.open_runs(engine) if each[1].agent == agent.name]
        return [(label_of(engine, space), record) for space, record in found]

    def verify(self, *, since: VerifyReport | None = None) -> VerifyReport:
        """Check everything that is stored: `.ok`, and `.faults` by name.  Never raises on damaged data.

        With `since`, an earlier report, it does not read again what was written before that report was made
        (None: it reads everything).
        """
        return verify.verify(self._resources.engine, since=None if since is None else since.points)

    def repair(self) -> dict[str, tuple[str, ...]]:
        """Rebuild what follows from the ledger in every damaged thread; return the rebuilt cells by thread.

        Records of calls and tickets, the repeat guard and keys follow from the ledger.  Raises `Corrupt`, and leaves
        that thread as it is, if the ledger itself is damaged or was cut, or if other data are damaged: restore a
        backup.  Copy the store first if you want to examine the damage later.
        """
        return verify.repair_all(self._resources.engine)

    def backup(self, path: str | Path) -> None:
        """Write a consistent copy to a new file while other processes write; raises `Conflict` if the file exists."""
        self._resources.engine.backup(Path(path))

    def facts(self) -> dict[str, str | int]:
        """Return facts about the engine: kind, place, versions, settings, sizes."""
        return self._resources.engine.facts()

    def close(self) -> None:
        """Wait for background work to end, then release everything.  Closing again is no error."""
        self._close()

    def _close(self) -> None:
        self._resources.close()

    def _resumed(self, agent: Agent, found: tuple[str, RunRecord]) -> Result | None:
        id, record = found
        try:
            thread = self.thread(id, agent=agent, timeline=record.timeline)
            return thread.resume(record.id)
        except RunFailed as failed:
            return failed.run if isinstance(failed.run, result.Result) else None
        except (Busy, NotFound):
            return None  # another process runs it, or its thread was removed

    def _bare(self, name: str) -> Agent:
        """Return an agent known by name alone, with the policy that it was last declared with."""
        return Agent(name, policy=directory.policy_of(self._resources.store, name))

    def _record(self, id: str, agent: Agent | None, owner: str | None, *, begins: bool) -> directory.Record:
        """Read the directory's record of a thread; with its agent a missing thread is begun, on `main`."""
        if agent is None:
            record = directory.find(self._resources.store, id)
        elif begins and not self.read_only:
            record = directory.begin(self._resources.store, id, agent, owner)
        else:
            why = (
                "This store is read-only."
                if self.read_only
                else f"A thread begins on '{MAIN}': open it there."
            )
            record = directory.find(self._resources.store, id, advice=why)
        directory.check_record(record, id, agent and agent.name, owner)
        return record


def _with_runs(engine: Engine, state: str) -> set[str]:
    return {space for space, record in records.open_runs(engine) if record.state == state}


def _declared(agent: Agent | str) -> Agent:
    return agent if isinstance(agent, Agent) else Agent(agent)
