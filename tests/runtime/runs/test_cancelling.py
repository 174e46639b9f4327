"""Cancelling a run: one that lives in another thread or process, one that waits, one that was cut off."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure import Agent, Call, Stop, Store, Thread, aio, errors
from perdure.model.run import ENDED
from perdure.runtime import event_loop
from perdure.runtime.run import control
from perdure.runtime.session.lease_keeper import HeldLease
from perdure.runtime.session.result import Result
from perdure.testing import Script, crash, say, step, use
from tests.crash.processes import Pipe, running


class Gate:
    """A tool that stands still until it is let go, and says that it is there."""

    def __init__(self, pause: float = 0.0) -> None:
        """Closed; each who passes takes so many seconds."""
        self.pause = pause
        self.inside, self.open = threading.Event(), threading.Event()
        self.calls = 0

    def tool(self) -> perdure.Tool:
        """The tool."""

        @perdure.tool(effect="read_only")
        def stand() -> str:
            self.calls += 1
            self.inside.set()
            self.open.wait()
            threading.Event().wait(self.pause)
            return "let go"

        return stand


@perdure.tool(effect="external_write", ask=True)
def pay(amount: int, call: Call) -> str:
    """Pay, if somebody agrees."""
    call.put("/paid.json", amount)
    return f"paid {amount}"


def in_background(thread: Thread, found: list[object]) -> threading.Thread:
    """Run the thread's agent elsewhere; what comes of it is put into `found`."""

    def go() -> None:
        try:
            found.append(thread.run("go"))
        except BaseException as error:  # it is looked at by the test
            found.append(error)

    background = threading.Thread(target=go)
    background.start()
    return background


def test_a_live_run_in_another_thread_stops_between_its_steps(store: Store) -> None:
    """What it was doing is recorded; it says why it ended; and nothing more is done."""
    gate = Gate(pause=0.02)
    script = Script(*[use("stand")] * 10_000)
    stop = Stop(steps=None)
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[gate.tool()], stop=stop))
    found: list[object] = []
    background = in_background(thread, found)
    gate.inside.wait()

    asked = store.thread("trip").cancel(why="enough")
    gate.open.set()
    background.join()

    (result,) = found
    assert isinstance(result, Result)
    assert asked.cancel == "enough"
    assert (result.status, result.why) == ("cancelled", "enough")
    assert [call.state for call in thread.calls()] == ["succeeded"] * gate.calls
    assert thread.log()[0].reason == "run_finished"


def test_without_a_request_the_same_run_goes_on(store: Store) -> None:
    """A control: nothing else stops it."""
    gate = Gate()
    gate.open.set()
    script = Script(*[use("stand")] * 5, say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[gate.tool()]))

    assert thread.run("go").status == "succeeded"


def test_a_run_that_ends_before_it_hears_is_what_it_is(store: Store) -> None:
    """The request comes while the last words are on their way: the run has succeeded, and says so."""
    gate = Gate()
    script = Script(use("stand"), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[gate.tool()]))
    found: list[object] = []
    background = in_background(thread, found)
    gate.inside.wait()

    store.thread("trip").cancel(why="too late")
    gate.open.set()
    background.join()

    (result,) = found
    assert isinstance(result, Result)
    assert result.status in ("succeeded", "cancelled")
    assert thread.runs()[0].state == result.status


def test_a_run_that_waits_is_ended_at_once(store: Store) -> None:
    """Its question is withdrawn, nobody can decide it any more, and the conversation says what became of it."""
    script = Script(use("pay", amount=3), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[pay]))
    waiting = thread.run("go")

    record = thread.cancel(why="changed my mind")

    assert (record.state, thread.approvals(), store.approvals()) == ("cancelled", [], [])
    assert [call.state for call in thread.calls()] == ["cancelled"]
    with pytest.raises(errors.Conflict):
        thread.decide(waiting.approvals[0].call, "approve")
    assert "cancelled" in str(thread.transcript()[-1].message.tool_results)
    assert thread.paths("/") == []


def test_a_run_of_a_fork_is_cancelled_from_anywhere(store: Store) -> None:
    """By its id, from a handle on main: it ends on its own line, and main is not touched."""
    agent = Agent("planner", backend=Script(use("pay", amount=3), say("Done.")), tools=[pay])
    main = store.thread("trip", agent=agent)
    main.put("/a.json", 1)
    main.fork("aside")
    waiting = store.thread("trip", agent=agent, timeline="aside").run("go")
    head = main.head

    record = main.cancel(waiting.run)

    assert record.state == "cancelled"
    assert main.head == head
    assert main.on("aside").log()[0].reason == "run_finished"


def test_cancelling_what_has_ended_changes_nothing(store: Store) -> None:
    """By its id the record is given back; without one there is nothing to cancel."""
    thread = store.thread("trip", agent=Agent("planner", backend=Script(say("Done."))))
    result = thread.run("go")
    head = thread.head

    assert thread.cancel(result.run).state == "succeeded"
    with pytest.raises(errors.NotFound):
        thread.cancel()
    assert thread.head == head


