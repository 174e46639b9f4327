"""A run that waits, with other runs and changes between its commits: it is still one run."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Call, Store, Thread, errors
from perdure.model.run import HeadPolicy, Usage
from perdure.testing import Script, fail, say, step, use
from perdure.testing.script import Item

POLICIES: list[HeadPolicy] = ["each_step", "on_success"]
ONE = Usage(input_tokens=1, output_tokens=1)

_paid: list[int] = []


@perdure.tool(effect="external_write", ask=True)
def pay(amount: int, call: Call) -> str:
    """Pay, if somebody agrees."""
    _paid.append(amount)
    call.put(f"/paid/{amount}.json", True)
    return f"paid {amount}"


@perdure.tool(effect="read_only")
def asks(call: Call) -> str:
    """Ask, with something put aside."""
    if call.decision is None:
        call.scratch.put("/aside.json", True)
        call.suspend("Go on?")
    return "went on"


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    """Forget what other tests paid."""
    _paid.clear()


def thread_of(store: Store, *items: Item) -> Thread:
    """The thread, for an agent that takes these steps, counted from the last input."""
    return store.thread("trip", agent=Agent("planner", backend=Script(*items), tools=[pay, asks]))


def visited(store: Store) -> None:
    """Somebody changes something, and runs something else."""
    store.thread("trip").put("/title.json", "web")
    thread_of(store, say("Meanwhile.")).run("something else")


@pytest.mark.parametrize("policy", POLICIES)
def test_calls_decided_one_by_one_are_all_made(store: Store, policy: HeadPolicy) -> None:
    """Two wait; between their decisions others run: neither is forgotten, and both results are told."""
    asked = step(use("pay", amount=1), use("pay", amount=2), say("", usage=ONE))
    waiting = thread_of(store, asked, say("Done.")).run("go", head_policy=policy)
    for ticket in waiting.approvals:
        visited(store)
        store.thread("trip").decide(ticket.call, "approve")
        waiting_or_done = thread_of(store, say("Done.", usage=ONE)).resume(waiting.run)
        assert waiting_or_done.run == waiting.run

    thread = store.thread("trip")
    result = thread.resume(waiting.run)
    assert (result.status, result.usage, result.steps) == ("succeeded", ONE + ONE, 2)
    assert sorted(_paid) == [1, 2]
    assert [call.state for call in thread.calls()] == ["succeeded"] * 2
    assert sum(len(entry.message.tool_results) for entry in thread.transcript()) == 2
    assert thread.paths("/paid") == ["/paid/1.json", "/paid/2.json"]


def test_what_a_run_wrote_before_it_waited_is_put_back_too(store: Store) -> None:
    """It fails after it was resumed, with others' commits between: its own paths go back, theirs stay."""
    asked = step(use("pay", amount=1), use("pay", amount=2))
    waiting = thread_of(store, asked, fail()).run("go")
    for ticket in waiting.approvals:
        visited(store)
        store.thread("trip").decide(ticket.call, "approve")
        script = thread_of(store, fail())
        if ticket is waiting.approvals[-1]:
            with pytest.raises(errors.RunFailed):
                script.resume(waiting.run)
        else:
            script.resume(waiting.run)

    assert _paid == [1, 2]
    assert store.thread("trip").paths("/") == ["/title.json"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("ending", ["fails", "is cancelled"])
def test_a_run_that_waited_and_then_fails_leaves_no_call_open(
    store: Store, ending: str, policy: HeadPolicy
) -> None:
    """The next run is told what became of the call that it saw waiting, and nothing put aside is left."""
    waiting = thread_of(store, use("asks"), fail()).run("go", head_policy=policy)
    thread = thread_of(store, use("asks"), fail())
    assert [path for path in thread.paths("/") if path.startswith("/__tool")]
    if ending == "fails":
        thread.decide(waiting.approvals[0].call, "approve")
        with pytest.raises(errors.RunFailed):
            thread.resume()
    else:
        thread.cancel()

    script = Script(say("Next."))
    store.thread("trip", agent=Agent("planner", backend=script, tools=[asks])).run("and now?")

    shown = str([message.tool_results for message in script.contexts[0].messages])
    assert "waits for somebody" not in shown
    assert thread.paths("/") == []
    assert store.verify().ok


@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_a_call_by_hand_that_waited_leaves_nothing_aside(store: Store, verdict: str) -> None:
    """Decided either way, and asked for again, its scratch is gone; asked for once more nothing is written."""
    thread = store.thread("trip", agent="planner")
    thread.call(asks, {}, id="c1")
    thread.decide("c1", verdict)  # pyright: ignore[reportArgumentType]

    first = thread.call(asks, {}, id="c1")

    head = thread.head
    assert thread.paths("/") == []
    assert thread.call(asks, {}, id="c1") == first
    assert thread.head == head
