"""A tool runs another agent with `call.run`: one child for each call and ordinal, whatever happens in between."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Call, Stop, Store, aio
from perdure.errors import Conflict, Invalid, NotFound, PerdureError, RunFailed, Unavailable
from perdure.ledger import repeat_guard
from perdure.model.context import Context
from perdure.model.effect import Effect
from perdure.model.message import Text
from perdure.providers.contract import ModelEvent
from perdure.runtime.run.child import CHILD_DEPTH_MAX, cancel_all
from perdure.runtime.session.environment import RunEnvironment, StoreRuntime
from perdure.runtime.session.lease_keeper import LeaseKeeper
from perdure.testing import Script, crash, fail, say, step, use
from perdure.testing.script import ScriptStep
from tests.coded import raises

paid: list[str] = []


@perdure.tool(effect="external_write")
def pay(to: str) -> str:
    """Pay."""
    paid.append(to)
    return f"paid {to}"


@perdure.tool(effect="external_write", ask=True)
def refund(to: str) -> str:
    """Refund, if a person approves."""
    paid.append(f"refund {to}")
    return f"refunded {to}"


def delegating(child: Agent, *, thread: str | None = None) -> Agent:
    """Return a parent whose one tool runs `child`."""

    @perdure.tool(effect="none")
    def delegate(task: str, call: Call) -> str:
        """Let another agent do it."""
        return f"it said: {call.run(child, task, thread=thread).text}"

    return Agent("parent", backend=Script(use("delegate", task="go"), say("Done.")), tools=[delegate])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store, before any payment."""
    paid.clear()
    with perdure.open(tmp_path / "agents.db") as opened:
        yield opened


def told(thread: perdure.Thread) -> list[str]:
    """Return what the model was told of its calls."""
    results = [result for entry in thread.transcript() for result in entry.message.tool_results]
    return ["".join(block.text for block in each.content if isinstance(block, Text)) for each in results]


def child_threads(store: Store) -> list[str]:
    """Return the threads of the children."""
    return [thread.id for thread in store.threads(agent="child")]


def test_a_tool_runs_another_agent_on_a_thread_of_its_own(store: Store) -> None:
    """The child's result is the tool's; its run names its parent, and its thread begins with the parent's id."""
    child = Agent("child", backend=Script(say("Hello.")))
    thread = store.thread("t", agent=delegating(child), owner="ann")

    result = thread.run("go")
    (inner,) = store.threads(agent="child")
    (record,) = inner.runs()

    assert result.text == "Done."
    assert [entry.message.text for entry in inner.transcript()] == ["go", "Hello."]
    assert inner.id.startswith("t/delegate-")
    assert (inner.owner, record.parent_run) == ("ann", result.run)
    assert record.parent is not None
    assert (record.parent.thread, record.parent.depth) == ("t", 1)
    assert store.verify().ok


def test_an_async_tool_awaits_its_children_side_by_side(store: Store) -> None:
    """Two children of one call have two threads, and both results arrive."""

    @perdure.tool(effect="none")
    async def both(call: Call) -> list[str]:
        """Ask two agents at once."""
        one = call.run(Agent("child", backend=Script(say("One."))), "first")
        two = call.run(Agent("child", backend=Script(say("Two."))), "second")
        return [each.text for each in await asyncio.gather(one, two)]

    thread = store.thread("t", agent=Agent("p", backend=Script(use("both"), say("Done.")), tools=[both]))
    thread.run("go")

    assert len(child_threads(store)) == 2
    assert told(thread) == ['["One.","Two."]']


def test_the_awaitable_face_runs_children_too(tmp_path: Path) -> None:
    """A plain tool on a worker thread and an awaited one both run a child."""
    child = Agent("child", backend=Script(say("Hello.")))

    @perdure.tool(effect="none")
    def plain(call: Call) -> str:
        """Ask, blocking."""
        return str(call.run(child, "go").text)

    @perdure.tool(effect="none")
    async def awaited(call: Call) -> str:
        """Ask, awaiting."""
        return str((await call.run(child, "go")).text)

    async def main() -> None:
        async with aio.open(tmp_path / "agents.db") as store:
            script = Script(use("plain"), use("awaited"), say("Done."))
            thread = await store.thread("t", agent=Agent("p", backend=script, tools=[plain, awaited]))
            await thread.run("go")

    asyncio.run(main())

    with perdure.open(tmp_path / "agents.db") as store:
        assert told(store.thread("t")) == ["Hello.", "Hello."]


def test_a_named_thread_goes_on_from_run_to_run(store: Store) -> None:
    """Two calls that name one thread are two turns of it."""
    child = Agent("child", backend=Script(say("One."), say("Two.")))
    parent = delegating(child, thread="helper")
    store.thread("a", agent=parent).run("go")
    store.thread("b", agent=delegating(child, thread="helper")).run("go")

    said = [entry.message.text for entry in store.thread("helper").transcript()]

    assert said == ["go", "One.", "go", "Two."]


@pytest.mark.parametrize(
    ("agent", "owner", "code"),
    [("other", "ann", "thread_of_another_agent"), ("child", "bob", "thread_of_another_owner")],
)
def test_a_thread_of_another_agent_or_owner_is_refused(
    store: Store, agent: str, owner: str, code: str
) -> None:
    """A child gets no conversation that is not its own: the call fails, and nothing is said there."""
    store.thread("theirs", agent=Agent(agent, backend=Script(say("Secret."))), owner=owner).run("hi")
    before = store.thread("theirs").head
    errors: list[PerdureError] = []

    @perdure.tool(effect="none")
    def delegate(call: Call) -> str:
        """Try."""
        try:
            return str(call.run(Agent("child", backend=Script(say("Hi."))), "go", thread="theirs").text)
        except Conflict as error:
            errors.append(error)
            raise

    parent = Agent("p", backend=Script(use("delegate"), say("Done.")), tools=[delegate])
    store.thread("t", agent=parent, owner="ann").run("go")

    assert [error.code for error in errors] == [code]
    assert store.thread("theirs").head == before


