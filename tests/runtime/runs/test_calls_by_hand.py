"""`thread.call`: one tool call through the ledger without an agent."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Call, Outcome, Store, aio, errors
from perdure.runtime.calls import executor
from perdure.runtime.calls.direct_call import CallResult
from perdure.runtime.calls.plan import Clearance
from perdure.testing import Script, say, use
from tests.coded import raises
from tests.crash.processes import Pipe, running

_sent: list[str] = []


@perdure.tool(effect="external_write")
def send(to: str, call: Call, note: str = "-") -> str:
    """Send something."""
    _sent.append(to)
    call.put(f"/sent/{to}.json", note)
    return f"sent to {to}"


@perdure.tool(effect="external_write", ask=True)
def pay(amount: int) -> str:
    """Pay, if somebody agrees."""
    _sent.append(str(amount))
    return f"paid {amount}"


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    """Forget what other tests sent."""
    _sent.clear()


def test_a_call_is_one_turn_with_one_commit(store: Store) -> None:
    """It applies what the call changes; undo takes that back, and the ledger still knows."""
    thread = store.thread("trip", agent="planner")

    result = thread.call(send, {"to": "ann"}, id="c1")

    assert (result.state, result.text, result.ok) == ("succeeded", "sent to ann", True)
    assert [entry.reason for entry in thread.log()] == ["call"]
    assert thread.get("/sent/ann.json") == "-"
    assert thread.transcript() == []
    thread.undo()
    assert thread.paths("/") == []
    assert [call.state for call in thread.calls()] == ["succeeded"]


def test_the_same_id_and_arguments_give_the_first_result(store: Store) -> None:
    """However the arguments are written: defaults count, order does not."""
    thread = store.thread("trip", agent="planner")
    first = thread.call(send, {"to": "ann"}, id="c1")
    head = thread.head

    again = thread.call(send, '{"note": "-", "to": "ann"}', id="c1")

    assert again == first
    assert (thread.head, _sent) == (head, ["ann"])


def test_the_same_id_with_other_arguments_is_a_conflict(store: Store) -> None:
    """So is another tool; nothing is done."""
    thread = store.thread("trip", agent="planner")
    thread.call(send, {"to": "ann"}, id="c1")

    with raises(errors.Conflict, "call_id_reused", call="c1"):
        thread.call(send, {"to": "bob"}, id="c1")
    with raises(errors.Conflict, "call_id_reused", call="c1"):
        thread.call(pay, {"amount": 3}, id="c1")

    assert _sent == ["ann"]


def test_another_id_is_another_call(store: Store) -> None:
    """A control: equal arguments alone do not make two calls one."""
    thread = store.thread("trip", agent="planner")

    thread.call(send, {"to": "ann"}, id="c1")
    thread.call(send, {"to": "ann"}, id="c2")

    assert _sent == ["ann", "ann"]


def test_after_an_undo_the_guard_asks(store: Store) -> None:
    """The same letter under another id was sent, and is not in the history any more."""
    thread = store.thread("trip", agent="planner")
    thread.call(send, {"to": "ann"}, id="c1")
    thread.undo()

    result = thread.call(send, {"to": "ann"}, id="c2")

    assert result.state == "awaiting_approval"
    assert result.ticket is not None
    assert result.ticket.action == "repeat"
    assert _sent == ["ann"]


@pytest.mark.parametrize(("verdict", "state"), [("approve", "succeeded"), ("deny", "denied")])
def test_a_call_that_asks_waits_and_is_made_when_it_is_asked_for_again(
    store: Store, verdict: str, state: str
) -> None:
    """That it waits is said once; after the decision the same call, by the same id, comes to its end."""
    thread = store.thread("trip", agent="planner")
    waiting = thread.call(pay, {"amount": 3}, id="c1")
    assert (waiting.state, waiting.result, len(thread.log())) == ("awaiting_approval", None, 1)
    assert thread.call(pay, {"amount": 3}, id="c1") == waiting
    assert len(thread.log()) == 1
    thread.decide("c1", verdict, by="ann")  # pyright: ignore[reportArgumentType]

    result = thread.call(pay, {"amount": 3}, id="c1")

    assert result.state == state
    assert _sent == (["3"] if verdict == "approve" else [])
    assert thread.call(pay, {"amount": 3}, id="c1") == result
    assert store.approvals() == []
    assert len(thread.turns()) == 1


def test_a_call_with_edited_arguments_is_made_with_those(store: Store) -> None:
    """And the original arguments still name it."""
    thread = store.thread("trip", agent=Agent("planner", tools=[pay]))
    thread.call(pay, {"amount": 3}, id="c1")
    thread.decide("c1", "edit", value={"amount": 2}, by="ann")

    result = thread.call(pay, {"amount": 3}, id="c1")

    assert (result.state, _sent) == ("succeeded", ["2"])
    assert thread.call(pay, {"amount": 3}, id="c1") == result


def test_a_tool_that_raises_leaves_its_call_unknown_until_somebody_knows(store: Store) -> None:
    """Asked for again it is not made again: its hook is asked, and settles it."""
    known: list[str] = []

    @perdure.tool(effect="external_write")
    def shaky() -> str:
        _sent.append("tried")
        raise TimeoutError("no answer")

    @shaky.reconcile
    def find(call: Call) -> Outcome:
        return call.done("it was sent") if known else call.dont_know()

    thread = store.thread("trip", agent="planner")
    first = thread.call(shaky, {}, id="c1")
    assert not first.ok
    known.append("yes")

    again = thread.call(shaky, {}, id="c1")

    assert (again.state, again.text, _sent) == ("succeeded", "it was sent", ["tried"])


def test_arguments_that_do_not_fit_are_refused_and_recorded(store: Store) -> None:
    """The call has failed; nothing was started."""
    thread = store.thread("trip", agent="planner")

    result = thread.call(send, {"to": 7}, id="c1")

    assert (result.state, result.ok, _sent) == ("failed", False, [])


def test_a_call_on_a_line_that_was_written_to_meanwhile_lands(store: Store) -> None:
    """The tool itself is the moment at which somebody else writes."""

    @perdure.tool(effect="external_write")
    def visited(call: Call) -> str:
        store.thread("trip").put("/title.json", "web")
        call.put("/own.json", "call")
        return "done"

    thread = store.thread("trip", agent="planner")

    result = thread.call(visited, {}, id="c1")

    assert result.ok
    assert thread.paths("/") == ["/own.json", "/title.json"]


def test_two_threads_of_one_program_make_the_same_call_once(store: Store) -> None:
    """The second is told that it is under way, or gets the result."""
    inside, go_on = threading.Event(), threading.Event()

    @perdure.tool(effect="external_write")
    def slow() -> str:
        _sent.append("slow")
        inside.set()
        go_on.wait()
        return "slow"

    thread = store.thread("trip", agent="planner")
    found: list[CallResult] = []
    first = threading.Thread(target=lambda: found.append(thread.call(slow, {}, id="c1")))
    first.start()
    inside.wait()

    with raises(errors.Busy, "call_busy", holder="c1", until="it is settled"):
        thread.call(slow, {}, id="c1")
    go_on.set()
    first.join()

    assert thread.call(slow, {}, id="c1") == found[0]
    assert _sent == ["slow"]


def test_what_was_done_by_hand_is_not_repeated_by_a_model_unasked(store: Store) -> None:
    """It did not ask for the first itself, so it may not know of it."""
    script = Script(use("send", to="ann"), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[send]))
    thread.call(send, {"to": "ann"}, id="c1")

    result = thread.run("go")

    assert (result.status, result.approvals[0].action) == ("waiting", "repeat")
    assert _sent == ["ann"]


def test_cancelling_the_task_of_a_call_records_it(store_url: str) -> None:
    """After `started` a cancelled external write is unknown."""

    async def main() -> str:
        inside = asyncio.Event()

        @perdure.tool(effect="external_write")
        async def slow() -> str:
            inside.set()
            await asyncio.sleep(600)
            return "never"

        async with aio.open(store_url) as store:
            thread = await store.thread("trip", agent="planner")
            task = asyncio.create_task(thread.call(slow, {}, id="c1"))
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await thread.calls())[0].state

    assert asyncio.run(main()) == "unknown"


def test_of_two_that_go_on_with_an_approved_call_one_makes_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other was told that the way is clear before the first had started; it is refused, not let through."""
    thread = store.thread("trip", agent="planner")
    inside, over = threading.Event(), threading.Event()

    @perdure.tool(effect="external_write", ask=True)
    def wire() -> str:
        _sent.append("wired")
        inside.set()
        over.wait(10)
        return "wired"

    thread.call(wire, {}, id="c1")
    thread.decide("c1", "approve")
    first = threading.Thread(target=thread.call, args=(wire, {}), kwargs={"id": "c1"})
    looked = executor.clearance

    def overtaken(*given: Any) -> Clearance:
        found = looked(*given)
        if not first.ident:
            first.start()
            inside.wait(10)
        return found

    monkeypatch.setattr(executor, "clearance", overtaken)
    with pytest.raises(errors.Conflict):
        thread.call(wire, {}, id="c1")
    over.set()
    first.join()

    assert (_sent, [call.state for call in thread.calls()]) == (["wired"], ["succeeded"])


