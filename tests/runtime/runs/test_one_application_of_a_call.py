"""What a call by hand changes is applied by one commit, whichever process makes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Call, Outcome, Store, Thread, errors
from perdure.engines.sqlite import SqliteEngine
from perdure.model.event import ConflictCovered, ToolCallCompleted, ToolCallSuspended
from perdure.runtime import failpoints
from perdure.runtime.calls import direct_call
from perdure.testing import Script, say, step, use
from tests.crash.processes import Other, Pipe, running

WAIT_SECONDS = 60.0  # only turns a hang into a failure


def events_of(
    thread: Thread, kind: type[ConflictCovered | ToolCallCompleted | ToolCallSuspended]
) -> list[str]:
    """The calls, or paths, that events of that kind on the line name, oldest first."""
    events = [event for each in reversed(thread.log()) for event in each.events]
    found = [event for event in events if isinstance(event, kind)]
    return [event.path if isinstance(event, ConflictCovered) else event.call for event in found]


def _make(pipe: Pipe, path: str) -> None:
    """Make a call that stops in its tool until it is told to go on; then end."""

    @perdure.tool(effect="external_write")
    def wire(call: Call) -> str:
        pipe.send("inside")
        pipe.recv()
        call.put("/p.json", "A")
        return "wired"

    with perdure.open(path) as store:
        store.thread("trip", agent="planner").call(wire, {}, id="c1")


@perdure.tool(effect="external_write")
def wire(call: Call) -> str:
    """Stand for the tool of the other process; it must never run here."""
    call.put("/p.json", "again")
    return "wired again"


def end_between(monkeypatch: pytest.MonkeyPatch, other: Other, act: Callable[[], object]) -> None:
    """Let the other process commit and end, then do `act`, after its call was read as started here."""
    asked = SqliteEngine.gone

    def gone(self: SqliteEngine, holder: str) -> bool:
        if other.process.is_alive():
            other.tell("go on")
            other.process.join()
            act()
        return asked(self, holder)

    monkeypatch.setattr(SqliteEngine, "gone", gone)


def test_a_write_after_a_call_is_not_covered_by_one_who_read_the_call_as_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B reads `started`, A commits and ends, C writes the same path, B goes on: C's write stands."""
    path = str(tmp_path / "agents.db")
    with running(_make, path) as other, perdure.open(path) as store:
        other.answer()
        thread = store.thread("trip", agent="planner")
        end_between(monkeypatch, other, lambda: store.thread("trip").put("/p.json", "C"))

        result = thread.call(wire, {}, id="c1")

        assert (result.state, result.text) == ("succeeded", "wired")
        assert thread.get("/p.json") == "C"
        assert [each.reason for each in reversed(thread.log())][:1] == ["call"]
        assert events_of(thread, ToolCallCompleted) == ["c1"]
        assert store.verify().ok


def test_without_a_write_between_the_same_interleaving_makes_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, where nothing would be lost: there is still one commit of the call."""
    path = str(tmp_path / "agents.db")
    with running(_make, path) as other, perdure.open(path) as store:
        other.answer()
        thread = store.thread("trip", agent="planner")
        end_between(monkeypatch, other, lambda: None)

        thread.call(wire, {}, id="c1")

        assert [each.reason for each in thread.log()] == ["call"]


@pytest.mark.parametrize("known", [True, False])
def test_asking_again_for_an_unknown_call_writes_nothing(store: Store, *, known: bool) -> None:
    """Neither a commit nor an entry, whether its tool has no hook or the hook does not know."""

    @perdure.tool(effect="external_write")
    def shaky() -> str:
        raise TimeoutError

    if known:
        shaky.reconcile(lambda call: call.dont_know())
    thread = store.thread("trip", agent="planner")
    first = thread.call(shaky, {}, id="c1")
    head, trace = thread.head, thread.trace("c1")

    again = [thread.call(shaky, {}, id="c1") for _ in range(2)]

    assert first.state == ("needs_human" if known else "unknown")
    assert [each.state for each in again] == [first.state] * 2
    assert (thread.head, thread.trace("c1")) == (head, trace)


def test_a_call_that_waits_beside_a_run_says_so_once(store: Store) -> None:
    """Its commit belongs to the run's turn; asked for again it writes nothing."""

    @perdure.tool(effect="external_write", ask=True)
    def pay() -> str:
        return "paid"

    @perdure.tool(effect="read_only")
    def visit() -> str:
        for _ in range(3):
            store.thread("trip").call(pay, {}, id="c1")
        return "visited"

    script = Script(use("visit"), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[visit]))

    thread.run("go")

    assert events_of(thread, ToolCallSuspended) == ["c1"]