def test_a_thread_with_an_owner_is_refused_to_a_parent_without_one(store: Store) -> None:
    """No owner is not any owner."""
    store.thread("theirs", agent=Agent("child", backend=Script(say("Hi."))), owner="bob").run("hi")
    parent = delegating(Agent("child", backend=Script(say("Hi."))), thread="theirs")

    store.thread("t", agent=parent).run("go")

    (call,) = store.thread("t").calls()
    assert call.state == "failed"
    assert "another owner" in (call.why or "")


def test_children_of_children_end_at_a_depth(store: Store) -> None:
    """An agent that runs itself is stopped before it fills the store."""
    errors: list[PerdureError] = []

    def nested() -> Agent:
        @perdure.tool(effect="none")
        def deeper(call: Call) -> str:
            """Go deeper."""
            try:
                return str(call.run(nested(), "deeper").text)
            except Invalid as error:
                errors.append(error)
                raise

        return Agent("child", backend=Script(use("deeper"), say("Up.")), tools=[deeper])

    result = store.thread("t", agent=nested()).run("go")

    assert result.text == "Up."
    assert [error.code for error in errors] == ["children_too_deep"]
    assert len(child_threads(store)) == CHILD_DEPTH_MAX + 1


def test_a_call_without_a_run_cannot_run_an_agent(store: Store) -> None:
    """A direct call has no run that a child could belong to."""

    @perdure.tool(effect="none")
    def delegate(call: Call) -> str:
        """Try."""
        return str(call.run(Agent("child", backend=Script(say("Hi."))), "go").text)

    made = store.thread("t", agent=Agent("p")).call(delegate, {}, id="c1")

    assert made.state == "failed"
    assert child_threads(store) == []


def test_a_failed_child_raises_in_the_tool(store: Store) -> None:
    """The tool may catch it, and the parent goes on."""
    seen: list[str] = []

    @perdure.tool(effect="none")
    def delegate(call: Call) -> str:
        """Try, and say what happened."""
        try:
            call.run(Agent("child", backend=Script(fail())), "go")
        except RunFailed as failed:
            seen.append(str(getattr(failed.run, "status", "")))
        return "no luck"

    parent = Agent("p", backend=Script(use("delegate"), say("Done.")), tools=[delegate])

    assert store.thread("t", agent=parent).run("go").text == "Done."
    assert seen == ["failed"]


# ---- crashes: the repeated tool finds the same child


def _killed(path: Path, point: str, where: str) -> None:
    def go() -> None:
        child, parent = _killable(where, point)
        with perdure.open(path) as store:
            store.thread("t", agent=_with_tool(parent, child)).run("go", id="m1")

    _killed_in(go)


def _killed_in(go: Callable[[], None]) -> None:
    process = get_context("fork").Process(target=go)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def _killable(where: str, point: str) -> tuple[Script, Script]:
    bomb = [crash(point)] if point else []  # pyright: ignore[reportArgumentType]
    child = Script(*(bomb if where == "child" else []), use("log_payment", to="bob"), say("Paid."))
    parent = Script(*(bomb if where == "parent" else []), use("delegate"), say("Done."))
    return child, parent


def _with_tool(parent: Script, child: Script, made: list[Agent] | None = None) -> Agent:
    @perdure.tool(effect="external_write", key="pay-{to}")
    def log_payment(to: str) -> str:
        """Pay, and leave a trace that survives the process."""
        with open(os.environ["PAYMENTS"], "a") as file:
            file.write(f"{to}\n")
        return "paid"

    @log_payment.reconcile
    def find(call: Call) -> perdure.Outcome:
        text = Path(os.environ["PAYMENTS"]).read_text() if Path(os.environ["PAYMENTS"]).exists() else ""
        return call.done("paid") if call.arguments["to"] in text else call.not_done()

    paying = Agent("child", backend=child, tools=[log_payment])
    if made is not None:
        made.append(paying)

    @perdure.tool(effect="none")
    def delegate(call: Call) -> str:
        """Let another agent pay."""
        return str(call.run(paying, "pay bob").text)

    return Agent("parent", backend=parent, tools=[delegate])


@pytest.mark.skipif(sys.platform == "win32", reason="it kills a forked process")
@pytest.mark.parametrize(
    ("where", "point"),
    [
        ("child", "before_intent"),
        ("child", "after_intent"),
        ("child", "after_started"),
        ("child", "after_effect"),
        ("child", "after_turn"),
        ("child", "after_finish"),
        ("parent", "after_effect"),
        ("parent", "before_finish"),
    ],
)
def test_killed_anywhere_the_child_pays_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, point: str
) -> None:
    """Between any two writes of child and parent: the resumed parent ends, with one child and one payment."""
    trace = tmp_path / "payments"
    monkeypatch.setenv("PAYMENTS", str(trace))
    _killed(tmp_path / "agents.db", point, where)

    child, parent = _killable("", "")
    agent = _with_tool(parent, child)
    with perdure.open(tmp_path / "agents.db") as store:
        result = store.thread("t", agent=agent).run("go", id="m1")
        children = child_threads(store)
        faults = store.verify().faults

    assert result.text == "Done."
    assert (trace.read_text(), len(children), faults) == ("bob\n", 1, ())