def test_a_call_that_is_cancelled_between_two_attempts_is_not_left_as_if_somebody_were_at_it(
    store_url: str,
) -> None:
    """Its last attempt may have happened: nobody knows, and whoever comes next may find out."""

    async def main() -> str:
        tried = asyncio.Event()

        @perdure.tool(effect="external_write", idempotent=True, retry=perdure.Retry(delay=600))
        async def flaky() -> str:
            tried.set()
            raise ConnectionResetError

        async with aio.open(store_url) as store:
            thread = await store.thread("trip", agent="planner")
            task = asyncio.create_task(thread.call(flaky, {}, id="c1"))
            await tried.wait()
            while (await thread.calls())[0].attempt < 2:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await thread.calls())[0].state

    assert asyncio.run(main()) == "unknown"


def test_a_result_is_kept_though_its_commit_is_refused(store: Store) -> None:
    """The line went back while the tool ran: nothing is committed, and the ledger knows what came of the call."""
    thread = store.thread("trip", agent="planner")
    thread.put("/title.json", "Trip")

    @perdure.tool(effect="external_write")
    def wire() -> str:
        _sent.append("wired")
        thread.undo()
        return "wired"

    with pytest.raises(errors.StaleHead):
        thread.call(wire, {}, id="c1")

    assert thread.call(wire, {}, id="c1").text == "wired"
    assert _sent == ["wired"]