@pytest.mark.parametrize("effect", ["read_only", "external_write"])
def test_a_run_that_was_cut_off_is_ended_and_its_calls_are_settled(store: Store, effect: str) -> None:
    """What was never begun is cancelled or failed; what may have happened is unknown."""

    @perdure.tool(effect=effect)  # pyright: ignore[reportArgumentType]
    def cut() -> str:
        raise KeyboardInterrupt

    script = Script(use("cut"), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[cut]))
    with pytest.raises(KeyboardInterrupt):
        thread.run("go")

    record = thread.cancel()

    assert record.state == "cancelled"
    assert thread.calls()[0].state == ("failed" if effect == "read_only" else "unknown")
    assert len(thread.transcript()[-1].message.tool_results) == 1
    assert store.thread("trip", agent=Agent("planner", backend=Script(say("Next.")))).run("x").text == "Next."
    assert store.verify().ok


def test_cancelling_the_task_that_awaits_a_run_ends_the_run(store_url: str) -> None:
    """At any moment: whatever it was doing is recorded, and the run has ended when the task has."""

    async def main(after: int) -> str:
        async with aio.open(store_url) as store:
            name = f"trip-{after}"
            script = Script(step(use("pay", amount=after), use("nap")), *[use("nap")] * 3, say("Done."))
            agent = Agent("planner", backend=script, tools=[pay, nap])
            thread = await store.thread(name, agent=agent)
            task = asyncio.create_task(thread.run("go"))
            for _ in range(after):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,))
            runs = await thread.runs()
            assert all(run.state in ENDED or run.state == "waiting" for run in runs)
            again = await store.thread(name, agent=Agent("planner", backend=Script(say("Next."))))
            assert (await again.run("again")).text == "Next."
            return runs[0].state if runs else "none"

    seen = {asyncio.run(main(after)) for after in range(1, 60, 3)}

    assert "failed" in seen
    with perdure.open(store_url) as store:
        assert store.verify().ok


@perdure.tool(effect="read_only")
async def nap() -> str:
    """Let others do something."""
    await asyncio.sleep(0)
    return "slept"


def _own(pipe: Pipe, path: str) -> None:
    """Run the agent in this process until somebody stops it."""

    @perdure.tool(effect="read_only")
    def wait(q: int) -> str:
        threading.Event().wait(0.05)
        if q == 0:
            pipe.send("inside")
        return f"waited {q}"

    script = Script(*[use("wait", q=q) for q in range(10_000)])
    agent = Agent("planner", backend=script, tools=[wait], stop=Stop(steps=None))
    with perdure.open(path, durability="process_crash") as store:
        pipe.send(store.thread("trip", agent=agent).run("go").status)


def test_a_live_run_in_another_process_stops(tmp_path: Path) -> None:
    """The request is durable; the owner sees it within its next looks."""
    path = str(tmp_path / "agents.db")
    with running(_own, path) as owner, perdure.open(path, durability="process_crash") as store:
        assert owner.answer() == "inside"

        asked = store.thread("trip").cancel(why="enough")

        assert asked.state in ("running", "cancelled")  # the owner may have been as fast
        assert owner.answer() == "cancelled"
        assert store.thread("trip").runs()[0].state == "cancelled"


def test_a_run_that_ends_while_it_is_asked_to_stop_has_ended(store: Store) -> None:
    """Its own process was as fast as the one that asked, which finds the run as it ended."""
    thread = store.thread("trip", agent=Agent("planner", backend=Script(say("Done."))))
    thread.run("go")
    ended = thread.runs()[0]
    as_asked = msgspec.structs.replace(ended, state="running", cancel="enough")

    found = event_loop.drive(control.end_cancelled(thread._env(), as_asked))  # pyright: ignore[reportPrivateUsage]

    assert found == ended


def _die(pipe: Pipe, path: str) -> None:
    """Run the agent and be killed after a tool's effect."""

    @perdure.tool(effect="external_write")
    def send() -> str:
        return "sent"

    agent = Agent("planner", backend=Script(crash("after_effect"), use("send"), say("Done.")), tools=[send])
    with perdure.open(path, durability="process_crash") as store:
        store.thread("trip", agent=agent).run("go")


def test_a_run_whose_process_was_killed_is_cancelled_by_another(tmp_path: Path) -> None:
    """It needs neither its agent's tools nor its model to end."""
    path = str(tmp_path / "agents.db")
    with running(_die, path) as owner:
        owner.process.join()

    with perdure.open(path) as store:
        record = store.thread("trip").cancel(why="its process is gone")

        assert record.state == "cancelled"
        assert [call.state for call in store.thread("trip").calls()] == ["unknown"]
        assert store.verify().ok