class _LateModel:
    """A model that takes so long that the lease of its own run ends meanwhile, and only that one."""

    backend = "script:late"

    def __init__(self, keeper: LeaseKeeper, *, times: int) -> None:
        self._keeper, self._times, self._script = keeper, times, Script(use("look"), say("Found."))

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """End the lease of the youngest run, and say what the script says."""
        if self._times > 0 and context.messages[-1].role == "user":
            self._times -= 1
            youngest = list(self._keeper._kept.values())[-1]  # pyright: ignore[reportPrivateUsage]
            youngest.renewed(youngest.lease, 0.0)
        async for event in self._script.step(context):
            yield event


@pytest.mark.parametrize("times", [1, 3])
def test_a_child_that_loses_its_lease_goes_on_while_its_parent_has_its_own(
    tmp_path: Path, times: int
) -> None:
    """The parent's tool waits for whoever goes on with the child; that no process holds it is no failure of the tool."""

    @perdure.tool(effect="read_only")
    def look() -> str:
        """Look something up."""
        return "found"

    with perdure.open(tmp_path / "agents.db") as store:
        keeper = LeaseKeeper()
        store._resources.runtimes.append(StoreRuntime(keeper))  # pyright: ignore[reportPrivateUsage]
        child = Agent("child", backend=_LateModel(keeper, times=times), tools=[look])
        thread = store.thread("t", agent=delegating(child))

        result = thread.run("go")

        assert result.text == "Done."
        assert told(thread) == ["it said: Found."]
        assert [call.state for call in thread.calls()] == ["succeeded"]
        assert len(child_threads(store)) == 1


def _resumed_as(way: str, store: Store, agent: Agent, parent: Agent) -> None:
    """Let the children go on in one of the ways there are."""
    if way == "store":
        store.resume(agent)
    elif way == "thread":
        store.thread(child_threads(store)[0], agent=agent).resume()
    else:
        store.work([agent, parent], until_idle=True)


@pytest.mark.skipif(sys.platform == "win32", reason="it kills a forked process")
@pytest.mark.parametrize("way", ["store", "thread", "worker"])
@pytest.mark.parametrize("ended", [True, False])
def test_a_child_ends_with_the_call_that_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, ended: bool
) -> None:
    """Once the parent was told that the call failed, its orphan is cancelled; while the call is open it goes on."""
    trace = tmp_path / "payments"
    monkeypatch.setenv("PAYMENTS", str(trace))
    _killed(tmp_path / "agents.db", "before_intent", "child")
    child, parent = _killable("", "")
    agents: list[Agent] = []
    whole = _with_tool(parent, child, agents)

    with perdure.open(tmp_path / "agents.db") as store:
        if ended:  # the next release has no such tool
            store.thread("t", agent=Agent("parent", backend=Script(say("-"), say("Too bad.")))).resume()
        _resumed_as(way, store, agents[0], whole)
        if not ended:
            assert store.thread("t", agent=whole).run("go", id="m1").text == "Done."
        (run,) = store.thread(child_threads(store)[0]).runs()

    if ended:
        assert (run.state, run.cancel) == ("cancelled", "its parent has succeeded")
        assert not trace.exists()
    else:
        assert (run.state, trace.read_text()) == ("succeeded", "bob\n")


@pytest.mark.skipif(sys.platform == "win32", reason="it kills a forked process")
def test_a_child_whose_thread_was_removed_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child may have paid before its thread went, so the outcome of the repeated call is unknown."""
    trace = tmp_path / "payments"
    monkeypatch.setenv("PAYMENTS", str(trace))
    _killed(tmp_path / "agents.db", "after_effect", "parent")
    child, parent = _killable("", "")

    with perdure.open(tmp_path / "agents.db") as store:
        inner = store.thread(child_threads(store)[0])
        inner.cancel()
        inner.rm(force=True)
        thread = store.thread("t", agent=_with_tool(parent, child))
        thread.resume()
        states = {call.tool: call.state for call in thread.calls()}

        assert states["delegate"] == "unknown"
        assert (trace.read_text(), child_threads(store)) == ("bob\n", [])
        assert "It may have happened" in told(thread)[0]
        assert store.verify().ok


@pytest.mark.skipif(sys.platform == "win32", reason="it kills a forked process")
@pytest.mark.parametrize(
    ("point", "state"),
    [("after_effect", "unknown"), ("after_turn", "succeeded"), ("after_finish", "succeeded")],
)
def test_the_roots_ledger_says_what_became_of_the_payment_of_a_child_whose_parent_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, state: str
) -> None:
    """No process of the parent goes on after the kill, so none of them copies the outcome."""
    monkeypatch.setenv("PAYMENTS", str(tmp_path / "payments"))
    _killed(tmp_path / "agents.db", point, "child")

    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t")
        thread.cancel(why="enough")
        (own,) = store.thread(child_threads(store)[0]).calls()
        copied = [call.state for call in thread.calls() if call.origin == "child"]

    assert own.state == state
    assert copied == [state]


@pytest.mark.skipif(sys.platform == "win32", reason="it kills a forked process")
@pytest.mark.parametrize("how", ["resume", "worker"])
def test_a_parent_that_ends_after_a_kill_ends_its_child(tmp_path: Path, how: str) -> None:
    """The process that ends the parent need not have the child's agent, and no worker may have it."""
    path = tmp_path / "agents.db"

    def go() -> None:
        with perdure.open(path) as store:

            @perdure.tool(effect="external_write")
            def stop() -> None:
                store.thread("t").cancel(why="enough")
                os.kill(os.getpid(), signal.SIGKILL)

            child = Agent("child", backend=Script(use("stop")), tools=[stop])
            store.thread("t", agent=delegating(child)).run("go")

    _killed_in(go)
    agent = delegating(Agent("child", backend=Script()))
    with perdure.open(path) as store:
        if how == "resume":
            store.thread("t", agent=agent).resume()
        else:
            store.work(agent, until_idle=True)
        runs = [(run.state, run.cancel) for each in store.threads() for run in each.runs()]
        calls = {call.state for each in store.threads() for call in each.calls() if call.tool == "stop"}

    assert runs == [("cancelled", "enough")] * 2
    assert calls == {"unknown"}


