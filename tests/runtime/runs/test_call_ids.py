"""Ids of calls that a vendor reuses, or that are odd; equal calls that are both intended."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Call, Store
from perdure.testing import Script, say, step, use

ODD = ["a.b.c", "ünïcödé-☃", "../../etc", "x" * 300, "with space\n", "\u202eright-to-left", ""]

_seen: list[tuple[str, str]] = []


@perdure.tool(effect="external_write")
def send(to: str, call: Call) -> str:
    """Send something."""
    _seen.append((call.id, call.key))
    call.scratch.put("/half.json", to)
    call.put(f"/sent/{len(_seen)}.json", to)
    return f"sent to {to}"


@perdure.tool(effect="read_only")
def look(q: str) -> str:
    """Look something up."""
    return f"saw {q}"


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    """Forget what other tests sent."""
    _seen.clear()


def test_an_id_that_the_vendor_reuses_in_one_turn_names_two_calls(store: Store) -> None:
    """Side by side in one step, and again in the next: all distinct, all settled."""
    script = Script(
        step(use("look", id="call_1", q="a"), use("look", id="call_1", q="b")),
        use("look", id="call_1", q="c"),
        say("Done."),
    )
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[look]))

    thread.run("go")

    calls = thread.calls()
    assert len({call.id for call in calls}) == 3
    assert [call.state for call in calls] == ["succeeded"] * 3
    assert {call.vendor_id for call in calls} == {"call_1"}


def test_each_result_of_a_reused_id_belongs_to_its_own_call(store: Store) -> None:
    """What the model is shown pairs every call with the result that it came to."""
    script = Script(step(use("look", id="x", q="a"), use("look", id="x", q="b")), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[look]))

    thread.run("go")

    asked, answered = script.contexts[-1].messages[1:3]
    said = {result.call_id: str(result.content) for result in answered.tool_results}
    assert [call.id for call in asked.tool_calls] == list(said)
    assert all(f"saw {name}" in text for name, text in zip("ab", said.values(), strict=True))


@pytest.mark.parametrize("id", ODD, ids=range(len(ODD)))
def test_an_odd_id_is_only_what_the_vendor_called_it(store: Store, id: str) -> None:
    """Our own id is plain, the call is settled, and its scratch is gone."""
    script = Script(use("send", id=id, to="ann"), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[send]))

    thread.run("go")

    (call,) = thread.calls()
    assert call.state == "succeeded"
    assert call.id.replace("-", "").isalnum()
    assert thread.paths("/") == ["/sent/1.json"]
    assert store.verify().ok


@pytest.mark.parametrize(
    "id", [each for each in ODD if each.strip() and "\n" not in each and len(each) < 200]
)
def test_an_odd_id_of_a_call_by_hand_is_settled_once(store: Store, id: str) -> None:
    """By hand the caller's id is the call's: given twice it is made once; or it is refused before anything."""
    thread = store.thread("trip", agent="planner")
    try:
        first = thread.call(send, {"to": "ann"}, id=id)
    except perdure.errors.Invalid:
        assert _seen == []
        return

    again = thread.call(send, {"to": "ann"}, id=id)

    assert again == first
    assert len(_seen) == 1
    assert thread.paths("/") == ["/sent/1.json"]


def test_two_equal_calls_of_one_step_are_both_made(store: Store) -> None:
    """Nothing says that they are one: each has an id and a key of its own, one after another."""
    script = Script(step(use("send", to="ann"), use("send", to="ann")), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[send]))

    result = thread.run("go")

    assert result.status == "succeeded"
    assert len({id for id, _ in _seen}) == len({key for _, key in _seen}) == 2
    assert thread.paths("/sent") == ["/sent/1.json", "/sent/2.json"]


def test_two_equal_calls_of_two_steps_are_both_made(store: Store) -> None:
    """A repeat that this line's history holds is the model's business."""
    script = Script(use("send", to="ann"), use("send", to="ann"), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[send]))

    result = thread.run("go")

    assert result.status == "succeeded"
    assert len(_seen) == 2


def test_many_equal_calls_of_one_step_are_settled_one_after_another(store: Store) -> None:
    """Ten at once, with others between: all distinct, all settled, in the order in which they were asked for."""
    parts = [part for number in range(10) for part in (use("send", to="ann"), use("look", q=str(number)))]
    thread = store.thread(
        "trip", agent=Agent("planner", backend=Script(step(*parts), say("Done.")), tools=[send, look])
    )

    thread.run("go")

    results = thread.transcript()[2].message.tool_results
    assert [result.call_id for result in results] == [
        call.id for call in thread.transcript()[1].message.tool_calls
    ]
    assert [call.state for call in thread.calls()] == ["succeeded"] * 20
    assert len({key for _, key in _seen}) == 10


def test_equal_calls_under_a_key_made_of_their_arguments_are_one(store: Store) -> None:
    """The control: what tells equal calls apart above is the key of each; where they share one, one is made."""

    @perdure.tool(name="send", effect="external_write", key="letter-{to}")
    def once(to: str, call: Call) -> str:
        """Send something once."""
        _seen.append((call.id, call.key))
        return f"sent to {to}"

    script = Script(step(use("send", to="ann"), use("send", to="ann")), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[once]))

    result = thread.run("go")

    assert result.status == "succeeded"
    assert len(_seen) == 1
    assert [call.state for call in thread.calls()] == ["succeeded"] * 2