def test_who_loses_the_race_to_enter_a_call_is_told_that_it_is_under_way(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both found no such call; one enters it, and the other gets `Busy`, as the second caller always does."""
    inside, go_on = threading.Event(), threading.Event()

    @perdure.tool(effect="external_write")
    def slow() -> str:
        inside.set()
        go_on.wait(WAIT_SECONDS)
        return "slow"

    thread = store.thread("trip", agent="planner")
    first = threading.Thread(target=thread.call, args=(slow, {}), kwargs={"id": "c1"})
    planned = direct_call.plan

    def overtaken(*given: object, **more: object) -> object:
        if not first.ident:
            first.start()
            inside.wait(WAIT_SECONDS)
        return planned(*given, **more)  # pyright: ignore[reportCallIssue, reportArgumentType]

    monkeypatch.setattr(direct_call, "plan", overtaken)
    with pytest.raises(errors.Busy):
        thread.call(slow, {}, id="c1")
    go_on.set()
    first.join()

    assert [call.state for call in thread.calls()] == ["succeeded"]


def test_a_call_whose_commit_meets_a_new_run_is_committed_once(store: Store) -> None:
    """A run begins just before the commit, which then belongs to its turn; asked for again nothing is written."""
    begun: list[str] = []
    script = Script(*[say("Hello.")] * 2)
    thread = store.thread("trip", agent=Agent("planner", backend=script))

    @perdure.tool(effect="external_write")
    def note(call: Call) -> str:
        call.put("/p.json", "call")
        return "noted"

    def begin() -> None:
        if not begun:
            begun.append("once")
            store.thread("trip", agent=Agent("planner", backend=script)).run("hello")

    failpoints.arm("while_recording", begin)
    try:
        thread.call(note, {}, id="c1")
    finally:
        failpoints.disarm()
    thread.put("/p.json", "later")
    thread.call(note, {}, id="c1")

    assert events_of(thread, ToolCallCompleted) == ["c1"]
    assert thread.get("/p.json") == "later"


def test_a_patch_that_is_applied_late_names_what_it_covers(store: Store) -> None:
    """The line went back while the tool ran; what others wrote to the path until it is applied is named."""
    thread = store.thread("trip", agent="planner")
    thread.put("/title.json", "Trip")

    @perdure.tool(effect="external_write")
    def mark(call: Call) -> str:
        call.put("/p.json", "call")
        thread.undo()
        return "marked"

    with pytest.raises(errors.StaleHead):
        thread.call(mark, {}, id="c1")
    thread.put("/p.json", "other")

    thread.call(mark, {}, id="c1")

    assert thread.get("/p.json") == "call"
    assert events_of(thread, ConflictCovered) == ["/p.json"]


def _run_and_die(pipe: Pipe, path: str) -> None:
    """Run two calls side by side and be killed when the first is in the ledger."""
    import os
    import signal

    failpoints.arm("after_result", lambda: os.kill(os.getpid(), signal.SIGKILL))
    with perdure.open(path, durability="process_crash") as store:
        store.thread("trip", agent=noting()).run("go")


def noting() -> Agent:
    """An agent whose one round writes two paths by two calls."""

    @perdure.tool(effect="local_write", idempotent=True)
    def note(path: str, call: Call) -> str:
        call.put(path, "run")
        return "noted"

    both = step(use("note", path="/p.json"), use("note", path="/q.json"))
    return Agent("planner", backend=Script(both, say("Done.")), tools=[note])


def test_a_run_that_goes_on_names_what_its_patch_covers(tmp_path: Path) -> None:
    """Its process was killed between the ledger and the commit, and another wrote the path meanwhile."""
    path = str(tmp_path / "agents.db")
    with running(_run_and_die, path) as owner:
        owner.process.join()
    with perdure.open(path) as store:
        thread = store.thread("trip", agent=noting())
        settled = [call for call in thread.calls() if call.state == "succeeded"]
        for name in ("/p.json", "/q.json"):
            thread.put(name, "other")

        thread.resume()

        assert len(settled) == 1
        assert len(events_of(thread, ConflictCovered)) == 1
        assert store.verify().ok


def test_a_call_of_a_run_is_not_carried_out_by_hand(store: Store) -> None:
    """It would be applied by both; the run that requested it goes on with it, and applies it once."""

    @perdure.tool(effect="external_write", ask=True)
    def pay(call: Call) -> str:
        call.put("/paid.json", True)
        return "paid"

    script = Script(use("pay"), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[pay]))
    waiting = thread.run("go")
    call = waiting.approvals[0].call
    thread.decide(call, "approve", by="ann")

    with pytest.raises(errors.Conflict):
        thread.call(pay, {}, id=call)
    thread.resume()

    assert events_of(thread, ToolCallCompleted) == [call]
    assert thread.call(pay, {}, id=call).text == "paid"


def test_a_hook_that_knows_settles_an_unknown_call_once(store: Store) -> None:
    """Both of two later callers get the result; one commit applies what the hook wrote."""

    @perdure.tool(effect="external_write")
    def shaky() -> str:
        raise TimeoutError

    answers: list[bool] = []

    @shaky.reconcile
    def look(call: Call) -> Outcome:  # pyright: ignore[reportUnusedFunction]
        if not answers:
            return call.dont_know()
        call.put("/p.json", "found")
        return call.done("found")

    thread = store.thread("trip", agent="planner")
    thread.call(shaky, {}, id="c1")
    answers.append(True)

    found = [thread.call(shaky, {}, id="c1").text for _ in range(2)]

    assert found == ["found", "found"]
    assert [each.reason for each in thread.log()] == ["call", "call"]
