"""The store: an open engine with its threads, agents and owners, and the approvals that wait in it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from os import PathLike, fspath
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from perdure.engines import loops, registry
from perdure.engines.contract import Engine, time_of_day
from perdure.errors import Busy, Conflict, Invalid, NotFound, PerdureWarning, RunFailed, Sealed, WrongStore
from perdure.history.reader import other_agent
from perdure.history.space import Space, label_of
from perdure.model import names
from perdure.model.head import MAIN
from perdure.model.names import shown_address
from perdure.model.run import Cost
from perdure.runtime.agent.agent import Agent, RunLimits
from perdure.store.agents import AgentMap, Definitions
from perdure.store.plumbing import directory, outbox
from perdure.store.plumbing.handles import (
    StoreResources,
    blocking,
    deferred,
)
from perdure.store.thread import Thread
from perdure.switching.policy import Policy

if TYPE_CHECKING:
    from perdure.history.retention import RetentionPlan, RetentionPolicy, SpaceRemoval
    from perdure.history.verify import VerifyReport
    from perdure.history.verify.report import Progress
    from perdure.ledger import held, tickets, trace, verify
    from perdure.model import memory as memory_model
    from perdure.model.call import CallRecord
    from perdure.model.effect import Effect
    from perdure.model.run import RunRecord
    from perdure.model.ticket import Ticket
    from perdure.runtime.session import records, result
    from perdure.runtime.session.result import Result
    from perdure.store import copy as copies
    from perdure.store import evaluation
    from perdure.store import memory as memory_handle
    from perdure.store import worker as workers
    from perdure.store.copy import CopyReport
    from perdure.store.evaluation import Evaluation, Trial
    from perdure.store.memory import Memory
    from perdure.store.upkeep import compare as comparison
    from perdure.store.upkeep import retention
    from perdure.store.upkeep.compare import StoreComparison
    from perdure.store.worker import Worked
else:
    held = deferred("perdure.ledger.held")
    tickets = deferred("perdure.ledger.tickets")
    trace = deferred("perdure.ledger.trace")
    verify = deferred("perdure.ledger.verify")
    memory_model = deferred("perdure.model.memory")
    records = deferred("perdure.runtime.session.records")
    result = deferred("perdure.runtime.session.result")
    copies = deferred("perdure.store.copy")
    evaluation = deferred("perdure.store.evaluation")
    comparison = deferred("perdure.store.upkeep.compare")
    memory_handle = deferred("perdure.store.memory")
    retention = deferred("perdure.store.upkeep.retention")
    workers = deferred("perdure.store.worker")

__all__ = ["Store", "Approval"]


class Approval(msgspec.Struct, frozen=True):
    """A call of some thread that waits for a decision."""

    thread: str
    ticket: Ticket

    @property
    def call(self) -> str:
        """The id of the call."""
        return self.ticket.call


def waiting(resources: StoreResources) -> list[Approval]:
    """Read the open tickets of all threads, oldest first, without those that wait for a time and for no person."""
    named = cache(resources.named)  # a thread may have many
    found = [
        Approval(named(space).label, tickets.as_of_now(named(space), ticket))
        for space, ticket in tickets.waiting(resources.engine)
        if not ticket.is_timer
    ]
    return sorted(found, key=lambda each: each.ticket.asked_at)


@blocking
class Store:
    """Everything in one database.  Use it in a `with` statement, or close it."""

    def __init__(self, resources: StoreResources, url: str, *, read_only: bool) -> None:
        """Wrap an open engine; programs get a store from `perdure.open`."""
        self._resources = resources
        self.url = shown_address(url)
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
            raise WrongStore(declared.name, shown_address(home), self.url)
        # True if the caller gave nothing but the name.
        by_name = declared is None or declared == _agent_of(declared.name)
        store = directory.knowing(self._resources.store, id, declared and declared.name)
        if declared is not None and by_name:
            declared = _bare(store, declared.name)
        record = self._record(store, id, declared, owner, timeline)
        begun = not directory.was_there(store, record)
        thread = Thread(self._resources, id, record, declared or _bare(store, record.agent), begun=begun)
        found = thread if timeline == MAIN else thread.on(timeline)
        if declared is not None and found.agent != declared.name:
            raise other_agent(id, declared.name, found.agent)
        if declared is not None and not self.read_only:
            directory.record_agent(store, declared, declared=not by_name)
        return found

    def threads(
        self,
        *,
        owner: str | None = None,
        agent: Agent | str | None = None,
        state: Literal["running", "waiting"] | None = None,
        after: str | None = None,
    ) -> Iterator[Thread]:
        """Yield the threads sorted by id: all, or those of one owner or agent, or those with a run in that state.

        With `after` only ids that sort after that one; None: from the first.
        """
        name = None if agent is None else _declared(agent).name
        spaces = None if state is None else _with_runs(self._resources.engine, state)
        # Most handles of a list are never used, so a list reads no space of a thread.
        resources = msgspec.structs.replace(self._resources, compares_later=True)
        for id, record, policy in directory.threads(self._resources.store, after=after):
            if spaces is not None and record.space not in spaces:
                continue
            if owner in (None, record.owner) and name in (None, record.agent):
                yield Thread(resources, id, record, Agent(record.agent, policy=policy))

    def agent(self, agent: Agent | str) -> AgentMap:
        """Return the map that an agent keeps across its threads."""
        return AgentMap(self._resources, _declared(agent), declared=isinstance(agent, Agent))

    def agents(self, *, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Yield the names of all agents that begin with `prefix`, sorted.

        With `after` only names that sort after that one; None: from the first.
        """
        found = directory.agents(self._resources.store, prefix=prefix, after=after)
        return (record.name for record in found)

    def memory(self, owner: str) -> Memory:
        """Return the memory of an owner, across all threads and agents; no other owner's items are found there."""
        resources = self._resources
        deliver = partial(outbox.finish_all, resources.named, resources.store)
        return memory_handle.Memory(resources.memories.of(owner), deliver)

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
        return waiting(self._resources)

    def open_runs(self) -> list[tuple[str, RunRecord]]:
        """Read every run that has not ended, with the id of its thread, oldest first."""
        engine = self._resources.engine
        found = [(each.thread or label_of(engine, space), each) for space, each in records.open_runs(engine)]
        return sorted(found, key=lambda each: each[1].begun_at)

    def unclear_calls(self, *, imported: bool = False) -> list[tuple[str, CallRecord]]:
        """Read every call whose outcome is unknown, with the id of its thread, oldest first.

        Calls of imported conversations were made elsewhere and never run here; with `imported` they are read too.
        """
        names.check_flag("imported", imported)
        engine = self._resources.engine
        pages = loops.pages(
            lambda after, limit: trace.unclear(engine, after=after, limit=limit),
            ("", ""),
            lambda each: (each[1].id, each[0]),
        )
        wanted = [each for each in pages if imported or each[1].origin != "import"]
        found = [(label_of(engine, space), record) for space, record in wanted]
        return sorted(found, key=lambda each: each[1].at)

    def news(self, seen: Mapping[str, int], seconds: float, *, woken: Event | None = None) -> dict[str, int]:
        """Wait until one of these threads has changed since it was `seen`, at most `seconds`; return those that have.

        Each id has a number that grows with every change of its thread; give back those that this method returned, and
        -1 for a thread that was not seen yet.  A thread that is begun or removed while it waits ends the wait, too, as
        does setting `woken`.
        """
        store = self._resources.store
        spaces = {record.space: id for id, record, _ in directory.threads(store)}
        standings = {space: seen.get(id, -1) for space, id in spaces.items()}
        engine = self._resources.engine
        changed = engine.wait(standings, 0)
        if not changed and seconds > 0:
            changed = engine.wait(
                {**standings, store.name: engine.standing(store.name)}, seconds, woken=woken
            )
        return {spaces[space]: standing for space, standing in changed.items() if space in spaces}

    def costs(self, by: Literal["thread", "owner", "agent", "model"] = "thread") -> dict[str | None, Cost]:
        """Read what models cost, for each thread, owner or agent that had a run, or model; None: threads without an owner.

        Steps that were undone count too.  A step whose price was not known when it was taken counts as unpriced.
        """
        names.check_choice("by", by, ("thread", "owner", "agent", "model"))
        found: dict[str | None, Cost] = {}
        for thread in self.threads():
            whose = {"thread": thread.id, "owner": thread.owner, "agent": thread.agent}
            spent = thread.costs("model" if by == "model" else "run")
            for of, cost in ((whose.get(by, name), cost) for name, cost, _ in spent if cost.steps):
                found[of] = found.get(of, Cost()) + cost
        return found

    def evaluate(
        self,
        agent: Agent,
        threads: Sequence[str],
        *,
        score: Callable[[Trial], float] | None = None,
        turns: Sequence[int] | None = None,
        effect_max: Effect = "read_only",
        name: str | None = None,
    ) -> Evaluation:
        """Run recorded turns of these threads again with `agent`, each on a fork of its own, and score what comes out.

        The agent has the name of the threads' agent, and any backend, instructions, tools and version.  `score` gets a
        trial and returns a number; None: no turn is scored.  `turns` are numbers of turns, None: every turn that a run
        made from an input.  Calls beyond `effect_max` are not made.  The forks are `eval/<name>/<turn>` and stay; the
        same `name` again goes on with an evaluation that was interrupted, None: a new one.
        """
        opened = [self.thread(id, agent=agent) for id in dict.fromkeys(threads)]
        named = self._resources.ids()[-12:] if name is None else name
        return evaluation.evaluate(opened, agent, name=named, score=score, turns=turns, effect_max=effect_max)

    def resume(self, agent: Agent) -> list[Result]:
        """Resume every run of this agent that was interrupted or whose approvals are decided; return their results.

        Call it at start-up.  Runs that are live in another process, or were undone, are left alone; a failed run is in
        the list.
        """
        return [result for result in map(partial(self._resumed, agent), self._interrupted(agent)) if result]

    def work(
        self,
        agents: Agent | Sequence[Agent],
        *,
        at_once: int = 8,
        limits: Mapping[str, RunLimits] | None = None,
        until_idle: bool = False,
        stop: Event | None = None,
        report: Callable[[Worked], None] | None = None,
    ) -> int:
        """Run what is due of these agents, as it comes, until `stop` is set; return how many runs that was.

        It takes runs that were queued with `start` or `schedule`, that were interrupted, whose approvals are decided, and
        whose timers or questions are due, up to `at_once` side by side.  Any number of workers, in any processes, work
        on one store: each run is carried on by one.  `limits` are for backends, by name, and `Agent(limits=…)` for an
        agent; all workers of the store share them.  When `stop` is set it takes nothing more and returns when its runs
        have ended or wait; with `until_idle` it also returns when nothing is due.  `report` is called, from any thread,
        for each run that it worked on.  A run that ends its worker three times in a row is set aside.
        """
        return workers.Worker(self, agents, at_once=at_once, limits=limits, report=report).work(
            stop=stop, until_idle=until_idle
        )

    def _on_store_clock(self) -> Store:
        """Return the same store with the time of day that all its users share as its clock."""
        engine = self._resources.engine
        twin = copy.copy(self)
        twin._resources = msgspec.structs.replace(self._resources, clock=partial(time_of_day, engine))
        return twin

    def _interrupted(self, agent: Agent) -> list[tuple[str, RunRecord]]:
        """Return the runs of this agent that have not ended, each with the id of its thread."""
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(
                f"runs are resumed with their Agent, tools included, not with {agent!r}; nothing was resumed.",
                code="not_an_agent",
            )
        engine = self._resources.engine
        runs = (each for each in records.open_runs(engine) if each[1].state != "created")
        found = [each for each in runs if each[1].agent == agent.name]
        waiting = {each.space for each in held.held_threads(engine)} if found else ()
        if any(space in waiting for space, _ in found):
            warnings.warn(
                PerdureWarning(
                    f"runs of '{agent.name}' are in threads that came from another store, and were not resumed.",
                    code="runs_held",
                    advice="See with compare() what was carried out there since; if nothing runs there any more, "
                    "release them with release().",
                    agent=agent.name,
                ),
                stacklevel=4,
            )
        return [(label_of(engine, space), record) for space, record in found if space not in waiting]

    def verify(self, *, since: VerifyReport | None = None, progress: Progress | None = None) -> VerifyReport:
        """Check everything that is stored: `.ok`, and `.faults` by name.  Never raises on damaged data.

        With `since`, an earlier report, it does not read again what was written before that report was made
        (None: it reads everything).  `progress` is called now and then with the space that is read, how much is checked
        and how much there is to check; None: nothing is called.
        """
        points = None if since is None else since.points
        report = verify.verify(self._resources.engine, since=points, progress=progress)
        report.log(self.url)
        return report

    def gc_plan(self, policy: RetentionPolicy) -> RetentionPlan:
        """Return what a retention policy would remove now.  Nothing is changed.

        What a timeline that stays can reach, and a thread or timeline on which work is open or the outcome of a call is
        unknown, is never removed.
        """
        return retention.plan(self._resources.engine, policy, self._resources.clock())

    def gc(self, plan: RetentionPlan) -> list[SpaceRemoval]:
        """Remove what a plan names, and return what was removed of each space.

        Each space is looked at again: what has become open, or was written since the plan, stays.  Where something of a
        memory was removed its search index goes too, which has the words; the next search makes it again.
        """
        resources = self._resources
        removed = list(retention.carry_out(resources.engine, plan, ids=resources.ids, cache=resources.cache))
        for each in removed:
            if each.count and each.space.startswith(memory_model.MEMORY):
                resources.memories.of(each.space.removeprefix(memory_model.MEMORY)).forget_copies()
        return removed

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

    def copy_to(
        self,
        target: str | PathLike[str] | Store,
        *,
        threads: Sequence[str] | None = None,
        sound: bool = False,
    ) -> CopyReport:
        """Copy everything, or these threads, into another store, verify the copy, and hold it there.

        `target` is an open store, or the address of one that is created if need be.  Call it again after a crash: it
        goes on.  The runs and approvals of the copied threads wait there for `release`.  Raises `Conflict` if the target
        is not empty or has such a thread, `Corrupt`, having copied nothing, if this store is damaged; with `sound` what
        is damaged is left out, and `left_out` of the report names it.
        """
        source, clock = self._resources.engine, self._resources.clock
        if isinstance(target, Store):
            into = target._resources.engine
            return copies.copy(source, into, address=self.url, threads=threads, sound=sound, clock=clock)
        place = fspath(target)
        return copies.copy_to(source, place, address=self.url, threads=threads, sound=sound, clock=clock)

    def compare(self, other: Store) -> StoreComparison:
        """Compare this store with another by their heads: which threads, maps and memories differ, and which has more."""
        return comparison.compare(self, other)

    def held(self, *, open_only: bool = False) -> list[str]:
        """Return the ids of the threads that came from another store and were not released, sorted.

        With `open_only` those where a run has not ended or an approval waits: in the others nothing goes on by itself.
        """
        names.check_flag("open_only", open_only)
        engine, store = self._resources.engine, self._resources.store
        spaces = [each.space for each in held.held_threads(engine)]
        return directory.ids_of(
            store, retention.with_open_work(engine, spaces) if open_only and spaces else spaces
        )

    def release(self, *threads: str, by: str | None = None) -> list[str]:
        """Let runs and approvals of held threads go on: of these threads, or of all; return those that were held.

        Release a thread only if nothing runs it any more in the store that it came from: two stores that go on with
        one run do the same thing twice.  `by` is the person who releases, for the record.
        """
        names.check_person(by)
        engine, store = self._resources.engine, self._resources.store
        spaces = [directory.find(store, thread).space for thread in threads]
        if not threads:
            spaces = [each.space for each in held.held_threads(engine)]
        found = held.release(engine, spaces, at=self._resources.clock(), by=by)
        return directory.ids_of(store, found)

    def facts(self) -> dict[str, str | int]:
        """Return facts about the engine: kind, place, versions, settings, sizes."""
        return self._resources.engine.facts()

    def counters(self) -> dict[str, int]:
        """Return what this opening of a store has done, for a program's own metrics; it costs no round trip.

        The numbers only grow.  A store on a server counts commits, repeated writes, conflicts, writes in doubt, retries,
        round trips and connections; one in a file counts conflicts and writes in doubt; one in memory nothing.
        """
        return self._resources.engine.counters()

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
        except (Busy, NotFound, Sealed):
            return None  # another process runs it, it was undone, or its timeline takes no more writes
        except Conflict as conflict:
            if conflict.code != "thread_of_another_agent":
                raise
            return None  # it was undone with the hand-off to its agent

    def _record(
        self, store: Space, id: str, agent: Agent | None, owner: str | None, timeline: str
    ) -> directory.Record:
        """Read the directory's record of a thread; with its agent a missing thread is begun, on `main`."""
        if agent is None:
            record = directory.find(store, id, timeline)
        elif timeline == MAIN and not self.read_only:
            record = directory.begin(store, id, agent, owner)
        else:
            why = (
                "This store is read-only."
                if self.read_only
                else f"A thread begins on '{MAIN}': open it there."
            )
            record = directory.find(store, id, timeline, advice=why)
        directory.check_record(record, id, agent and agent.name, owner)
        return record


def _bare(store: Space, name: str) -> Agent:
    """Return an agent known by name alone, with the policy that it was last declared with."""
    return _agent_of(name, directory.policy_of(store, name))


def _with_runs(engine: Engine, state: str) -> set[str]:
    return {space for space, record in records.open_runs(engine) if record.state == state}


def _declared(agent: Agent | str) -> Agent:
    return agent if isinstance(agent, Agent) else _agent_of(agent) if type(agent) is str else Agent(agent)


@lru_cache(256)  # checking the fields of an agent takes longer than packing the write that begins a thread
def _agent_of(name: str, policy: Policy | None = None) -> Agent:
    """Return an agent of which no more is known; it is frozen, so all who open its threads may share it."""
    return Agent(name) if policy is None else Agent(name, policy=policy)
