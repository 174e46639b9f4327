"""Runs that are queued, scheduled, suspended or decided are carried on by a worker, each by one and in order."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, cast

import pytest

import perdure
from perdure import Agent, Call, RunLimits, Store, Thread, aio
from perdure.engines import loops, registry
from perdure.engines.contract import CellWrite, Engine, Write
from perdure.errors import Conflict, Corrupt, Invalid, Unavailable
from perdure.history.space import ALIVE
from perdure.model.digest import Kind, digest_of
from perdure.model.message import Message, Text
from perdure.model.run import RunRecord, Usage
from perdure.providers.contract import Finished, ModelEvent
from perdure.runtime.session import records
from perdure.runtime.session.environment import StoreRuntime
from perdure.store import worker
from perdure.store.worker import Worked
from perdure.testing import Script, say, step, use
from tests.coded import raises
from tests.crash.processes import exit_code_of
from tests.engines.postgres.stores import new_store
from tests.selection import engines
from tests.store.copies import engine_of
from tests.store.engine_calls import CountingEngine

HOUR = 3_600_000_000


@perdure.tool(effect="read_only")
def nap(call: Call) -> str:
    """Wait for a moment."""
    if call.decision is None:
        call.suspend(until=0.05)
    return f"woken by {call.decision.verdict}"


@perdure.tool(effect="external_write")
def ask(call: Call) -> str:
    """Ask a person, for a short time."""
    if call.decision is None:
        call.suspend("May I?", expires_in=0.05, on_timeout="approve")
    return "asked"


@perdure.tool(effect="external_write", ask=True)
def send(to: int) -> str:
    """Send something."""
    return f"sent {to}"


def agent(*steps: Any, name: str = "planner") -> Agent:
    """An agent that says these steps, or says `Done.` to every input."""
    return Agent(name, backend=Script(*(steps or [say("Done.")] * 50)), tools=[nap, ask, send])


@pytest.fixture(params=engines("file", "memory:", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    if request.param == "postgres":
        return new_store(request)
    return request.param if request.param == "memory:" else str(tmp_path / "store.db")


@pytest.fixture
def store(url: str) -> Generator[Store]:
    """An empty store."""
    with perdure.open(url) as opened:
        yield opened


@contextmanager
def working(store: Store, *agents: Agent) -> Generator[None]:
    """A worker beside the test."""
    stop = threading.Event()
    thread = threading.Thread(target=lambda: store.work(agents, stop=stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def ended(thread: Thread, run: str) -> RunRecord:
    """The run once it has ended."""
    ends_at = time.monotonic() + 60
    while time.monotonic() < ends_at:
        found = record_of(thread, run)
        if found.state not in ("created", "running", "waiting"):
            return found
        time.sleep(0.01)
    raise AssertionError(f"run {run} has not ended")


def record_of(thread: Thread, run: str) -> RunRecord:
    """The record of a run."""
    return next(each for each in thread.runs() if each.id == run)


def inputs(thread: Thread) -> list[str]:
    """What users said, in order."""
    return [each.message.text for each in thread.transcript() if each.message.role == "user"]


# ---- queued


def test_a_queued_input_is_run_by_a_worker(store: Store) -> None:
    """It is durable and visible before, and the worker says how many runs it carried on."""
    thread = store.thread("t", agent=agent())
    run = thread.start("Hello.", id="m1")
    before = record_of(thread, run)

    done = store.work(agent(), until_idle=True)

    assert (before.state, before.input) == ("created", ("m1",))
    assert (done, record_of(thread, run).state) == (1, "succeeded")
    assert [each.message.text for each in thread.transcript()] == ["Hello.", "Done."]


def test_the_same_id_is_queued_once(store: Store) -> None:
    """Before it has begun and after its end; other words are refused."""
    thread = store.thread("t", agent=agent())
    run = thread.start("Hello.", id="m1")

    assert thread.start("Hello.", id="m1") == run
    with raises(Conflict, "input_id_reused", id="m1"):
        thread.start("Goodbye.", id="m1")
    store.work(agent(), until_idle=True)
    assert thread.start("Hello.", id="m1") == run
    assert store.work(agent(), until_idle=True) == 0


@pytest.mark.parametrize("is_woken", [True, False], ids=["woken", "control"])
@pytest.mark.parametrize("work", ["start", "decide"])
def test_a_worker_of_the_same_opening_is_woken_without_the_bell(
    store: Store, monkeypatch: pytest.MonkeyPatch, work: str, *, is_woken: bool
) -> None:
    """What waits for the request to be answered does not wait for a write; control: else the worker looks later."""
    monkeypatch.setattr(worker, "_LOOK_SECONDS", 60.0)
    monkeypatch.setattr("perdure.runtime.run.queue._set_bell", lambda *_: None)
    if not is_woken:
        monkeypatch.setattr(StoreRuntime, "wake_workers", lambda _: None)
    thread = store.thread("t", agent=agent(use("send", to=1), say("Sent."), say("Done.")))
    run = thread.run("Send it", id="m1").run
    with working(store, agent(use("send", to=1), say("Sent."), say("Done."))):
        time.sleep(0.2)  # it has looked, and rests
        if work == "start":
            run = thread.start("Go", id="m2")
        else:
            thread.decide(thread.approvals()[0].call, "approve", by="ann")
        if is_woken:
            thread.wait(run, 20)
        else:
            with raises(Unavailable, "run_goes_on", run=run):
                thread.wait(run, 0.5)


def test_run_with_the_id_of_a_queued_input_runs_it_here(store: Store) -> None:
    """And a worker finds nothing; `start` with the id of an input that ran returns its run."""
    thread = store.thread("t", agent=agent())
    run = thread.start("Hello.", id="m1")

    result = thread.run("Hello.", id="m1")
    direct = thread.run("More.", id="m2")

    assert (result.run, result.text) == (run, "Done.")
    assert thread.start("More.", id="m2") == direct.run
    assert store.work(agent(), until_idle=True) == 0


def test_inputs_of_a_timeline_are_taken_in_their_order(store: Store) -> None:
    """Also by several workers at once."""
    thread = store.thread("t", agent=agent())
    runs = [thread.start(f"input {number}") for number in range(6)]

    with working(store, agent()), working(store, agent()):
        for run in runs:
            ended(thread, run)

    assert inputs(thread) == [f"input {number}" for number in range(6)]


def test_a_queued_run_can_be_cancelled(store: Store) -> None:
    """It never begins, and the next input does."""
    thread = store.thread("t", agent=agent())
    first, second = thread.start("one"), thread.start("two")

    record = thread.cancel(first, why="not needed", by="ann")
    store.work(agent(), until_idle=True)

    assert (record.state, record.why, record.cancelled_by) == ("cancelled", "not needed", "ann")
    assert (record_of(thread, second).state, inputs(thread)) == ("succeeded", ["two"])
    assert list(records.open_runs(engine_of(store))) == []


def test_a_queued_run_that_cannot_begin_fails(store: Store) -> None:
    """Its record says why, and it is not tried for ever."""
    thread = store.thread("t", agent="planner")
    run = thread.start("Hello.")

    store.work(Agent("planner"), until_idle=True)

    found = record_of(thread, run)
    assert (found.state, found.kind) == ("failed", "Invalid")
    assert list(records.open_runs(engine_of(store))) == []


@pytest.mark.parametrize("can_begin", [False, True])
def test_the_words_of_a_queued_run_that_cannot_begin_are_kept_and_run_later(
    store: Store, *, can_begin: bool
) -> None:
    """They are in the log once, before the failure, and the same id and words run them; so it is with one that begins."""
    thread = store.thread("t", agent="planner")
    run = thread.start("Unheard words.", id="m7")

    store.work(agent() if can_begin else Agent("planner"), until_idle=True)
    (turn,) = thread.turns()
    again = store.thread("t", agent=agent()).run("Unheard words.", id="m7")

    assert (turn.run, turn.input, turn.status) == (
        run,
        "Unheard words.",
        "succeeded" if can_begin else "failed",
    )
    assert (again.run, again.status, again.text) == (run, "succeeded", "Done.")
    assert [(each.role, each.text) for each in thread.transcript()] == [
        ("user", "Unheard words."),
        ("assistant", "Done."),
    ]


def test_a_queued_run_that_cannot_begin_names_no_backend(store: Store) -> None:
    """The thread stays on the backend that it was switched to, and another input is run there."""
    thread = store.thread("t", agent=agent())
    thread.run("Hello.")
    thread.switch(Script(say("Switched."), say("Again."), backend="script:other"))
    run = thread.start("Words.", id="m7")

    store.work(agent(), until_idle=True)

    assert record_of(thread, run).state == "failed"
    assert thread.backend == "script:other"
    assert thread.run("Words.", id="m7").text == "Switched."
    assert thread.run("More.").text == "Again."


def test_a_queued_run_whose_timeline_takes_no_input_fails_by_its_record_alone(store: Store) -> None:
    """Nothing is written to a sealed timeline, the record has the words, and the run is not tried for ever."""
    thread = store.thread("t", agent=agent())
    thread.run("Hello.")
    fork = thread.fork("fork")
    run = fork.start("Words.", id="m7")
    fork.seal()

    store.work(agent(), until_idle=True)

    found = record_of(thread, run)
    assert (found.state, found.kind) == ("failed", "Sealed")
    assert str(found.why).endswith("Its input was: Words.")
    assert [each.text for each in fork.transcript()] == ["Hello.", "Done."]
    assert list(records.open_runs(engine_of(store))) == []


def test_a_queued_run_of_an_agent_whose_hand_off_was_undone_fails(store: Store) -> None:
    """The timeline is another agent's again: the record has the words, and the worker does not wait for it for ever."""
    clerk = agent(name="clerk")
    thread = store.thread("t", agent=agent())
    thread.run("Hello.")
    run = thread.hand_off(clerk).start("Words.")
    thread.undo(to="HEAD~1")

    store.work([agent(), clerk], until_idle=True)

    found = record_of(thread, run)
    assert (found.state, found.kind) == ("failed", "Conflict")
    assert str(found.why).endswith("Its input was: Words.")
    assert thread.run("And now?").text == "Done."


