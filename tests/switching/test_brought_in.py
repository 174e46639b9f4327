"""With history from elsewhere: an external write that came with an import is not sent again unasked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import perdure
from perdure import Agent, Call, Store, Thread, Tool
from perdure.engines.contract import CellWrite
from perdure.history.space import Space
from perdure.ledger import repeat_guard
from perdure.model.call import CallRecord
from perdure.testing import Script, say, use
from tests.switching.scenes import Counting

A, B = "openai:gpt-5.6", "anthropic:claude-sonnet-5-5"


def payer(tool: Tool, *, backend: str = B, to: str = "ann") -> Agent:
    """An agent whose model pays somebody at once, as often as it is run."""
    turns = [use("pay", to=to), say("Paid.")] * 4
    return Agent("payer", backend=Script(*turns, backend=backend), tools=[tool])


def told(*, times: int = 1, result: bool = True, tool: str = "pay", **given: object) -> list[dict[str, Any]]:
    """A conversation in Anthropic's format in which Ann was paid, as far as one can tell."""
    said: list[dict[str, Any]] = [{"role": "user", "content": "Pay Ann"}]
    for number in range(times):
        asked = {"type": "tool_use", "id": f"t{number}", "name": tool, "input": given or {"to": "ann"}}
        said.append({"role": "assistant", "content": [asked]})
        if result:
            paid = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "paid ann"}
            said.append({"role": "user", "content": [paid]})
    return said


def brought_in(store: Store, agent: Agent, said: list[dict[str, Any]], *, known: bool) -> Thread:
    """A thread with that conversation; `known`: whoever brought it in had the agent's tools."""
    thread = store.thread("rent", agent=agent if known else agent.name)
    thread.add(said, api="anthropic-messages", op_id="once")
    return store.thread("rent", agent=agent)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("result", [True, False])
@pytest.mark.parametrize("times", [1, 3])
def test_the_guard_asks_before_it_is_sent_again(
    store: Store, world: Counting, *, known: bool, result: bool, times: int
) -> None:
    """With a result or without, made once or often, the tool known at the import or only later."""
    thread = brought_in(store, payer(world.tool()), told(times=times, result=result), known=known)

    asked = thread.run("Did Ann get her rent?")

    assert asked.status == "waiting"
    assert [ticket.action for ticket in asked.approvals] == ["repeat"]
    assert world.done == {}
    assert store.verify().ok


@pytest.mark.parametrize("to", ["ann", "bob"])
def test_a_child_is_asked_about_what_came_into_the_thread_above(
    store: Store, world: Counting, to: str
) -> None:
    """The agent of the thread has no such tool, only its child has; control: another payment is made."""
    child = payer(world.tool(), to=to)

    @perdure.tool(effect="none")
    def delegate(call: Call) -> str:
        """Let another agent do it."""
        return str(call.run(child, "Pay").text)

    agent = Agent("boss", backend=Script(use("delegate"), then=say("Done."), backend=B), tools=[delegate])
    thread = brought_in(store, agent, told(), known=True)

    asked = thread.run("Did Ann get her rent?")

    is_repeat = to == "ann"
    assert [ticket.action for ticket in asked.approvals] == ["repeat"] * is_repeat
    assert sum(world.done.values()) == (not is_repeat)
    for ticket in asked.approvals:
        thread.decide(ticket.call, "approve", by="ben")
        thread.resume()
    assert sum(world.done.values()) == 1
    assert store.verify().ok


@pytest.mark.parametrize("known", [True, False])
def test_the_guard_asks_after_a_switch_too(store: Store, world: Counting, *, known: bool) -> None:
    """Another backend asks for what nobody here has ever run."""
    thread = brought_in(store, payer(world.tool(), backend=A), told(), known=known)
    thread.switch(Script(use("pay", to="ann"), say("Paid."), backend=B))

    assert thread.run("Did Ann get her rent?").status == "waiting"
    assert world.done == {}


@pytest.mark.parametrize("known", [True, False])
def test_the_guard_asks_where_the_import_was_undone(store: Store, world: Counting, *, known: bool) -> None:
    """An undo takes it out of the history, not out of the world."""
    thread = brought_in(store, payer(world.tool()), told(), known=known)
    thread.undo()

    asked = thread.run("Pay Ann")

    assert asked.status == "waiting"
    assert "not in this conversation" in asked.approvals[0].message
    assert world.done == {}