@pytest.mark.skipif(sys.platform == "win32", reason="it kills a forked process")
def test_a_bounded_child_leaves_a_run_that_was_cut_off_on_its_thread(tmp_path: Path) -> None:
    """The child runs on a fork of the named thread, makes no payment, and the order there is paid when it is resumed."""
    paid.clear()

    def order() -> None:
        script = Script(crash("before_intent"), use("pay", to="bob"))
        with perdure.open(tmp_path / "agents.db") as store:
            store.thread("s", agent=Agent("child", backend=script, tools=[pay])).run("Pay bob.", id="order")

    _killed_in(order)
    script = Script(use("pay", to="bob"), say("Said."), use("pay", to="eve"), say("Said."))
    child = Agent("child", backend=script, tools=[pay])
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=delegating(child, thread="s"))
        thread.change("begin")
        thread.fork("look", effect_max="read_only").run("go")
        named = store.thread("s", agent=child)
        (on_fork,) = [run for run in named.runs() if run.parent is not None]
        assert (paid, on_fork.effect_max) == ([], "read_only")
        named.resume()
        (ordered,) = [run for run in named.runs() if run.parent is None]

    assert paid == ["bob"]
    assert (ordered.state, ordered.effect_max) == ("succeeded", None)


def test_a_repeated_tool_with_another_input_is_refused(store: Store) -> None:
    """The same child cannot be given other words: nothing would say which of the two was meant."""
    words = iter(["first", "second"])
    errors: list[PerdureError] = []

    @perdure.tool(effect="read_only", retry=perdure.Retry(attempts=2, delay=0.001))
    def delegate(call: Call) -> str:
        """Give another input at each attempt."""
        try:
            call.run(Agent("child", backend=Script(say("Hi."))), next(words))
        except Conflict as error:
            errors.append(error)
        raise OSError("again")

    parent = Agent("p", backend=Script(use("delegate"), say("Done.")), tools=[delegate])
    store.thread("t", agent=parent).run("go")

    assert [error.code for error in errors] == ["child_input_changed"]


# ---- approvals


def refunding() -> Agent:
    """Return a child whose call asks a person."""
    return Agent("child", backend=Script(use("refund", to="bob"), say("Refunded.")), tools=[refund])


def test_the_parent_waits_for_its_child_and_goes_on_when_it_is_decided(store: Store) -> None:
    """The child's question is visible and decided from the parent, and the child's result is the tool's."""
    thread = store.thread("t", agent=delegating(refunding()))

    waiting = thread.run("go")
    (asked,) = waiting.approvals
    unchanged = thread.resume()
    thread.decide(asked.call, "approve", by="ann")
    result = thread.resume()

    assert (waiting.status, unchanged.status, result.status) == ("waiting", "waiting", "succeeded")
    assert (asked.tool, result.text, paid) == ("refund", "Done.", ["refund bob"])
    assert told(thread) == ["it said: Refunded."]
    assert len(child_threads(store)) == 1


def test_the_childs_question_is_listed_once(store: Store) -> None:
    """The parent's approvals and the store's both show the child's ticket, and none for the parent's own call."""
    thread = store.thread("t", agent=delegating(refunding()))
    thread.run("go")

    assert [ticket.tool for ticket in thread.approvals()] == ["refund"]
    assert [(each.thread, each.ticket.tool) for each in store.approvals()] == [
        (child_threads(store)[0], "refund")
    ]


def test_the_call_that_waits_for_a_child_cannot_be_decided_itself(store: Store) -> None:
    """Approving it would run the tool, which would find its child still waiting."""
    thread = store.thread("t", agent=delegating(refunding()))
    thread.run("go")
    (call,) = thread.calls()

    with raises(Conflict, "call_waits_for_child", call=call.id):
        thread.decide(call.id, "approve", by="ann")


def test_a_childs_question_is_not_decided_from_a_parent_that_was_undone(store: Store) -> None:
    """Nothing would come of it; after a redo it is decided."""
    thread = store.thread("t", agent=delegating(refunding()))
    asked = thread.run("go").approvals[0].call
    thread.undo()

    with raises(Conflict, "call_undone", call=thread.calls()[0].id):
        thread.decide(asked, "approve", by="ann")
    thread.redo()
    thread.decide(asked, "approve", by="ann")

    assert thread.resume().status == "succeeded"