@pytest.mark.parametrize("how", ["worker", "start-up", "awaitable start-up"])
@pytest.mark.parametrize("what", ["undone", "sealed"])
def test_a_decided_run_that_cannot_go_on_keeps_no_other_from_it(tmp_path: Path, what: str, how: str) -> None:
    """Its turn was undone with the hand-off to its agent, or its timeline was sealed; that of another thread goes on."""
    clerk, url = agent(use("send", to=7), say("Sent."), name="clerk"), str(tmp_path / "store.db")
    with perdure.open(url) as store:
        thread = store.thread("t", agent=agent())
        thread.run("Hello.")
        before = thread.head
        waiting = thread.hand_off(clerk).run("Send it.")
        other = store.thread("u", agent=clerk).run("Send it.")
        for each in store.approvals():
            store.thread(each.thread).decide(each.call, "approve", by="ann")
        _ = thread.undo(to=before) if what == "undone" else store.thread("t").seal()

        if how == "worker":
            store.work([agent(), clerk], until_idle=True)
        elif how == "start-up":
            store.resume(clerk)
        else:
            asyncio.run(_resumed(url, clerk))

        left = "cancelled" if what == "undone" and how == "worker" else "waiting"
        assert record_of(thread, waiting.run).state == left
        assert record_of(store.thread("u"), other.run).state == "succeeded"


async def _resumed(url: str, agent: Agent) -> None:
    async with aio.open(url) as store:
        await store.resume(agent)


def test_a_worker_leaves_the_runs_of_other_agents(store: Store) -> None:
    """They wait for a worker that has their agent."""
    thread = store.thread("t", agent=agent(name="clerk"))
    run = thread.start("Hello.")

    assert store.work(agent(), until_idle=True) == 0
    assert record_of(thread, run).state == "created"