def _sending() -> Agent:
    """An agent that sends, looks and asks in one step."""

    @perdure.tool(effect="external_write")
    def send(to: str) -> str:
        return "sent"

    @perdure.tool(effect="read_only")
    def look() -> str:
        return "seen"

    @perdure.tool(effect="external_write", ask=True)
    def ask() -> str:
        return "asked"

    calls = step(use("send", to="ann"), use("send", to="bob"), use("look"), use("ask"))
    script = Script(crash("after_started"), calls, say("Done."))
    return Agent("planner", backend=script, tools=[send, look, ask])


def _die_beside_others(pipe: Pipe, path: str) -> None:
    """Run an agent that sends, looks and asks, and be killed before the first tool is called."""
    with perdure.open(path, durability="process_crash") as store:
        store.thread("trip", agent=_sending()).run("go")


def test_what_a_cancelled_run_leaves_is_told_the_same_without_its_tools(tmp_path: Path) -> None:
    """A tool that is not declared where a run is cancelled is no reason for anything."""
    paths = [tmp_path / "with.db", tmp_path / "without.db"]
    told: list[object] = []

    for path, agent in zip(paths, (_sending(), None), strict=True):
        with running(_die_beside_others, str(path)) as owner:
            owner.process.join()
        with perdure.open(path) as store:
            thread = store.thread("trip", agent=agent)
            thread.cancel(why="enough")
            states = {call.tool: call.state for call in thread.calls()}
            results = [entry.message.tool_results for entry in thread.transcript()]
            told.append((states, [(each.status, each.content) for found in results for each in found]))

    assert told[0] == told[1]


def cancelling(store: Store, effects: list[str], *, cut_off: bool) -> Agent:
    """An agent that pays after its own run was asked to stop; if `cut_off`, its process ends right after the request."""

    @perdure.tool(effect="read_only")
    def stop() -> str:
        store.thread("trip").cancel(by="ann")
        if cut_off:
            raise KeyboardInterrupt
        return "asked"

    @perdure.tool(effect="financial")
    def spend() -> str:
        effects.append("paid")
        return "paid"

    script = Script(use("stop"), use("spend"), say("Done."))
    return Agent("planner", backend=script, tools=[stop, spend])


def test_no_call_is_started_once_a_cancel_has_returned(store: Store) -> None:
    """The run looks at its record before it starts calls, not only when its lease is renewed."""
    effects: list[str] = []
    thread = store.thread("trip", agent=cancelling(store, effects, cut_off=False))

    result = thread.run("go")

    assert (result.status, effects) == ("cancelled", [])
    assert thread.runs()[0].cancelled_by == "ann"


@pytest.mark.parametrize("how", ["resume", "same id", "store"])
def test_a_cancel_outlives_the_process_that_was_to_hear_it(store: Store, how: str) -> None:
    """Whichever way the run is taken over, it ends, and nothing is paid."""
    effects: list[str] = []
    agent = cancelling(store, effects, cut_off=True)
    thread = store.thread("trip", agent=agent)
    with pytest.raises(KeyboardInterrupt):
        thread.run("go", id="msg-1")

    if how == "resume":
        thread.resume()
    elif how == "same id":
        thread.run("go", id="msg-1")
    else:
        store.resume(agent)

    assert (thread.runs()[0].state, effects) == ("cancelled", [])


def test_a_request_that_is_heard_when_the_run_has_ended_stops_nothing_else(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one who gives the input again finishes the run, hears of the request late, and still gets the result."""
    thread = store.thread("trip", agent=cancelling(store, [], cut_off=True))
    with pytest.raises(KeyboardInterrupt):
        thread.run("go", id="msg-1")
    release = HeldLease.release

    def hear_late(held: HeldLease) -> None:
        held.cancel("late")
        release(held)

    monkeypatch.setattr(HeldLease, "release", hear_late)
    result = thread.run("go", id="msg-1")

    assert (result.status, thread.runs()[0].cancelled_by) == ("cancelled", "ann")


def test_what_a_signal_handler_raises_ends_the_run_like_an_interruption(store: Store) -> None:
    """Else the run would be continued by the next one on this thread, and its lease renewed for ever."""

    class Deadline(Exception):
        pass

    def expire(*_: object) -> None:
        raise Deadline

    @perdure.tool(effect="read_only")
    async def wait() -> str:
        signal.raise_signal(signal.SIGALRM)
        await asyncio.sleep(60)
        return "never"

    before = signal.signal(signal.SIGALRM, expire)
    try:
        thread = store.thread("trip", agent=Agent("planner", backend=Script(use("wait")), tools=[wait]))
        with pytest.raises((Deadline, errors.RunFailed)):
            thread.run("go")
    finally:
        signal.signal(signal.SIGALRM, before)

    assert thread.runs()[0].state in ENDED
    assert store.thread("other", agent=Agent("other", backend=Script(say("Hi.")))).run("x").text == "Hi."