def test_a_child_decided_and_resumed_by_itself_lets_its_parent_go_on(store: Store) -> None:
    """Any process may carry the child on; the parent finds its result."""
    agent = refunding()
    thread = store.thread("t", agent=delegating(agent))
    run = thread.run("go").run
    inner = store.thread(child_threads(store)[0], agent=agent)
    inner.decide(inner.approvals()[0].call, "deny", by="ann")

    assert thread.decided(run)
    assert [each.status for each in store.resume(agent)] == ["succeeded"]
    assert thread.decided(run)
    assert thread.resume().status == "succeeded"
    assert paid == []


def test_two_children_that_wait_are_both_asked_about(store: Store) -> None:
    """A call with two waiting children lists both questions, and ends when both are decided."""

    @perdure.tool(effect="none")
    async def both(call: Call) -> str:
        """Ask two agents at once."""
        found = await asyncio.gather(*(call.run(refunding(), f"refund {n}") for n in range(2)))
        return str([each.text for each in found])

    agent = Agent("p", backend=Script(use("both"), say("Done.")), tools=[both])
    thread = store.thread("t", agent=agent)
    waiting = thread.run("go")
    first, second = waiting.approvals
    thread.decide(first.call, "deny", by="ann")
    half = thread.resume()
    thread.decide(second.call, "approve", by="ann")

    assert half.status == "waiting"
    assert [ticket.call for ticket in half.approvals] == [second.call]
    assert thread.resume().status == "succeeded"
    assert len(child_threads(store)) == 2


def test_a_decision_that_a_tool_asked_for_is_kept_while_its_child_waits(store: Store) -> None:
    """The tool that asks a person, and then runs a child that waits, still sees the person's answer."""
    seen: list[object] = []

    @perdure.tool(effect="none")
    def plan(call: Call) -> str:
        """Ask, then delegate."""
        if call.decision is None:
            call.suspend("which one?", action="choose")
        seen.append(call.decision.value)
        return str(call.run(refunding(), "go").text)

    agent = Agent("p", backend=Script(use("plan"), say("Done.")), tools=[plan])
    thread = store.thread("t", agent=agent)
    thread.run("go")
    thread.decide(thread.approvals()[0].call, "answer", value="the blue one", by="ann")
    thread.resume()
    thread.decide(thread.approvals()[0].call, "approve", by="ann")

    assert thread.resume().status == "succeeded"
    assert seen == ["the blue one", "the blue one"]


# ---- cancelling


def test_cancelling_a_waiting_parent_ends_its_child(store: Store) -> None:
    """The child's question is withdrawn, and nothing of it waits any more."""
    thread = store.thread("t", agent=delegating(refunding()))
    thread.run("go")

    ended = thread.cancel(why="not today")
    (record,) = store.thread(child_threads(store)[0]).runs()

    assert (ended.state, record.state, record.why) == ("cancelled", "cancelled", "not today")
    assert store.approvals() == []


def test_a_child_that_cannot_be_opened_keeps_no_other_from_being_cancelled(store: Store) -> None:
    """The store of the first refuses; the second is cancelled nevertheless."""
    calls = step(use("delegate", task="one"), use("delegate", task="two"))
    tools = list(delegating(refunding()).toolbox.values())
    thread = store.thread("t", agent=Agent("p", backend=Script(calls, say("Done.")), tools=tools))
    run = thread.run("go").run
    env = thread._env()  # pyright: ignore[reportPrivateUsage]
    opened: list[str] = []

    def environment(id: str, name: str) -> RunEnvironment:
        opened.append(id)
        if len(opened) == 1:
            raise Unavailable("the store of this child is away; nothing was opened.", code="away")
        return store.thread(id, agent=Agent(name))._env()  # pyright: ignore[reportPrivateUsage]

    cancel_all(env, run, "enough", call=None, environment=environment)

    states = {each: store.thread(each).runs()[0].state for each in child_threads(store)}
    assert states == dict(zip(opened, ["waiting", "cancelled"], strict=True))


def test_cancelling_a_run_on_a_fork_leaves_the_child_that_the_other_timeline_waits_for(store: Store) -> None:
    """The run on the fork goes on with the calls of the run on `main`, which still waits for its child."""

    @perdure.tool(effect="external_write", ask=True)
    def order() -> str:
        """Order, if somebody agrees."""
        return "ordered"

    tools = [*delegating(refunding()).toolbox.values(), order]
    calls = step(use("delegate", task="one"), use("order"))
    agent = Agent("p", backend=Script(calls, say("Done.")), tools=tools)
    thread = store.thread("t", agent=agent)
    thread.run("go")
    fork = thread.fork("other")
    (asked,) = fork.approvals()
    fork.decide(asked.call, "approve", by="ann")
    fork.resume()

    fork.cancel(why="enough")

    assert {run.timeline: run.state for run in thread.runs()} == {"main": "waiting", "other": "cancelled"}
    assert [run.state for run in store.thread(child_threads(store)[0]).runs()] == ["waiting"]


@pytest.mark.parametrize("kind", ["plain", "awaited"])
def test_cancelling_the_parent_stops_a_child_in_its_tool(tmp_path: Path, kind: str) -> None:
    """Parent and child are both cancelled, and the child's next step is never taken."""
    inside, left = threading.Event(), threading.Event()

    @perdure.tool(effect="read_only")
    async def slow() -> str:
        """Take for ever."""
        inside.set()
        await asyncio.sleep(60)
        left.set()
        return "never"

    child = Agent("child", backend=Script(use("slow"), say("Never.")), tools=[slow])

    @perdure.tool(effect="none")
    def plain(call: Call) -> str:
        """Delegate."""
        return str(call.run(child, "go").text)

    @perdure.tool(effect="none")
    async def awaited(call: Call) -> str:
        """Delegate."""
        return str((await call.run(child, "go")).text)

    agent = Agent("p", backend=Script(use(kind), say("Done.")), tools=[plain, awaited])
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=agent)
        running = threading.Thread(target=lambda: thread.run("go"))
        running.start()
        assert inside.wait(30)
        thread.cancel(why="enough")
        running.join(60)
        states = [record.state for each in store.threads() for record in each.runs()]

    assert not running.is_alive()
    assert (states, left.is_set()) == (["cancelled", "cancelled"], False)