def test_the_thread_of_a_queued_run_that_was_removed_is_passed_over(store: Store) -> None:
    """A thread that has its id since is another one; nothing is reported, and the run is due no longer."""
    store.thread("t", agent=agent()).start("Hello.")
    store.thread("t").rm(force=True)
    store.thread("t", agent=agent())
    told: list[Worked] = []

    assert store.work(agent(), until_idle=True, report=told.append) == 0
    assert (inputs(store.thread("t")), told) == ([], [])
    assert list(loops.listed(engine_of(store), prefix=records.DUE)) == []


def test_a_thread_with_a_queued_input_is_kept_unless_it_is_given_up(store: Store) -> None:
    """What was started or scheduled is not dropped silently."""
    thread = store.thread("t", agent=agent())
    runs = thread.start("Hello."), thread.schedule("Later.", 3_600)

    with raises(Conflict, "inputs_not_begun", thread="t", runs=runs):
        thread.rm()

    assert store.work(agent(), until_idle=True) == 1
    assert thread.cancel(runs[1]).state == "cancelled"
    thread.rm()


class QueuesFirst(CountingEngine):
    """An engine that queues an input just before a thread is closed."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.queue: Any = None

    def apply(self, write: Write) -> Any:
        """Apply a write; the first that closes a thread comes after the input."""
        if self.queue is not None and any(cell.name == ALIVE for cell in write.cells):
            queue, self.queue = self.queue, None
            queue()
        return self._engine.apply(write)


@pytest.mark.parametrize("force", [False, True])
def test_an_input_that_is_queued_while_the_thread_is_removed_is_not_dropped(
    monkeypatch: pytest.MonkeyPatch, *, force: bool
) -> None:
    """The removal is refused and the input runs; only with force the thread goes, with what it was asked to give up."""
    engines: list[QueuesFirst] = []
    real = registry.open_engine

    def wrapped(*args: Any, **options: Any) -> Any:
        engines.append(QueuesFirst(real(*args, **options)))
        return engines[-1]

    monkeypatch.setattr(registry, "open_engine", wrapped)
    with perdure.open("memory:") as store:
        thread = store.thread("t", agent=agent())
        thread.run("First.")
        runs: list[str] = []
        engines[0].queue = lambda: runs.append(thread.start("Hello."))
        if force:
            thread.rm(force=True)
            assert "t" not in [each.id for each in store.threads()]
        else:
            with raises(Conflict, "inputs_not_begun", thread="t"):
                thread.rm()
            assert (store.work(agent(), until_idle=True), inputs(thread)) == (1, ["First.", "Hello."])


def test_an_input_for_a_thread_that_was_removed_is_refused(store: Store) -> None:
    """A handle from before says so, for `start`, `schedule` and `steer`."""
    thread = store.thread("t", agent=agent())
    thread.run("First.")
    store.thread("t").rm()

    for queue in (
        lambda: thread.start("Hello."),
        lambda: thread.schedule("Hello.", 60),
        lambda: thread.steer("Hello."),
    ):
        with pytest.raises(Conflict):
            queue()


class Busyness:
    """Counts how many calls are under way, and the most that were; each waits a moment for a third one."""

    def __init__(self) -> None:
        self._lock, self._now, self.most = threading.Lock(), 0, 0
        self.wait_seconds = 0.02

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        until = time.monotonic() + self.wait_seconds
        while self.most < 3 and time.monotonic() < until:
            time.sleep(0.005)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._now -= 1


@pytest.mark.parametrize("of_backend", [False, True])
def test_workers_share_the_limit_of_runs_at_once(store: Store, *, of_backend: bool) -> None:
    """Of an agent, or of a backend; without it the same workers run more at once."""
    busy = Busyness()

    @perdure.tool(effect="read_only")
    def look() -> str:
        with busy:
            return "seen"

    limits = RunLimits(runs=2)
    bare = Agent("planner", backend=Script(use("look"), say("Done.")), tools=[look])
    limited = bare if of_backend else replace(bare, limits=limits)
    of_backends = {"script:test": limits} if of_backend else None

    def work(agent: Agent, of_backends: dict[str, RunLimits] | None) -> int:
        runs = [store.thread(f"{agent.limits} {at}", agent=agent).start("Look.") for at in range(10)]
        crew = [
            threading.Thread(target=lambda: store.work(agent, limits=of_backends, until_idle=True))
            for _ in range(3)
        ]
        for each in crew:
            each.start()
        for each in crew:
            each.join()
        store.work(agent, until_idle=True)
        states = {each.state for thread in store.threads() for each in thread.runs() if each.id in runs}
        assert states == {"succeeded"}
        most, busy.most = busy.most, 0
        return most

    assert work(limited, of_backends) <= 2
    for thread in list(store.threads()):
        thread.rm()
    busy.wait_seconds = 30.0  # however busy the machine is
    assert work(bare, None) > 2


# ---- decided, interrupted


def test_a_decided_run_is_resumed(store: Store) -> None:
    """By a worker that waits for it."""
    planner = agent(use("send", to=1), say("Sent."))
    thread = store.thread("t", agent=planner)

    with working(store, planner):
        run = thread.start("Send it.")
        while not (asked := store.approvals()):
            time.sleep(0.01)
        thread.decide(asked[0].call, "approve", by="ann")
        found = ended(thread, run)

    assert (found.state, [call.state for call in thread.calls()]) == ("succeeded", ["succeeded"])


def test_a_run_that_is_decided_on_a_fork_is_resumed_there(store: Store) -> None:
    """The worker finds it by the decision; on the timeline of the question the run still waits."""
    planner = agent(use("send", to=1), say("Sent."))
    thread = store.thread("t", agent=planner)
    first = thread.run("Send it.").run
    fork = thread.fork("what-if")

    fork.decide(fork.approvals()[0].call, "approve", by="ann")
    done = store.work(planner, until_idle=True)

    states = {each.timeline: (each.state, each.parent_run) for each in thread.runs()}
    assert (done, fork.transcript()[-1].message.text) == (1, "Sent.")
    assert states == {"main": ("waiting", None), "what-if": ("succeeded", first)}
    assert len(thread.approvals()) == 1


@pytest.mark.parametrize("worker_first", [False, True])
def test_two_decisions_on_a_fork_make_one_run(store: Store, *, worker_first: bool) -> None:
    """The second decision finds the run that the first one entered, also if that run waits for it by then."""
    planner = agent(step(use("send", to=1), use("send", to=2)), say("Sent."))
    thread = store.thread("t", agent=planner)
    thread.run("Send both.")
    fork = thread.fork("what-if")
    one, two = [each.call for each in fork.approvals()]

    fork.decide(one, "approve", by="ann")
    if worker_first:
        store.work(planner, until_idle=True)
    fork.decide(two, "deny", by="ann")
    store.work(planner, until_idle=True)

    assert [each.state for each in thread.runs() if each.timeline == "what-if"] == ["succeeded"]
    assert fork.transcript()[-1].message.text == "Sent."
    assert sum(call.state == "succeeded" for call in thread.calls()) == 1


def test_a_call_of_a_run_that_continues_another_is_decided_on_a_further_fork(store: Store) -> None:
    """The run that went on on the first fork asks again; the decision on a fork of the fork is carried on there."""
    planner = agent(use("send", to=1), use("send", to=2), say("Sent."))
    thread = store.thread("t", agent=planner)
    thread.run("Send both.")
    fork = thread.fork("one")
    fork.decide(fork.approvals()[0].call, "approve", by="ann")
    store.work(planner, until_idle=True)
    further = fork.fork("two")

    further.decide(further.approvals()[0].call, "approve", by="ann")
    store.work(planner, until_idle=True)

    states = {each.timeline: each.state for each in thread.runs()}
    assert states == {"main": "waiting", "one": "waiting", "two": "succeeded"}
    assert further.transcript()[-1].message.text == "Sent."


def test_a_second_question_on_a_fork_is_carried_on_there(store: Store) -> None:
    """The tool asks again when it runs on the fork; its next question belongs to the run there, and may expire."""

    @perdure.tool(effect="external_write", name="send")
    def send_twice(call: Call, to: int) -> str:
        """Ask twice."""
        if call.decision is None or call.decision.verdict == "approve":
            call.suspend("To whom?", expires_in=0.05, on_timeout="deny" if call.decision else "expire")
        return f"sent {to}"

    planner = Agent("planner", backend=Script(use("send", to=1), say("Sent.")), tools=[send_twice])
    thread = store.thread("t", agent=agent(use("send", to=1)))
    thread.run("Send it.")
    fork = store.thread("t", agent=planner, timeline=thread.fork("what-if").timeline)
    fork.decide(fork.approvals()[0].call, "approve", by="ann")

    with working(store, planner):
        run = next(each.id for each in thread.runs() if each.timeline == "what-if")
        found = ended(thread, run)

    assert (found.state, fork.transcript()[-1].message.text) == ("succeeded", "Sent.")


@pytest.mark.parametrize("tool", ["send", "nap"])
def test_a_run_whose_child_can_go_on_is_resumed(store: Store, tool: str) -> None:
    """By a worker that has the agent at the root alone; the child waits for a person, or for a time."""
    step = use("send", to=1) if tool == "send" else use("nap")
    helper = Agent("helper", backend=Script(step, say("Helped.")), tools=[send, nap])

    @perdure.tool(effect="read_only")
    def delegate(call: Call) -> str:
        """Let another agent do it."""
        return call.run(helper, "Do it.").text

    boss = Agent("boss", backend=Script(use("delegate"), say("Done.")), tools=[delegate])
    thread = store.thread("t", agent=boss)

    with working(store, boss):
        run = thread.start("Do it.")
        while tool == "send" and not thread.approvals():
            time.sleep(0.01)
        for asked in thread.approvals():
            thread.decide(asked.call, "approve", by="ann")
        found = ended(thread, run)

    assert (found.state, [child.record.state for child in thread.children(run)]) == (
        "succeeded",
        ["succeeded"],
    )
    assert list(records.open_runs(engine_of(store))) == []


@pytest.mark.parametrize("how", ["resume", "store", "cancel"])
def test_a_run_whose_child_ended_elsewhere_is_resumed(store: Store, how: str) -> None:
    """The child's end makes its root due, whoever ended it."""
    helper, boss = nursery()
    thread = store.thread("t", agent=boss)
    run = thread.run("Do it.").run
    child = store.thread(next(each.id for each in store.threads() if each.id != "t"), agent=helper)
    if how != "cancel":
        child.decide(child.approvals()[0].call, "approve", by="ann")
    if how == "store":
        store.resume(helper)
    elif how == "resume":
        child.resume()
    else:
        child.cancel(child.runs()[0].id)

    assert store.work(boss, until_idle=True) == 1
    assert record_of(thread, run).state == "succeeded"
    assert list(loops.listed(engine_of(store), prefix=records.DUE)) == []


