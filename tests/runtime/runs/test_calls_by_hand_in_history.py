"""Calls by hand and the history of their line: what they change, what they go by, and when they are in it."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Call, Store, errors
from perdure.runtime.calls.direct_call import CallResult
from perdure.testing import Script, say, use
from tests.coded import raises

_sent: list[str] = []


@perdure.tool(effect="external_write")
def send(to: str, call: Call) -> str:
    """Send something."""
    _sent.append(to)
    call.put(f"/sent/{to}.json", True)
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


def test_what_a_call_changes_is_applied_once_though_its_line_went_back_meanwhile(store: Store) -> None:
    """The refusal says that it was not; asked for again the call is not run, and its changes are committed once."""
    thread = store.thread("trip", agent="planner")
    thread.put("/title.json", "Trip")

    @perdure.tool(effect="external_write")
    def wire(call: Call) -> str:
        _sent.append("wired")
        call.put("/wired.json", True)
        thread.undo()
        return "wired"

    with pytest.raises(errors.StaleHead) as stale:
        thread.call(wire, {}, id="c1")
    assert "'c1' is succeeded" in stale.value.because
    assert thread.paths("/") == []

    results = [thread.call(wire, {}, id="c1") for _ in range(2)]

    assert [result.text for result in results] == ["wired", "wired"]
    assert (_sent, thread.get("/wired.json"), len(thread.log())) == (["wired"], True, 1)
    thread.undo()
    assert thread.call(wire, {}, id="c1").ok
    assert thread.paths("/") == []  # a control: what was applied and undone is not applied again


def test_changes_that_were_left_are_not_applied_on_another_line(store: Store) -> None:
    """A fork gets the result; the change belongs to the line that the call was made on."""
    thread = store.thread("trip", agent="planner")
    thread.put("/title.json", "Trip")
    fork = thread.fork("aside")

    @perdure.tool(effect="external_write")
    def wire(call: Call) -> str:
        call.put("/wired.json", True)
        thread.undo()
        return "wired"

    with pytest.raises(errors.StaleHead):
        thread.call(wire, {}, id="c1")

    assert fork.call(wire, {}, id="c1").text == "wired"
    assert fork.paths("/") == ["/title.json"]


@pytest.mark.parametrize("coded", [True, False])
def test_an_edited_call_goes_by_the_first_and_by_the_edited_arguments_alone(
    store: Store, *, coded: bool
) -> None:
    """Before it runs and after it; any others are another call, and a conflict."""
    thread = store.thread("trip", agent=Agent("planner", tools=[pay] if coded else []))
    thread.call(pay, {"amount": 3}, id="c1")
    thread.decide("c1", "edit", value={"amount": 2}, by="ann")

    for _ in range(2):
        with raises(errors.Conflict, "call_id_reused"):
            thread.call(pay, {"amount": 300}, id="c1")
        assert thread.call(pay, {"amount": 3}, id="c1").text.endswith("paid 2")
        assert thread.call(pay, {"amount": 2}, id="c1").text.endswith("paid 2")

    assert _sent == ["2"]


def test_an_approved_call_does_not_take_other_arguments(store: Store) -> None:
    """That somebody agreed to one payment says nothing of another."""
    thread = store.thread("trip", agent="planner")
    thread.call(pay, {"amount": 3}, id="c1")
    thread.decide("c1", "approve", by="ann")

    with raises(errors.Conflict, "call_id_reused"):
        thread.call(pay, {"amount": 300}, id="c1")

    assert _sent == []


def test_refused_arguments_do_not_stand_for_other_refused_ones(store: Store) -> None:
    """Neither has a fingerprint; they are told apart by what they are."""
    thread = store.thread("trip", agent="planner")
    first = thread.call(send, {"to": 7}, id="c1")

    with raises(errors.Conflict, "call_id_reused"):
        thread.call(send, {"to": 8}, id="c1")

    assert thread.call(send, {"to": 7}, id="c1") == first


def calling(store: Store, inside: list[CallResult]) -> Agent:
    """An agent whose tool makes a call by hand on the thread of its own run."""

    @perdure.tool(effect="read_only")
    def visit() -> str:
        inside.append(store.thread("trip").call(send, {"to": "ann"}, id="c1"))
        return "visited"

    return Agent("planner", backend=Script(use("visit"), say("Done.")), tools=[visit])


def test_a_call_beside_a_run_is_in_the_history_of_that_run(store: Store) -> None:
    """An equal call by hand after it is not asked about: nothing was undone, and no model is involved."""
    inside: list[CallResult] = []
    thread = store.thread("trip", agent=calling(store, inside))
    thread.run("go")

    again = thread.call(send, {"to": "ann"}, id="c2")

    assert (inside[0].state, again.state, _sent) == ("succeeded", "succeeded", ["ann", "ann"])


@pytest.mark.parametrize("place", ["undone", "before", "middle"])
def test_a_call_beside_a_run_is_in_no_history_without_its_commit(store: Store, place: str) -> None:
    """A control: after an undo of the run, on a fork before it, and on one within the run before the call."""
    inside: list[CallResult] = []
    thread = store.thread("trip", agent=calling(store, inside))
    thread.put("/title.json", "Trip")
    run = thread.run("go").run
    if place == "undone":
        thread.undo()
        line = thread
    else:
        commits = [step.digest for step in reversed(thread.log()) if step.run == run]
        line = thread.fork("aside", at=thread.turns()[-1].before if place == "before" else commits[0])

    again = line.call(send, {"to": "ann"}, id="c2")

    assert (again.state, _sent) == ("awaiting_approval", ["ann"])