def test_a_tool_that_runs_out_of_time_cancels_its_child(store: Store) -> None:
    """The parent goes on, and the child does not go on without it."""

    @perdure.tool(effect="read_only")
    async def slow() -> str:
        """Take for ever."""
        await asyncio.sleep(60)
        return "never"

    child = Agent("child", backend=Script(use("slow"), say("Never.")), tools=[slow])

    @perdure.tool(effect="none", timeout=1.5)  # the child has begun by then, also on a busy machine
    async def delegate(call: Call) -> str:
        """Delegate."""
        return str((await call.run(child, "go")).text)

    agent = Agent("p", backend=Script(use("delegate"), say("Done.")), tools=[delegate])

    assert store.thread("t", agent=agent).run("go").text == "Done."
    assert [record.state for record in store.thread(child_threads(store)[0]).runs()] == ["cancelled"]


# ---- the repeat guard and the effect limit of the parent


def paying(*, backend: str = "script:test") -> Agent:
    """Return a child that pays."""
    return Agent("child", backend=Script(use("pay", to="bob"), say("Paid."), backend=backend), tools=[pay])


def test_a_fork_does_not_pay_again_through_another_child(store: Store) -> None:
    """The root thread's guard knows the payment of the first child, though the second has a ledger of its own."""
    thread = store.thread("t", agent=delegating(paying()))
    thread.run("go", id="m1")
    fork = thread.fork("again", at=None)

    result = fork.run("go", id="m1")

    assert (result.status, paid) == ("waiting", ["bob"])
    assert [ticket.action for ticket in result.approvals] == ["repeat"]
    fork.decide(result.approvals[0].call, "approve", by="ann")
    assert fork.resume().status == "succeeded"
    assert paid == ["bob", "bob"]


def test_after_an_undo_the_next_child_asks_before_it_pays_again(store: Store) -> None:
    """What a child did stays done, although the parent's turn was undone."""
    thread = store.thread("t", agent=delegating(paying()))
    thread.run("go")
    thread.undo()
    second = store.thread("t", agent=delegating(paying()))

    assert second.run("go").status == "waiting"
    assert paid == ["bob"]


def test_the_parent_asks_before_it_repeats_what_a_child_did_elsewhere(store: Store) -> None:
    """The guard looks both ways: the parent's own call is stopped by the child's."""
    thread = store.thread("t", agent=delegating(paying()))
    thread.run("go")
    thread.undo()
    own = Agent("parent", backend=Script(use("pay", to="bob"), say("Done.")), tools=[pay])

    assert store.thread("t", agent=own).run("pay").status == "waiting"
    assert paid == ["bob"]


def test_a_child_asks_before_it_repeats_a_payment_of_its_parent_on_another_backend(store: Store) -> None:
    """A model that did not make the first payment does not make it again unasked."""
    child = paying(backend="script:other")

    @perdure.tool(effect="none")
    def delegate(call: Call) -> str:
        """Delegate."""
        return str(call.run(child, "go").text)

    script = Script(use("pay", to="bob"), use("delegate"), say("Done."))
    thread = store.thread("t", agent=Agent("parent", backend=script, tools=[pay, delegate]))

    assert thread.run("go").status == "waiting"
    assert paid == ["bob"]


@pytest.mark.parametrize("is_first", [True, False], ids=["second", "third"])
def test_after_a_switch_a_child_asks_before_it_pays_again(store: Store, is_first: bool) -> None:
    """The next model delegates what is done; that the child is on the same backend as before says nothing."""
    for _ in range(1 if is_first else 2):
        store.thread("t", agent=delegating(paying())).run("go")
    before = len(paid)
    thread = store.thread("t", agent=delegating(paying()))
    thread.switch(Script(use("delegate", task="go"), say("Done."), backend="script:next"))

    assert (thread.run("once more").status, len(paid)) == ("waiting", before)


def test_a_second_payment_on_one_line_is_the_models_choice(store: Store) -> None:
    """Control: on the same line and backend the guard lets a child pay again, as it lets its parent."""
    thread = store.thread("t", agent=delegating(paying()))
    thread.run("go")
    again = store.thread("t", agent=delegating(paying()))

    assert again.run("once more").status == "succeeded"
    assert paid == ["bob", "bob"]
    assert store.verify().ok


def delegating_twice(*children: Agent, effect: Effect = "none") -> Agent:
    """Return a parent that delegates to one child after the other, in words of its own each time."""
    left = list(children)

    @perdure.tool(effect=effect)
    def delegate(task: str, call: Call) -> str:
        """Let another agent do it."""
        return str(call.run(left.pop(0), task).text)

    steps = (use("delegate", task="go"), use("delegate", task="go on"), say("Done."))
    return Agent("parent", backend=Script(*steps), tools=[delegate])


def failing(*steps: ScriptStep) -> Agent:
    """Return a child whose backend cannot be reached after these steps."""
    return Agent("child", backend=Script(*steps, fail()), tools=[pay])