def test_a_worker_forgets_the_end_of_a_child_whose_parent_went_on(store: Store) -> None:
    """A person resumed the parent first: the child is due no longer, though the worker has not its agent."""
    helper, boss = nursery()
    thread = store.thread("t", agent=boss)
    thread.run("Do it.")
    child = store.thread(next(each.id for each in store.threads() if each.id != "t"), agent=helper)
    child.cancel(child.runs()[0].id)
    thread.resume()

    assert store.work(boss, until_idle=True) == 0
    assert list(loops.listed(engine_of(store), prefix=records.DUE)) == []


@pytest.mark.parametrize("how", ["sealed", "removed"])
def test_a_decided_child_whose_parent_cannot_go_on_is_due_no_longer(store: Store, how: str) -> None:
    """It waits with a parent on a sealed timeline, whose forks can go on; it ends with one whose thread was removed."""
    helper, boss = nursery()
    thread = store.thread("t", agent=boss)
    thread.run("Do it.")
    child = store.thread(next(each.id for each in store.threads() if each.id != "t"), agent=helper)
    child.decide(child.approvals()[0].call, "approve", by="ann")
    _ = thread.seal() if how == "sealed" else thread.rm(force=True)

    assert is_idle_after_work(store, boss)
    assert [each.state for each in child.runs()] == ["waiting" if how == "sealed" else "cancelled"]
    assert list(loops.listed(engine_of(store), prefix=records.DUE)) == []