def test_a_key_that_another_call_holds_can_be_taken_over_if_somebody_agrees(store: Store) -> None:
    """They are asked once, and not again for the same claim."""
    thread = store.thread("trip", agent="planner")

    @perdure.tool(effect="external_write", idempotent=True, key="order-{number}")
    def order(number: int, note: str) -> str:
        _sent.append(note)
        if note == "first":
            raise ConnectionResetError
        return "ordered"

    thread.call(order, {"number": 7, "note": "first"}, id="c1")
    asked = thread.call(order, {"number": 7, "note": "second"}, id="c2")
    assert (asked.state, _sent) == ("awaiting_approval", ["first"])

    thread.decide("c2", "approve")
    result = thread.call(order, {"number": 7, "note": "second"}, id="c2")

    assert (result.state, _sent) == ("succeeded", ["first", "second"])


def test_what_was_not_done_is_not_started_again_where_another_line_has_done_it(store: Store) -> None:
    """The hook's word lets the call start once more, and the guard asks as before every start."""
    found: list[str] = ["dont_know"]

    @perdure.tool(effect="external_write")
    def wire(call: Call) -> str:
        _sent.append(call.id)
        if len(_sent) == 1:
            raise ConnectionResetError
        return "wired"

    @wire.reconcile(fences=True)
    def look(call: Call) -> Outcome:  # pyright: ignore[reportUnusedFunction]
        return call.not_done() if found[0] == "not_done" else call.dont_know()

    thread = store.thread("trip", agent="planner")
    thread.put("/title.json", "Trip")
    thread.call(wire, {}, id="here")
    fork = thread.fork("aside")
    fork.call(wire, {}, id="there")
    fork.decide("there", "approve")
    fork.call(wire, {}, id="there")
    found[0] = "not_done"

    result = thread.call(wire, {}, id="here")

    assert (result.state, _sent) == ("awaiting_approval", ["here", "there"])


def _die(pipe: Pipe, path: str, effect: str, effects: str) -> None:
    """Make a call and be killed in the middle of it."""
    import os
    import signal

    @perdure.tool(effect=effect, idempotent=effect == "local_write")  # pyright: ignore[reportArgumentType]
    def act() -> str:
        with Path(effects).open("a") as file:
            file.write("acted\n")
        os.kill(os.getpid(), signal.SIGKILL)
        return "never"

    with perdure.open(path, durability="process_crash") as store:
        store.thread("trip", agent="planner").call(act, {}, id="c1")


@pytest.mark.parametrize(
    ("effect", "state", "times"),
    [("read_only", "succeeded", 2), ("local_write", "succeeded", 2), ("external_write", "unknown", 1)],
)
def test_a_call_that_was_cut_off_follows_the_rules_of_its_effect(
    tmp_path: Path, effect: str, state: str, times: int
) -> None:
    """Asked for again: what may be repeated is; an external write is not, and nobody knows what became of it."""
    path, effects = str(tmp_path / "agents.db"), tmp_path / "effects"
    with running(_die, path, effect, str(effects)) as owner:
        owner.process.join()

    @perdure.tool(effect=effect, idempotent=effect == "local_write")  # pyright: ignore[reportArgumentType]
    def act() -> str:
        with effects.open("a") as file:
            file.write("acted\n")
        return "done"

    with perdure.open(path) as store:
        result = store.thread("trip").call(act, {}, id="c1")

        assert result.state == state
        assert effects.read_text().count("acted") == times
        assert store.verify().ok