def test_what_somebody_approves_is_sent_once(store: Store, world: Counting) -> None:
    """The approval covers the calls that were brought in, all of them, and that one start."""
    thread = brought_in(store, payer(world.tool()), told(times=3), known=False)
    (ticket,) = thread.run("Pay her again").approvals

    thread.decide(ticket.id, "approve", by="Eve")
    ended = thread.resume()

    assert ended is not None
    assert ended.status == "succeeded"
    assert world.done == {"ann": 1}


@pytest.mark.parametrize("known", [True, False])
def test_something_else_is_sent(store: Store, world: Counting, *, known: bool) -> None:
    """Control: other arguments are no repeat, and neither is a call to another tool."""
    said = [*told(), *told(tool="post", to="ben")]
    thread = brought_in(store, payer(world.tool(), to="ben"), said, known=known)

    assert thread.run("Pay Ben").status == "succeeded"
    assert world.done == {"ben": 1}


@pytest.mark.parametrize("known", [True, False])
def test_without_the_guard_it_is_sent_again(store: Store, world: Counting, *, known: bool) -> None:
    """Control: where the tool lets repeats pass, the same script pays."""
    thread = brought_in(store, payer(world.tool(guard="allow")), told(), known=known)

    assert thread.run("Pay her again").status == "succeeded"
    assert world.done == {"ann": 1}


@pytest.mark.parametrize("known", [True, False])
def test_arguments_are_compared_as_the_tool_takes_them(store: Store, *, known: bool) -> None:
    """A default that was left out there and is given here makes no other call of it."""
    sent: list[int] = []

    @perdure.tool(effect="communication")
    def ring(bell: str, times: int = 1) -> str:
        """Ring a bell."""
        sent.append(times)
        return bell

    script = Script(use("ring", bell="door", times=1), say("Rung."), backend=B)
    agent = Agent("porter", backend=script, tools=[ring])
    thread = brought_in(store, agent, told(tool="ring", bell="door"), known=known)

    assert thread.run("Ring").status == "waiting"
    assert sent == []


@pytest.mark.parametrize("known", [True, False])
def test_a_tool_that_only_reads_is_not_asked_about(store: Store, *, known: bool) -> None:
    """What the agent's tool declares counts, whoever made the call before."""
    looked: list[str] = []

    @perdure.tool(effect="read_only")
    def look(city: str) -> str:
        """Look at the sky."""
        looked.append(city)
        return "rain"

    script = Script(use("look", city="Oslo"), say("Rain."), backend=B)
    agent = Agent("guide", backend=script, tools=[look])
    thread = brought_in(store, agent, told(tool="look", city="Oslo"), known=known)

    assert thread.run("And now?").status == "succeeded"
    assert looked == ["Oslo"]


def test_the_ledger_says_how_far_the_tool_here_reaches(store: Store, world: Counting) -> None:
    """Where nobody has the tool, an external write is assumed."""
    agent = payer(world.tool())
    said = [*told(result=False), *told(tool="post", result=False)]
    thread = brought_in(store, agent, said, known=True)

    assert [(call.tool, call.effect) for call in thread.calls()] == [
        ("pay", "financial"),
        ("post", "external_write"),
    ]


def test_the_same_import_again_changes_nothing(store: Store, world: Counting) -> None:
    """With the same op_id there is one call, and one question about it."""
    thread = brought_in(store, payer(world.tool()), told(), known=True)

    thread.add(told(), api="anthropic-messages", op_id="once")

    assert len(thread.calls()) == 1
    assert thread.run("Pay her again").status == "waiting"
    assert store.verify().ok


def test_arguments_that_the_tool_refuses_are_like_those_of_no_call(store: Store, world: Counting) -> None:
    """They do not stop the import, nor another call."""
    thread = brought_in(store, payer(world.tool()), told(whom="ann"), known=False)

    assert thread.run("Pay Ann").status == "succeeded"
    assert world.done == {"ann": 1}


def test_an_import_that_meets_a_start_is_added_after_it(
    store: Store, world: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same call is made here between what the import reads and what it writes: the guard knows both."""
    tool = world.tool()
    thread = store.thread("rent", agent=payer(tool))
    entering = repeat_guard.entering

    def overtaken(space: Space, records: Sequence[CallRecord]) -> tuple[CellWrite, ...]:
        cells = entering(space, records)
        if not world.done:
            thread.call(tool, {"to": "ann"}, id="by-hand")
        return cells

    monkeypatch.setattr(repeat_guard, "entering", overtaken)
    thread.add(told(times=2), api="anthropic-messages")

    asked = thread.run("Pay her again")

    assert asked.status == "waiting"
    assert '"seen":3' in (asked.approvals[0].parameters or "")
    assert world.done == {"ann": 1}
    assert store.verify().ok