@pytest.mark.parametrize("verdict", [None, "approve", "deny"])
def test_a_decided_child_is_due_no_longer_while_a_person_is_asked_about_its_parents_call(
    store: Store, verdict: Literal["approve", "deny"] | None
) -> None:
    """The same call was done on a fork meanwhile.  The worker is idle until the person decides, and after a denial."""
    store.thread("t", agent=delegating(say("Hi."))).run("Hi.")
    store.thread("t").fork("f")
    for line in ("main", "f"):
        boss = delegating(step(use("delegate"), use("send", to=2)), say("Done."))
        store.thread("t", agent=boss, timeline=line).run("Do it.")
    for line in ("f", "main"):
        thread = store.thread("t", timeline=line)
        run = next(each.id for each in thread.runs() if each.timeline == line and each.state == "waiting")
        child = store.thread(thread.children(run)[0].thread)
        child.decide(child.approvals()[0].call, "approve", by="ann")
        assert is_idle_after_work(store, delegating(say("Done.")))
    if verdict is not None:
        (repeat,) = [each.call for each in thread.approvals() if each.action == "repeat"]
        thread.decide(repeat, verdict, by="ann")

    assert is_idle_after_work(store, delegating(say("Done.")))
    assert [each.state for each in child.runs()] == ["waiting"]
    assert list(loops.listed(engine_of(store), prefix=records.DUE)) == []


def is_idle_after_work(store: Store, boss: Agent) -> bool:
    """True if a worker finds nothing to do in the end."""
    stop = threading.Event()
    timer = threading.Timer(60, stop.set)
    timer.start()
    store.work([boss, Agent("helper", backend=Script(), tools=[send])], until_idle=True, stop=stop)
    timer.cancel()
    return not stop.is_set()


def delegating(*steps: Any) -> Agent:
    """An agent with these steps that delegates to a helper, and so does each other one of the same name."""

    @perdure.tool(effect="external_write")
    def delegate(call: Call) -> str:
        """Let another agent do it."""
        helper = Agent("helper", backend=Script(use("send", to=1), say("Helped.")), tools=[send])
        return call.run(helper, "Do it.").text

    return Agent("boss", backend=Script(*steps), tools=[delegate, send])


def nursery(*, dies: bool = False) -> tuple[Agent, Agent]:
    """A helper that asks before it sends, or ends its process, and an agent that delegates to it."""
    helper = Agent("helper", backend=Script(use("send", to=1), say("Helped.")), tools=[send])
    dying = Agent("helper", backend=Dying())

    @perdure.tool(effect="external_write")
    def delegate(call: Call) -> str:
        """Let another agent do it."""
        return call.run(dying if dies else helper, "Do it.").text

    steps = step(use("send", to=1), use("delegate")) if dies else use("delegate")
    return helper, Agent("boss", backend=Script(steps, say("Done.")), tools=[delegate, send])


class Dying(Script):
    """A backend that ends its process."""

    def step(self, context: Any) -> Any:
        """End the process, as a kill does."""
        os._exit(9)


def work_and_die(path: str) -> None:
    """Work with an agent that ends the process."""
    with perdure.open(path) as store:
        store.work(Agent("planner", backend=Dying()), until_idle=True)


def delegate_and_die(path: str) -> None:
    """Run an agent whose helper ends the process."""
    with perdure.open(path) as store:
        store.thread("t", agent=nursery(dies=True)[1]).run("Do it.")


class Poisoned(Script):
    """A backend that ends its process when the runs beside it are under way, and answers these late."""

    def __init__(self, attempts: Path) -> None:
        """Note each process in the file `attempts`."""
        super().__init__()
        attempts.write_text("x" + (attempts.read_text() if attempts.exists() else ""))
        self._are_together = threading.Barrier(3 if len(attempts.read_text()) <= 2 else 1)

    async def step(self, context: Any) -> AsyncIterator[ModelEvent]:
        """End the process if the input says so."""
        await asyncio.to_thread(self._are_together.wait)
        if context.messages[-1].text == "Die.":
            os._exit(9)
        await asyncio.sleep(0.5)
        yield Finished(message=Message("assistant", (Text("Done."),)), usage=Usage(), stop="end")


def work_beside_poison(path: str) -> None:
    """Work with an agent of which one run ends the process."""
    with perdure.open(path) as store:
        store.work(Agent("planner", backend=Poisoned(Path(path + ".attempts"))), until_idle=True)


def test_a_run_that_ends_its_workers_is_set_aside_before_what_is_queued_behind_it(tmp_path: Path) -> None:
    """Its deaths are counted, and the next input waits until it is released or cancelled."""
    path = tmp_path / "store.db"
    with perdure.open(path) as store:
        thread = store.thread("t", agent=agent())
        poison, behind = thread.start("Die."), thread.start("Hello.")

        ends = [exit_code_of(work_and_die, str(path)) for _ in range(4)]
        found = record_of(thread, poison)

        assert (ends, found.deaths, found.aside_at is None) == ([9, 9, 9, 0], 3, False)
        assert (store.work(agent(), until_idle=True), record_of(thread, behind).state) == (0, "created")
        thread.cancel(poison)
        assert store.work(agent(), until_idle=True) == 1
        assert record_of(thread, behind).state == "succeeded"