@pytest.mark.parametrize("effect", ["none", "external_write"])
def test_what_a_child_paid_before_it_failed_is_not_paid_again_unasked(store: Store, effect: Effect) -> None:
    """The parent's model is told that the child failed, so it delegates again and does not know of the payment."""
    agent = delegating_twice(failing(use("pay", to="bob")), paying(), effect=effect)

    result = store.thread("t", agent=agent).run("go")

    assert (result.status, paid) == ("waiting", ["bob"])
    assert [ticket.action for ticket in result.approvals] == ["repeat"]


def test_what_a_child_paid_that_was_resolved_as_not_done_is_not_paid_again_unasked(store: Store) -> None:
    """A person who says that the delegation was not done has not said that the payment may be repeated."""
    children = failing(use("pay", to="bob")), failing()
    thread = store.thread("t", agent=delegating_twice(*children, effect="external_write"))
    thread.run("go")
    for _, call in store.unclear_calls():
        thread.resolve(call.id, "not_done", by="ann")
    second = store.thread("t", agent=delegating(paying()))

    assert (second.run("go on").status, paid) == ("waiting", ["bob"])


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("how", ["stopped", "failed"])
def test_what_a_run_below_paid_that_did_not_succeed_is_not_paid_again_unasked(
    store: Store, how: str, depth: int
) -> None:
    """The tool that ran it says nothing of that, so the parent's model sees a call that succeeded."""
    steps = (use("pay", to="bob"), fail() if how == "failed" else say("Paid."))
    child = Agent("child", backend=Script(*steps), tools=[pay], stop=Stop(steps=1 if how == "stopped" else 9))
    left = [child, paying()]

    @perdure.tool(effect="none")
    def delegate(task: str, call: Call) -> str:
        """Let another agent do it, whatever comes of it."""
        try:
            return str(call.run(left.pop(0), task).text)
        except RunFailed:
            return "There was a problem."

    two = (use("delegate", task="go"), use("delegate", task="go on"), say("Done."))
    agent = Agent("parent", backend=Script(*two), tools=[delegate])
    if depth == 2:
        agent = delegating(replace(agent, name="between"))

    result = store.thread("t", agent=agent).run("go")

    assert (result.status, paid) == ("waiting", ["bob"])


def test_a_payment_of_two_that_were_made_below_one_failed_call_is_not_made_again(store: Store) -> None:
    """The child meant both; the guard has seen the first while the call was under way, which proves nothing now."""
    twice = failing(use("pay", to="bob"), use("pay", to="bob"))

    result = store.thread("t", agent=delegating_twice(twice, paying())).run("go")

    assert (result.status, paid) == ("waiting", ["bob", "bob"])


def test_a_child_that_failed_before_it_paid_is_no_obstacle(store: Store) -> None:
    """Nothing was done that the next child could repeat."""
    result = store.thread("t", agent=delegating_twice(failing(), paying())).run("go")

    assert (result.status, paid) == ("succeeded", ["bob"])


def test_control_without_a_look_at_the_end_of_the_call_it_is_paid_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What holds the second payment back is how the call and the run of the first child ended."""
    monkeypatch.setattr(repeat_guard, "_has_failed", lambda _: False)
    monkeypatch.setattr(repeat_guard, "_have_succeeded", lambda *_: True)
    agent = delegating_twice(failing(use("pay", to="bob")), paying())

    assert (store.thread("t", agent=agent).run("go").status, paid) == ("succeeded", ["bob", "bob"])


def delegated_and_paid(store: Store, amount: str, *, is_asked: bool) -> Agent:
    """Let a parent delegate a payment to bob, which waits for a person, and pay `amount` itself for the next input."""
    steps = (use("refund", to="eve"), use("pay", to="bob")) if not is_asked else (use("pay", to="bob"),)
    child = Agent("child", backend=Script(*steps, say("Paid.")), tools=[pay, refund])

    @perdure.tool(effect="none", ask=is_asked)
    def delegate(call: Call) -> str:
        """Let another agent do it."""
        return str(call.run(child, "pay bob").text)

    script = Script(use("delegate"), use("pay", to=amount), then=say("Done."))
    agent = Agent("parent", backend=script, tools=[delegate, pay])
    thread = store.thread("t", agent=agent)
    assert (thread.run("Pay bob, as agreed.").status, paid) == ("waiting", [])
    assert (thread.run("Pay now.").status, paid) == ("succeeded", [amount])
    return agent


def decided(store: Store, agent: Agent) -> list[str]:
    """Approve what waits, go on, and return the questions that come then."""
    thread = store.thread("t", agent=agent)
    for ticket in thread.approvals():
        thread.decide(ticket.call, "approve", by="ann")
    return [ticket.action for ticket in thread.resume().approvals]


@pytest.mark.parametrize("is_asked", [True, False], ids=["call", "child"])
def test_a_child_does_not_repeat_what_was_paid_since_it_was_delegated_to(
    store: Store, is_asked: bool
) -> None:
    """The parent's model delegated before it knew of the payment, and the child's model never did."""
    agent = delegated_and_paid(store, "bob", is_asked=is_asked)

    assert decided(store, agent) == ["repeat"]
    assert paid.count("bob") == 1

    assert decided(store, agent) == []
    assert paid.count("bob") == 2


@pytest.mark.parametrize("is_asked", [True, False], ids=["call", "child"])
def test_control_a_child_pays_what_was_not_paid_since(store: Store, is_asked: bool) -> None:
    """Another payment is no repeat."""
    agent = delegated_and_paid(store, "carl", is_asked=is_asked)

    assert decided(store, agent) == []
    assert paid.count("bob") == 1


@pytest.mark.parametrize("is_asked", [True, False], ids=["call", "child"])
def test_control_without_the_rule_a_child_pays_again(
    store: Store, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What holds the payment back is that the model that delegated could not know of the other."""
    monkeypatch.setattr(repeat_guard, "_was_known", lambda *_: True)
    agent = delegated_and_paid(store, "bob", is_asked=is_asked)

    assert decided(store, agent) == []
    assert paid.count("bob") == 2


