"""A worker: runs what is due in a store, as it comes, until it is stopped.

A worker finds its work in three lists of the engine, none of which grows with the store: runs that are due (queued,
scheduled, decided, or with a question that expires), by agent and time; runs that run, of which those are interrupted
whose process has ended; and its own, which it leaves alone.  Nothing here decides who may carry a run on: any number of
workers may see the same one, and the lease on its timeline lets one of them begin.  The store's clock says what is due.

A run whose record is damaged, or whose thread is, is reported once and left alone; the others go on.  If the lists
themselves are damaged no part of them is sure, and the worker ends with `Corrupt`.

One thread looks and waits for news of the space `work`, where a program rings when it has made work.  Each run is
carried on in a thread of its own.  A run that could not be carried on now, because another run is on its timeline or a
limit is reached, is left alone for a moment.

A process that dies does not say which of its runs ended it.  So of the runs that were in two such processes a worker
carries on one at a time, and nothing else begins beside it until it has got further, or for half a minute: no run is
set aside for what another did, and one that is slow holds nothing up for long.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import msgspec

from perdure.engines.contract import CellOf, Engine, time_of_day
from perdure.errors import (
    Busy,
    Conflict,
    Corrupt,
    Held,
    Invalid,
    NotFound,
    PerdureError,
    RunFailed,
    Unavailable,
)
from perdure.history.space import ALIVE, label_of
from perdure.model.run import ENDED, RunRecord
from perdure.runtime import event_loop
from perdure.runtime.agent.agent import Agent, RunLimits
from perdure.runtime.inference.backend import current_model
from perdure.runtime.run import take
from perdure.runtime.run.queue import arm
from perdure.runtime.session import lease as leases
from perdure.runtime.session import records
from perdure.runtime.session.environment import RunEnvironment, WorkerPool
from perdure.runtime.session.lease import LEASE, RENEWAL
from perdure.runtime.session.records import WORK, DamagedRun
from perdure.runtime.session.result import Result
from perdure.runtime.session.throttle import Limit, SharedLimits, Throttle

if TYPE_CHECKING:
    from perdure.store.store import Store

__all__ = ["Worked", "Worker"]

DEATHS_MAX = 3  # processes that a run may end, one after another and without progress

_PAGE = 32  # due runs that are read at once
_PAGES_MAX = 8  # of one look; the next look goes on behind them
_LOOK_SECONDS = 1.0  # how often it looks without news: a process that ends writes nothing
_ALONE_SECONDS = 30.0  # for which nothing begins beside a run that may end the process
_STOP_SECONDS = 0.25  # how often `stop` is looked at
_LATER_SECONDS = {"busy": 0.2, "held": 5.0, "error": 5.0}

_log = logging.getLogger("perdure.worker")

_Line: TypeAlias = tuple[str, str]  # space, timeline
_Hindrance: TypeAlias = Literal["busy", "held", "error"]


class Worked(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker did with one run."""

    thread: str
    run: str
    result: Result | None = None  # None: it did not come to an end or a wait here
    error: PerdureError | None = None  # why it was not carried on


class _Task(msgspec.Struct, frozen=True):
    """A run that this worker is to carry on."""

    space: str
    record: RunRecord
    begun_at: float = 0.0  # on the monotonic clock of this process

    @property
    def line(self) -> _Line:
        return self.space, self.record.timeline

    @property
    def is_suspect(self) -> bool:
        """True if the run has ended two processes, or was in them when another run did; one more sets it aside."""
        return self.record.state == "running" and self.record.deaths >= DEATHS_MAX - 2

    @property
    def lease(self) -> tuple[CellOf, CellOf]:
        timeline = self.record.timeline
        return CellOf(self.space, LEASE + timeline), CellOf(self.space, RENEWAL + timeline)