def test_only_runs_that_end_their_workers_are_set_aside(tmp_path: Path) -> None:
    """Runs that were in two of its processes are tried one at a time, and not beside a newer one that ends processes, too."""
    path = tmp_path / "store.db"
    with perdure.open(path) as store:
        threads = {name: store.thread(name, agent=agent()) for name in ("poison", "one", "two", "late")}
        runs = {
            name: threads[name].start("Die." if name == "poison" else "Hello.")
            for name in ("poison", "one", "two")
        }
        ends = [exit_code_of(work_beside_poison, str(path)) for _ in range(2)]
        runs["late"] = threads["late"].start("Die.")

        while exit_code_of(work_beside_poison, str(path)):
            pass
        found = {name: record_of(threads[name], run) for name, run in runs.items()}

        assert ends == [9, 9]
        assert {name: each.aside_at is not None for name, each in found.items()} == {
            "poison": True,
            "one": False,
            "two": False,
            "late": True,
        }
        assert [found[name].state for name in ("one", "two")] == ["succeeded", "succeeded"]


def test_a_worker_is_idle_beside_an_interrupted_child_whose_parent_waits(tmp_path: Path) -> None:
    """The parent waits for a person, so nothing is due; the decision makes it due."""
    path = tmp_path / "store.db"
    assert exit_code_of(delegate_and_die, str(path)) == 9
    with perdure.open(path) as store:
        helper, boss = nursery()
        thread = store.thread("t", agent=boss)
        assert thread.resume().status == "waiting"
        stop = threading.Event()
        timer = threading.Timer(60, stop.set)
        timer.start()

        done = store.work([boss, helper], until_idle=True, stop=stop)

        timer.cancel()
        assert (done, stop.is_set()) == (0, False)


def boss_of_death() -> tuple[Agent, Agent]:
    """A helper that ends its process, and an agent that delegates to it as often as it is asked."""
    helper = Agent("helper", backend=Dying())

    @perdure.tool(effect="none")
    def delegate(call: Call) -> str:
        """Let another agent do it."""
        return call.run(helper, "Do it.").text

    return helper, Agent("boss", backend=Script(use("delegate"), say("Done.")), tools=[delegate])


def work_and_delegate_to_death(path: str) -> None:
    """Work with an agent whose helper ends the process."""
    with perdure.open(path) as store:
        store.work(boss_of_death(), until_idle=True)


def test_a_worker_is_idle_beside_an_interrupted_child_whose_parent_is_set_aside(tmp_path: Path) -> None:
    """The child waits with its parent until a person releases it, and so does what is queued behind that."""
    path = tmp_path / "store.db"
    with perdure.open(path) as store:
        thread = store.thread("t", agent=boss_of_death()[1])
        run, behind = thread.start("Do it."), thread.start("Hello.")
        assert [exit_code_of(work_and_delegate_to_death, str(path)) for _ in range(3)] == [9, 9, 9]
        stop = threading.Event()
        timer = threading.Timer(60, stop.set)
        timer.start()

        done = store.work(boss_of_death(), until_idle=True, stop=stop)

        timer.cancel()
        assert (done, stop.is_set(), record_of(thread, run).aside_at is None) == (0, False, False)
        assert record_of(thread, behind).state == "created"
        assert thread.release(run)
        assert exit_code_of(work_and_delegate_to_death, str(path)) == 9


def unreadable(store: Store, thread: str, run: str, *, listed: bool) -> None:
    """Replace the record of a run by one that cannot be read."""
    engine = engine_of(store)
    space = store.thread(thread)._space.name
    cell = engine.cell(space, records.RUN + run)
    assert cell is not None
    change = CellWrite(name=cell.name, expected=cell.revision, value=b'{"id":7}', listed=listed)
    intent = digest_of(Kind.BODY, b"damage")
    engine.apply(Write(space=space, op_id=f"damage {run}", intent=intent, cells=(change,)))


def test_a_run_whose_record_cannot_be_read_is_left_alone_and_reported(store: Store) -> None:
    """One that is queued and one that runs; what is queued in other threads is carried on, and each is told once."""
    for name in ("queued", "running"):
        store.thread(name, agent=agent()).run("First.")
    queued, running = (store.thread(name, agent=agent()).start("Hello.") for name in ("queued", "running"))
    unreadable(store, "queued", queued, listed=False)
    unreadable(store, "running", running, listed=True)
    good = store.thread("good", agent=agent())
    run = good.start("Hello.")
    told: list[Worked] = []

    done = store.work(agent(), until_idle=True, report=told.append)

    damaged = {(each.thread, each.run, type(each.error)) for each in told if each.error is not None}
    assert (done, record_of(good, run).state) == (1, "succeeded")
    assert damaged == {("queued", queued, Corrupt), ("running", running, Corrupt)}
    assert len(told) == 3


@pytest.mark.parametrize("what", ["value", "seal", "lease"])
def test_damage_in_one_thread_does_not_end_a_worker(tmp_path: Path, what: str) -> None:
    """A bit of the run's record or of its lease, or a cell that was removed: the other threads go on."""
    path = tmp_path / "store.db"
    with perdure.open(path) as store:
        for name in ("damaged", "good"):
            store.thread(name, agent=agent()).start("Die.")
    assert exit_code_of(work_and_die, str(path)) == 9
    with perdure.open(path) as store:
        first, other = store.thread("damaged").runs()[0], store.thread("good").runs()[0]
        bad, good = ("damaged", "good") if first.state == "running" else ("good", "damaged")
        bad_run = first.id if first.state == "running" else other.id
        space = store.thread(bad)._space.name
    spoil(path, space, bad_run, what)
    told: list[Worked] = []

    with perdure.open(path) as store:
        store.work(agent(), until_idle=True, report=told.append)
        states = [each.state for each in store.thread(good).runs()]

    assert states == ["succeeded"]
    assert {each.run for each in told if isinstance(each.error, Corrupt)} == {bad_run}


def spoil(path: Path, space: str, run: str, what: str) -> None:
    """Edit the file: the value of a cell, or the cell of an input that was queued goes."""
    of_space = "space=(SELECT id FROM spaces WHERE name=?)"
    with closing(sqlite3.connect(path)) as db:
        if what == "seal":
            done = db.execute(f"DELETE FROM cells WHERE {of_space} AND name LIKE 'queue/%'", (space,))
        else:
            name = f"run/{run}" if what == "value" else "lease/main"
            changed = "UPDATE cells SET value=replace(value, '1', '2')"
            done = db.execute(f"{changed} WHERE {of_space} AND name=?", (space, name))
        assert done.rowcount == 1
        db.commit()