@pytest.mark.parametrize("to", ["eve", "carl"])
def test_a_childs_question_names_what_the_thread_above_did(store: Store, to: str) -> None:
    """The person who is asked sees the child's thread alone; control: nothing is said of another call."""
    child = Agent("child", backend=Script(use("refund", to=to)), tools=[refund])
    agent = delegating(child)
    steps = (use("refund", to="eve"), use("delegate", task="go"), say("Done."))
    agent = replace(agent, backend=Script(*steps), tools=[*agent.tools, refund])
    thread = store.thread("t", agent=agent)
    thread.decide(thread.run("go").approvals[0].call, "approve", by="ann")

    (question,) = thread.resume().approvals

    assert ("the same call" in question.message) == (to == "eve")


def test_what_a_child_paid_that_waits_now_is_not_paid_again_unasked(store: Store) -> None:
    """The parent's model is told that the delegation waits, and not what the child did before."""
    child = Agent("child", backend=Script(use("pay", to="bob"), use("refund", to="eve")), tools=[pay, refund])
    first = store.thread("t", agent=delegating(child))
    assert (first.run("go").status, paid) == ("waiting", ["bob"])
    own = Agent("parent", backend=Script(use("pay", to="bob"), say("Done.")), tools=[pay])

    second = store.thread("t", agent=own).run("pay")

    assert (second.status, paid) == ("waiting", ["bob"])
    assert [ticket.action for ticket in second.approvals if ticket.tool == "pay"] == ["repeat"]


def test_the_roots_ledger_says_what_became_of_a_childs_payment(store: Store) -> None:
    """The entry names its parent call and is settled; its outcome is resolved on the child's own thread."""
    thread = store.thread("t", agent=delegating(paying()))
    thread.run("go")

    parent, entry = sorted(thread.calls(), key=lambda each: each.origin or "")

    assert (entry.origin, entry.tool, entry.state, entry.parent_call) == (
        "child",
        "pay",
        "succeeded",
        parent.id,
    )
    with raises(Conflict, "call_of_child", call=entry.id):
        thread.resolve(entry.id, "done", by="ann")


def test_the_effect_limit_of_the_parents_timeline_binds_the_child(store: Store) -> None:
    """On a fork that may only read, a child does not pay either, also when it is resumed by itself."""
    thread = store.thread("t", agent=delegating(paying()))
    thread.change("begin")
    fork = thread.fork("look", effect_max="read_only")

    fork.run("go")
    inner = store.thread(child_threads(store)[0])

    assert paid == []
    assert [(call.state, call.tool) for call in inner.calls()] == [("denied", "pay")]
    assert store.thread("t", agent=delegating(paying())).run("go").status == "succeeded"
    assert paid == ["bob"]  # control: the main line may


def test_a_child_of_an_undone_parent_does_not_go_on(store: Store) -> None:
    """After an undo of the parent nothing asks for the child's work any more; a redo brings it back."""
    agent = refunding()
    thread = store.thread("t", agent=delegating(agent))
    thread.run("go")
    inner = store.thread(child_threads(store)[0], agent=agent)
    inner.decide(inner.approvals()[0].call, "approve", by="ann")
    thread.undo()

    with raises(NotFound, "parent_run_undone"):
        inner.resume()
    assert paid == []
    thread.redo()
    assert thread.resume().status == "succeeded"


@pytest.mark.parametrize("with_child", [False, True])
def test_a_copy_without_the_childs_thread_does_not_begin_it_again(
    store: Store, tmp_path: Path, with_child: bool
) -> None:
    """The call that waits for the child is unknown in such a copy; with both threads it waits as before."""
    agent = delegating(refunding())
    store.thread("t", agent=agent).run("go")
    store.copy_to(tmp_path / "copy.db", threads=["t", *(child_threads(store) if with_child else [])])

    with perdure.open(tmp_path / "copy.db") as copy:
        copy.release()
        thread = copy.thread("t", agent=agent)
        status = thread.resume().status
        (call,) = thread.calls()

        assert (status, call.state) == (
            ("waiting", "awaiting_approval") if with_child else ("succeeded", "unknown")
        )
        assert len(child_threads(copy)) == with_child


def test_a_replay_denies_what_a_child_asks_for(store: Store) -> None:
    """The question is denied on the child's own thread, the replay ends, and its report names the call."""
    script = Script(use("delegate", task="go"), say("Done."), use("delegate", task="go"), say("Done."))
    agent = delegating(refunding())
    thread = store.thread("t", agent=Agent("parent", backend=script, tools=agent.tools))
    thread.change("begin")
    thread.fork("again")
    asked = thread.run("go", id="m1").approvals[0].call
    thread.decide(asked, "approve", by="ann")
    thread.resume()

    report = thread.replay(onto="again", effect_max="external_write")

    assert report.is_complete
    assert [(call.tool, call.made_before) for call in report.stopped] == [("refund", asked)]
    assert paid == ["refund bob"]