class Worker:
    """Carries on the runs of some agents of one store.  Use one for each call of `work`."""

    def __init__(
        self,
        store: Store,
        agents: Agent | Sequence[Agent],
        *,
        at_once: int = 8,
        limits: Mapping[str, RunLimits] | None = None,
        report: Callable[[Worked], None] | None = None,
    ) -> None:
        """Serve these agents with up to `at_once` runs side by side; raises `Invalid` for anything else.

        `limits` are those of backends by name; an agent has its own.
        """
        self._store = store._on_store_clock()  # pyright: ignore[reportPrivateUsage]
        self._agents = _by_name(agents)
        if not isinstance(at_once, int) or isinstance(at_once, bool) or at_once < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(
                f"a worker runs 1 or more runs at once, not {at_once!r}; nothing was begun.",
                code="at_once_invalid",
            )
        self._at_once, self._report = at_once, report
        self._engine: Engine = store._resources.engine  # pyright: ignore[reportPrivateUsage]
        of_agents = {name: agent.limits for name, agent in self._agents.items() if agent.limits is not None}
        self._limits = SharedLimits(self._engine, of_agents, _of_backends(limits or {}))
        self._tasks: dict[Future[None], _Task] = {}
        self._behind: dict[str, tuple[str, str]] = {}  # where the next look at an agent's due runs goes on
        self._next_due: int | None = None  # when the first run is due that was not due at the last look
        self._ended = (
            threading.Event()
        )  # a run of this worker has ended, or this process has made work for it
        self._lock = threading.Lock()
        self._later: dict[
            _Line, tuple[float, _Hindrance]
        ] = {}  # timelines that are left alone, until when and why
        self._count = 0
        self._damaged: set[tuple[str, str]] = set()  # spaces and runs that cannot be read
        self._limited: set[str] = set()  # agents that had no slot left at this look
        self._suspect_waits = False  # at this look, until the runs here are known to end nothing

    def work(self, *, stop: threading.Event | None = None, until_idle: bool = False) -> int:
        """Work until `stop` is set, or with `until_idle` until nothing is due; return how many runs were carried on.

        On an interrupt (Ctrl-C) it takes nothing more, waits for its runs, and raises it; a second one does not wait.
        """
        stop = stop or threading.Event()
        pool = WorkerPool(self._at_once, "perdure-worker")
        workers = self._store._resources.store_runtime.workers  # pyright: ignore[reportPrivateUsage]
        workers.add(self._ended)
        try:
            while not stop.is_set():
                try:
                    if self._turn(pool, stop, until_idle=until_idle):
                        break
                except Unavailable as error:
                    if error.code == "store_closed":
                        raise
                    _log.warning("the store cannot be used now: %s", error)
                    stop.wait(_LOOK_SECONDS)
        finally:
            workers.discard(self._ended)
            pool.shutdown(wait=False)
            while self._tasks:  # a run goes on until it ends or waits
                self._ended.wait(_LOOK_SECONDS)
                self._ended.clear()
                self._collect()
                self._limits.settle()
            self._limits.settle(renew=False)
        return self._count

    def _turn(self, pool: WorkerPool, stop: threading.Event, *, until_idle: bool) -> bool:
        """Look for work once and rest; True, with `until_idle`, if nothing is due and nothing is under way here."""
        seen = self._engine.standing(WORK)
        seconds = self._look(pool)
        if until_idle and seconds is None and not self._tasks:
            return True
        self._rest(stop, seen, _LOOK_SECONDS if seconds is None else min(seconds, _LOOK_SECONDS))
        return False

    # ---- looking for work

    def _look(self, pool: WorkerPool) -> float | None:
        """Begin what can be begun; return in how many seconds to look again, None if nothing that is due is left."""
        self._collect()
        self._limited.clear()
        self._suspect_waits = False
        with self._lock:
            now = time.monotonic()
            self._later = {line: each for line, each in self._later.items() if each[0] > now}
        found = self._take_interrupted(pool)  # first: what is queued behind one on its timeline waits for it
        for agent in self._agents:
            found = _sooner(found, self._take_due(pool, agent))
        return found

    def _take_due(self, pool: WorkerPool, agent: str) -> float | None:
        after = self._behind.pop(agent, ("", ""))
        found: float | None = None
        for _ in range(_PAGES_MAX):
            if self._is_full or agent in self._limited:
                return _sooner(found, _LATER_SECONDS["busy"] if agent in self._limited else None)
            due, others = records.due_runs(self._engine, agent, after=after, limit=_PAGE)
            for each, record in due:
                if isinstance(record, DamagedRun):
                    self._pass_over(each.space, record.id, record.error)
                elif record is not None and record.due == each.at:  # else it has changed since
                    found = _sooner(found, self._begin(pool, _Task(each.space, record)))
            if others:
                self._next_due = min(others[0].at, self._next_due or others[0].at)
            if others or len(due) < _PAGE:
                return found
            after = due[-1][0].name, due[-1][0].space
        self._behind[agent] = after
        return 0.0

    def _take_interrupted(self, pool: WorkerPool) -> float | None:
        """Begin with runs whose process has ended or lost its lease."""
        if self._is_full:
            return None
        runs: list[_Task] = []
        for space, record in records.running(self._engine):
            if isinstance(record, DamagedRun):
                self._pass_over(space, record.id, record.error)
            elif records.worker_agent(record) in self._agents and record.aside_at is None:
                runs.append(_Task(space, record))
        found: float | None = None
        for task in self._without_lease(runs):
            found = _sooner(found, self._begin(pool, task))
        return found

    def _without_lease(self, runs: Sequence[_Task]) -> list[_Task]:
        """Return the runs that no process carries on; the leases are read together, and one by one if one is damaged."""
        gone = cache(self._engine.gone)  # many runs may have one holder
        try:
            cells = self._engine.answers([each for task in runs for each in task.lease]) if runs else ()
        except Corrupt as error:
            if len(runs) > 1:
                return [each for task in runs for each in self._without_lease([task])]
            self._pass_over(runs[0].space, runs[0].record.id, error)
            return []
        found: list[_Task] = []
        for task, cell, renewal in zip(runs, cells[::2], cells[1::2], strict=True):
            lease, _ = leases.found_in(task.record.timeline, cell, renewal)
            lives = (
                lease is not None
                and lease.run == task.record.id
                and leases.state_anywhere(self._engine, lease, gone) == "live"
            )
            if not lives:
                found.append(task)
        return found

    def _pass_over(self, space: str, run: str, error: Corrupt) -> None:
        """Leave a run alone that cannot be read, and report it once."""
        if (space, run) in self._damaged:
            return
        self._damaged.add((space, run))
        thread = space
        with suppress(PerdureError):
            thread = label_of(self._engine, space)
        _log.error("run %s of thread %s is damaged and left alone: %s", run, thread, error)
        if self._report is not None:
            self._report(Worked(thread=thread, run=run, error=error))

    def _begin(self, pool: WorkerPool, found: _Task) -> float | None:
        """Carry a run on in a thread, unless its timeline is busy; return when to look again, None: not because of it.

        Instead of a child run the one at its root is carried on, whose tool goes on with the child.
        """
        try:
            task = found if found.record.parent is None else self._root_of(found)
        except Corrupt as error:
            self._pass_over(found.space, found.record.id, error)
            return None
        if task.record.agent not in self._agents and task.record.state not in ENDED:
            return None  # a child whose parents have ended, of an agent that this worker does not have
        if task.record.aside_at is not None:
            return None  # its children wait with it until a person releases it
        with self._lock:
            until, hindrance = max(
                (self._later.get(each.line, (0.0, None)) for each in (task, found)), key=lambda each: each[0]
            )
        if hindrance is not None:
            return max(0.0, until - time.monotonic()) if hindrance == "busy" else None
        if self._is_full or any(each.line == task.line for each in self._tasks.values()):
            return None  # the end of a run here is looked at in any case
        if self._is_to_wait(task):
            self._leave(task, "busy")
            return _LATER_SECONDS["busy"]
        limit = self._limits.agents.get(task.record.agent)
        if limit is not None and (task.record.agent in self._limited or not limit.take_slot()):
            self._limited.add(task.record.agent)
            return _LATER_SECONDS["busy"]
        doing = pool.submit(partial(self._carry_on, task, found))
        self._tasks[doing] = msgspec.structs.replace(task, begun_at=time.monotonic())
        doing.add_done_callback(lambda _: self._ended.set())
        return None

    def _is_to_wait(self, task: _Task) -> bool:
        """True if a run must not begin beside those that are under way here, so that it is known which one ends a process."""
        if self._suspect_waits:
            return True
        beside = [each for each in self._tasks.values() if task.is_suspect or each.is_suspect]
        is_to_wait = any(map(self._may_end_the_process, beside))
        self._suspect_waits = is_to_wait and task.is_suspect
        return is_to_wait

    def _may_end_the_process(self, task: _Task) -> bool:
        """True if a run has just begun here, and a suspect one has got no further since."""
        if time.monotonic() - task.begun_at > _ALONE_SECONDS:
            return False
        if task.is_suspect:
            with suppress(PerdureError):
                space = self._store._resources.named(task.space)  # pyright: ignore[reportPrivateUsage]
                return take.reached(space, task.record) == task.record.died_at
        return True

    @property
    def _is_full(self) -> bool:
        return len(self._tasks) >= self._at_once

    def _rest(self, stop: threading.Event, seen: int, seconds: float) -> None:
        """Wait for news, for the end of a run here, for `stop`, or until something is due."""
        if self._next_due is not None:
            left = (self._next_due - time_of_day(self._engine)) / 1e6
            seconds, self._next_due = min(seconds, max(0.0, left)), None
        self._limits.settle()
        ends_at = time.monotonic() + seconds
        is_armed = self._is_full  # what is queued now is found when a run ends
        while not stop.is_set() and (left := ends_at - time.monotonic()) > 0:
            if self._ended.is_set():
                break
            if not is_armed:
                arm(self._engine)
                is_armed = True
                if self._engine.standing(WORK) != seen:
                    break  # look once more: what was queued before the bell was armed rang no bell
            if self._engine.wait({WORK: seen}, min(left, _STOP_SECONDS), woken=self._ended):
                break
        self._ended.clear()

    def _collect(self) -> None:
        """Forget the runs that have ended here."""
        for doing in [doing for doing in self._tasks if doing.done()]:
            task, error = self._tasks.pop(doing), doing.exception()
            if error is not None:
                _log.error("run %s was not carried on", task.record.id, exc_info=error)
                self._leave(task, "error")

    # ---- in the thread of a run

    def _root_of(self, task: _Task) -> _Task:
        """Return the run that carries a child run on; the child itself if it has no parent any more."""
        space = self._store._resources.named(task.space)  # pyright: ignore[reportPrivateUsage]
        found = take.above(space, task.record)
        return task if found is None else _Task(*found)

    def _carry_on(self, task: _Task, found: _Task) -> None:
        try:
            if task.record.state not in ENDED:
                hindrance = self._carry_on_within_limits(task)
                if hindrance == "busy" and task.record.state == "waiting" and found.record.state == "running":
                    self._leave(
                        found, "held"
                    )  # a child that was interrupted, whose parent waits for something else
            if task.record.state in ENDED or found is not task:
                self._settle_child(found)
        finally:
            limit = self._limits.agents.get(task.record.agent)
            if limit is not None:
                limit.give_slot()

    def _carry_on_within_limits(self, task: _Task) -> _Hindrance | None:
        """Take a run and report what came of it; return why it is left alone for a moment, None if it is not."""
        id = task.record.id
        thread, result, error = task.record.thread or task.space, None, None
        hindrance: _Hindrance | None = None
        try:
            thread, env = self._open(task)
            if self._limits:
                env = msgspec.structs.replace(env, throttle=Throttle(self._limits, task.record.agent))
            with self._slot_of_backend(env) as is_free:
                result = event_loop.drive(take.take(env, id, deaths_max=DEATHS_MAX)) if is_free else None
            hindrance = "busy" if result is None else None
        except RunFailed as failed:
            result, error = (failed.run if isinstance(failed.run, Result) else None), failed
            hindrance = "error" if failed.code == "failure_not_recorded" else None
        except Held as held:
            error, hindrance = held, "held"
        except Conflict as conflict:
            # Another process has it, or has just changed it; or a run that is set aside is before it.
            is_aside = isinstance(conflict, Busy) and conflict.interrupted
            hindrance = "held" if is_aside else "busy"
        except PerdureError as failure:
            if self._was_removed(task):
                return None
            error, hindrance = failure, "error"
            _log.warning("run %s of thread %s was not carried on: %s", id, thread, failure)
        if hindrance is not None:
            self._leave(task, hindrance)
        with self._lock:
            self._count += result is not None
        if self._report is not None and (result is not None or error is not None):
            self._report(Worked(thread=thread, run=result.run if result else id, result=result, error=error))
        return hindrance

    def _was_removed(self, task: _Task) -> bool:
        """True if the thread of a run was removed; then the run is due no longer."""
        if self._engine.cell(task.space, ALIVE) is None:
            return False
        if task.record.due is not None:
            records.drop_due(self._engine, task.space, task.record)
        return True

    def _settle_child(self, child: _Task) -> None:
        """Let a child run be due no longer, or later, if nothing that it waits for is decided or overdue."""
        with suppress(PerdureError):
            opened = self._store.thread(label_of(self._engine, child.space), timeline=child.record.timeline)
            env = opened._env()  # pyright: ignore[reportPrivateUsage]
            event_loop.drive(take.take(env, child.record.id, deaths_max=DEATHS_MAX))

    @contextmanager
    def _slot_of_backend(self, env: RunEnvironment) -> Generator[bool]:
        """Have a slot of the backend that takes the run's next step; give False if all are taken."""
        limit: Limit | None = None
        if self._limits.backends:
            with suppress(PerdureError):  # the run fails for it, or waits
                limit = self._limits.backends.get(current_model(env).backend)
        if limit is None:
            yield True
        elif not limit.take_slot():
            yield False
        else:
            try:
                yield True
            finally:
                limit.give_slot()

    def _leave(self, task: _Task, hindrance: _Hindrance) -> None:
        """Leave the timeline of a run alone for a moment."""
        with self._lock:
            self._later[task.line] = time.monotonic() + _LATER_SECONDS[hindrance], hindrance

    def _open(self, task: _Task) -> tuple[str, RunEnvironment]:
        """Return the thread's id and the environment of a run, with the agent that the run belongs to.

        That may be another agent than the timeline has now: an undo has taken a hand-off back, or a fork from before
        it was promoted.  Such a run is only ended.  Raises `NotFound` if the thread was removed.
        """
        record = task.record
        id, agent = record.thread or label_of(self._engine, task.space), self._agents[record.agent]
        opened = self._store.thread(id, timeline=record.timeline)
        if opened._space.name != task.space:  # pyright: ignore[reportPrivateUsage]
            raise NotFound(
                f"thread '{id}' was removed; its run '{record.id}' was not carried on.",
                code="thread_removed",
                thread=id,
            )
        if opened.agent == agent.name:
            opened = self._store.thread(id, agent=agent, timeline=record.timeline)
        env = opened._env()  # pyright: ignore[reportPrivateUsage]
        return id, msgspec.structs.replace(env, agent=agent)


def _by_name(agents: object) -> Mapping[str, Agent]:
    given = cast("Sequence[object]", agents if isinstance(agents, list | tuple) else (agents,))
    found = {each.name: each for each in given if isinstance(each, Agent)}
    if not given or not all(isinstance(each, Agent) for each in given):
        raise Invalid(
            f"a worker is given its agents, tools included, not {agents!r}; nothing was begun.",
            code="not_an_agent",
        )
    if len(found) < len(given):
        raise Invalid(
            "two agents of a worker have the same name; nothing was begun.", code="agent_given_twice"
        )
    return found


def _of_backends(limits: object) -> Mapping[str, RunLimits]:
    given = cast("Mapping[object, object]", limits) if isinstance(limits, Mapping) else {None: limits}
    found = {
        name: most for name, most in given.items() if isinstance(name, str) and isinstance(most, RunLimits)
    }
    if len(found) < len(given):
        raise Invalid(
            f"limits= are perdure.RunLimits by the name of a backend, not {limits!r}; nothing was begun.",
            code="run_limit_invalid",
        )
    return found


def _sooner(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