class DecidesFirst(CountingEngine):
    """An engine that lets a person decide just before a run is written as waiting."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.decide: Any = None

    def apply(self, write: Write) -> Any:
        """Apply a write; the first that marks a run as waiting comes after the decision."""
        marks = any(cell.name.startswith("waits/") and cell.value for cell in write.cells)
        if marks and self.decide is not None:
            decide, self.decide = self.decide, None
            decide()
        return self._engine.apply(write)


def test_a_decision_just_before_the_run_waits_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's last write is refused, and it is due at once."""
    engines: list[DecidesFirst] = []
    real = registry.open_engine

    def wrapped(*args: Any, **options: Any) -> Any:
        engines.append(DecidesFirst(real(*args, **options)))
        return engines[-1]

    monkeypatch.setattr(registry, "open_engine", wrapped)
    planner = agent(use("send", to=1), say("Sent."))
    with perdure.open("memory:") as store:
        thread = store.thread("t", agent=planner)
        run = thread.start("Send it.")
        engines[0].decide = lambda: thread.decide(thread.approvals()[0].call, "approve", by="ann")

        done = store.work(planner, until_idle=True)

        assert (done, record_of(thread, run).state) == (2, "succeeded")


def test_a_copied_store_is_left_alone_until_it_is_released(store: Store, tmp_path: Path) -> None:
    """Its queued runs go on after a release."""
    run = store.thread("t", agent=agent()).start("Hello.")
    copied = str(tmp_path / "copy.db")
    store.copy_to(copied)

    with perdure.open(copied) as other:
        before = other.work(agent(), until_idle=True), record_of(other.thread("t"), run).state
        other.release("t")
        other.work(agent(), until_idle=True)
        after = record_of(other.thread("t"), run).state

    assert (before, after) == ((0, "created"), "succeeded")


def test_a_question_of_a_child_in_a_copied_store_stays_open(tmp_path: Path) -> None:
    """It is overdue, but nothing is decided before the release."""

    @perdure.tool(effect="external_write", name="ask")
    def ask_for_longer(call: Call) -> str:
        """Ask a person, for a while."""
        if call.decision is None:
            call.suspend("May I?", expires_in=3, on_timeout="approve")
        return "asked"

    helper = Agent("helper", backend=Script(use("ask"), say("Asked.")), tools=[ask_for_longer])

    @perdure.tool(effect="none")
    def delegate(call: Call) -> str:
        """Let another agent do it."""
        return call.run(helper, "Ask.").text

    boss = Agent("boss", backend=Script(use("delegate"), say("Done.")), tools=[delegate])
    copied = str(tmp_path / "copy.db")
    with perdure.open(tmp_path / "store.db") as store:
        assert store.thread("t", agent=boss).run("Ask.").status == "waiting"
        store.copy_to(copied)
    time.sleep(3.1)

    with perdure.open(copied) as other:
        before = [(call.tool, call.state) for thread in other.threads() for call in thread.calls()]
        other.work([boss, helper], until_idle=True)
        after = [(call.tool, call.state) for thread in other.threads() for call in thread.calls()]

    assert ("ask", "awaiting_approval") in before
    assert after == before


# ---- timers


def test_a_call_that_waits_for_a_time_is_continued_then(store: Store) -> None:
    """No person is asked; the tool runs again from its first line."""
    planner = agent(use("nap"), say("Awake."))
    thread = store.thread("t", agent=planner)
    run = thread.start("Sleep.")

    with working(store, planner):
        found = ended(thread, run)

    assert (found.state, store.approvals(), thread.approvals()) == ("succeeded", [], [])
    assert "woken by approve" in str(thread.trace(thread.calls()[0].id).result)


def test_a_question_that_expires_is_acted_on(store: Store) -> None:
    """By its own rule, without a person and without a caller who resumes."""
    planner = agent(use("ask"), say("Done."))
    thread = store.thread("t", agent=planner)
    run = thread.start("Ask.")

    with working(store, planner):
        found = ended(thread, run)

    assert (found.state, [call.state for call in thread.calls()]) == ("succeeded", ["succeeded"])


def test_a_scheduled_input_is_run_when_it_is_due(store: Store) -> None:
    """Not before, and once by two workers."""
    thread = store.thread("t", agent=agent())
    due = datetime.now(UTC) + timedelta(seconds=0.5)
    run = thread.schedule("Later.", due, id="m1")

    assert store.work(agent(), until_idle=True) == 0
    with working(store, agent()), working(store, agent()):
        found = ended(thread, run)

    assert found.begun_at >= due.timestamp() * 1_000_000 - 1
    assert inputs(thread) == ["Later."]


def test_the_stores_clock_decides_what_is_due(tmp_path: Path) -> None:
    """A worker whose own clock is an hour ahead takes nothing early, and one that is behind takes it in time."""
    path = tmp_path / "store.db"
    late, early = (lambda: time.time_ns() // 1_000 - HOUR), (lambda: time.time_ns() // 1_000 + HOUR)
    with perdure.open(path, clock=late) as behind, perdure.open(path, clock=early) as ahead:
        thread = behind.thread("t", agent=agent())
        later = thread.schedule("In half an hour.", 1_800)
        now = thread.schedule("Now.", 0)

        assert ahead.work(agent(), until_idle=True) == 1
        assert (record_of(thread, later).state, record_of(thread, now).state) == ("created", "succeeded")
        thread.schedule("Now again.", timedelta(0))
        assert behind.work(agent(), until_idle=True) == 1


def test_an_undo_of_its_turn_cancels_a_timer(store: Store) -> None:
    """The run ends as cancelled when it is due; one that was set before the undone turn stays."""
    thread = store.thread("t", agent=agent())
    thread.run("First.")
    kept = thread.schedule("Kept.", 0)
    thread.run("Second.")
    gone = thread.schedule("Gone.", 0)
    thread.undo()

    store.work(agent(), until_idle=True)

    assert (record_of(thread, gone).state, record_of(thread, kept).state) == ("cancelled", "succeeded")
    assert inputs(thread) == ["First.", "Kept."]


def test_a_promotion_keeps_the_timers_of_main(store: Store) -> None:
    """What was undone before the promotion stays cancelled."""
    thread = store.thread("t", agent=agent())
    thread.run("First.")
    fork = thread.fork("better")
    thread.run("Second.")
    kept = thread.schedule("Kept.", 0)
    thread.run("Third.")
    gone = thread.schedule("Gone.", 0)
    thread.undo()
    fork.run("Other.")
    thread.promote("better")

    store.work(agent(), until_idle=True)

    assert (record_of(thread, gone).state, record_of(thread, kept).state) == ("cancelled", "succeeded")
    assert inputs(thread) == ["First.", "Other.", "Kept."]


def test_a_fork_does_not_have_the_timers_of_its_origin(store: Store) -> None:
    """The input comes to the timeline that it was scheduled on."""
    thread = store.thread("t", agent=agent())
    thread.run("First.")
    thread.schedule("Later.", 0)
    fork = thread.fork("what-if")

    store.work(agent(), until_idle=True)

    assert (inputs(thread), inputs(fork)) == (["First.", "Later."], ["First."])


@pytest.mark.parametrize("at", [datetime(2030, 1, 1), -1, "tomorrow", True])  # noqa: DTZ001
def test_what_is_no_moment_is_refused(store: Store, at: Any) -> None:
    """Nothing is queued."""
    thread = store.thread("t", agent=agent())

    with pytest.raises(Invalid):
        thread.schedule("Later.", at)

    assert thread.runs() == []


# ---- finding work


class CountedCells(CountingEngine):
    """An engine that notes how many cells each of its lists returns."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.cells_listed: dict[str, int] = {}  # the most of one list, by what is listed
        self.cells_in_all = 0

    def listed(self, **options: Any) -> Any:
        """List cells, and count them."""
        found = self._engine.listed(**options)
        kind = options["prefix"].partition("/")[0]
        self.cells_listed[kind] = max(len(found), self.cells_listed.get(kind, 0))
        self.cells_in_all += len(found)
        return found


def cells_read_by_a_look(monkeypatch: pytest.MonkeyPatch, waiting_runs: int) -> dict[str, int]:
    """How many listed cells a worker reads to take one queued run, beside so many runs that wait or are scheduled."""
    engines: list[CountedCells] = []
    real = registry.open_engine

    def wrapped(*args: Any, **options: Any) -> Any:
        engines.append(CountedCells(real(*args, **options)))
        return engines[-1]

    with monkeypatch.context() as patched:
        patched.setattr(registry, "open_engine", wrapped)
        with perdure.open("memory:") as store:
            for number in range(waiting_runs):
                asks = Agent("planner", backend=Script(use("send", to=number)), tools=[send])
                store.thread(f"w{number}", agent=asks).run("Send it.")
                store.thread(f"s{number}", agent=asks).schedule("Later.", 1_000)
            run = store.thread("t", agent=agent()).start("Hello.")
            engines[0].cells_listed.clear()
            store.work(agent(), until_idle=True)
            assert record_of(store.thread("t"), run).state == "succeeded"
            found = dict(engines[0].cells_listed)
            engines[0].cells_in_all = 0
            assert len(list(records.open_runs(cast("Engine", engines[0])))) == 2 * waiting_runs
            assert engines[0].cells_in_all >= 2 * waiting_runs  # control: a list of all runs reads more
            return found


def test_finding_work_costs_what_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that wait are not read at all, and of those that are scheduled one page at most."""
    few, many = cells_read_by_a_look(monkeypatch, 40), cells_read_by_a_look(monkeypatch, 120)

    assert (few["due"], few.get("waits")) == (many["due"], None)
    assert max(few["run"], many["run"]) <= 1


def test_runs_that_have_not_ended_are_listed_once(store: Store) -> None:
    """Queued, scheduled, and waiting with a deadline or without one."""
    one = store.thread("one", agent=agent(use("send", to=1)))
    one.run("Send it.")
    two = store.thread("two", agent=agent(use("nap")))
    two.run("Sleep.")
    store.thread("three", agent=agent()).start("Hello.")
    store.thread("four", agent=agent()).schedule("Hello.", 1_000)

    found = sorted(record.state for _, record in records.open_runs(engine_of(store)))

    assert found == ["created", "created", "waiting", "waiting"]


def test_the_awaitable_store_works_beside_its_loop(tmp_path: Path) -> None:
    """Cancelling the task drains the worker."""

    async def go() -> str:
        async with aio.open(tmp_path / "store.db") as store:
            thread = await store.thread("t", agent=agent())
            task = asyncio.create_task(store.work(agent()))
            run = await thread.start("Hello.")
            while (await thread.runs())[0].state != "succeeded":
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await thread.runs())[0].id if run else ""

    assert asyncio.run(go())


@pytest.mark.parametrize("given", [[], "planner", [agent(), "planner"], [agent(), agent()]])
def test_a_worker_is_given_agents(store: Store, given: Any) -> None:
    """Their tools are needed, so a name is not enough, and no two may have the same name."""
    with pytest.raises(Invalid):
        store.work(given)


def test_a_time_is_a_text_too(store: Store) -> None:
    """As at the command line: so long from now, or a moment, which is UTC without a zone; other words are refused."""
    thread = store.thread("trip", agent=Agent("planner", backend=Script(say("Done."))))

    for at in ("1h", "2100-01-31T09:00", "2100-01-31T09:00+01:00", timedelta(hours=1)):
        thread.schedule("later", at)
    for at in ("soon", "-1h", "h", "9" * 30 + "w", "", "9999-12-31T23:59-01:00", "0001-01-01T00:00+01:00"):
        with raises(Invalid, "time_invalid"):
            thread.schedule("later", at)

    assert [run.scheduled for run in thread.runs()] == [True] * 4
