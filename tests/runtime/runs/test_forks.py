"""A run on a fork at turn k sees messages, thread state and agent state as of k, and nothing later."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Call, Store, Thread, errors
from perdure.engines.contract import Receipt, Write
from perdure.model.run import HeadPolicy
from perdure.testing import Script, say, use
from tests.coded import raises
from tests.runtime.runs.injecting import Injecting, Wire

TURNS = 4


@perdure.tool(effect="local_write", idempotent=True)
def count(call: Call) -> str:
    """Count in the thread's state and in the agent's map."""
    number = call.get("/count.json", default=0) + 1
    call.put("/count.json", number)
    call.agent.put("/total.json", call.agent.get("/total.json", default=0) + 1)
    return f"counted {number}"


@perdure.tool(effect="external_write")
def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


@perdure.tool(effect="read_only")
def look(call: Call) -> dict[str, object]:
    """Say what is there."""
    agent = call.agent.get("/total.json", default=0)
    return {"count": call.get("/count.json", default=0), "total": agent, "paths": call.paths("/")}


def planner(*items: object) -> Agent:
    """An agent that takes these steps."""
    return Agent("planner", backend=Script(*items), tools=[count, send, look])  # pyright: ignore[reportArgumentType]


def counted(store: Store, *, policy: HeadPolicy = "each_step") -> Thread:
    """A thread of some turns, each of which counts one further."""
    for number in range(1, TURNS + 1):
        thread = store.thread("trip", agent=planner(use("count"), say(f"That is {number}.")))
        thread.run(f"Count to {number}", head_policy=policy)
    return store.thread("trip")


@pytest.mark.parametrize("policy", ["each_step", "on_success"])
@pytest.mark.parametrize("turn", range(TURNS))
def test_a_run_on_a_fork_sees_the_moment_of_the_fork(store: Store, turn: int, policy: HeadPolicy) -> None:
    """Before every turn: its words, its state, and the agent's map as it was then."""
    thread = counted(store, policy=policy)
    thread.fork("aside", at=thread.turns()[turn].before)
    script = Script(use("look"), say("Seen."))
    agent = Agent("planner", backend=script, tools=[look])
    fork = store.thread("trip", agent=agent, timeline="aside")

    fork.run("What is there?", head_policy=policy)

    words = [message.text for message in script.contexts[0].messages if message.text]
    expected = [text for k in range(1, turn + 1) for text in (f"Count to {k}", f"That is {k}.")]
    assert words == [*expected, "What is there?"]
    seen = str(fork.transcript()[-2].message.tool_results)
    assert f'"count":{turn},' in seen
    assert f'"total":{turn},' in seen


def test_at_the_head_a_run_sees_everything(store: Store) -> None:
    """A control: without a fork in the past nothing is hidden."""
    counted(store)
    thread = store.thread("trip", agent=planner(use("look"), say("Seen.")))

    thread.run("What is there?")

    assert f'"count":{TURNS},"total":{TURNS},' in str(thread.transcript()[-2].message.tool_results)


def test_a_run_on_a_fork_changes_nothing_elsewhere(store: Store) -> None:
    """Neither main, nor the agent's map, until the fork is promoted."""
    thread = counted(store)
    head = thread.head
    thread.fork("aside", at=thread.turns()[1].before)

    store.thread("trip", agent=planner(use("count"), say("Two.")), timeline="aside").run("Go on")

    assert thread.head == head
    assert thread.on("aside").get("/count.json") == 2
    assert thread.on("aside").agent_map().get("/total.json") == 2
    assert store.agent("planner").get("/total.json") == TURNS


def test_what_main_does_after_the_fork_is_not_seen_there(store: Store) -> None:
    """Later turns, later state and later changes of the agent's map stay on their own line."""
    thread = counted(store)
    thread.fork("aside")
    store.thread("trip", agent=planner(use("count"), say("More."))).run("And more")
    store.agent("planner").put("/later.json", True)
    script = Script(use("look"), say("Seen."))
    fork = store.thread("trip", agent=Agent("planner", backend=script, tools=[look]), timeline="aside")

    fork.run("What is there?")

    assert "And more" not in [message.text for message in script.contexts[0].messages]
    assert f'"count":{TURNS},"total":{TURNS},' in str(fork.transcript()[-2].message.tool_results)
    assert fork.agent_map().paths("/") == ["/total.json"]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_bound_is_inherited_by_forks_of_forks(store: Store, depth: int) -> None:
    """No call beyond it is made there, however often it is forked; the model is told, and the run goes on."""
    thread = counted(store)
    line = thread.fork("f0", effect_max="read_only")
    for number in range(1, depth):
        line = line.fork(f"f{number}")
    script = Script(use("send", to="ann"), use("look"), say("Fine."))
    agent = Agent("planner", backend=script, tools=[send, look])
    fork = store.thread("trip", agent=agent, timeline=line.timeline)

    result = fork.run("Send it")

    states = [call.state for call in fork.calls(run=result.run)]
    assert (result.text, states) == ("Fine.", ["denied", "succeeded"])
    assert "read_only" in script.contexts[0].system


@pytest.mark.parametrize(("asked", "state"), [("privileged", "denied"), ("none", "denied")])
def test_a_fork_of_a_bounded_fork_cannot_reach_further(store: Store, asked: str, state: str) -> None:
    """A wider bound is as good as none; a narrower one holds."""
    thread = counted(store)
    thread.fork("f0", effect_max="local_write").fork("f1", effect_max=asked)  # pyright: ignore[reportArgumentType]
    agent = planner(use("send", to="ann"), say("Fine."))
    fork = store.thread("trip", agent=agent, timeline="f1")

    fork.run("Send it")

    assert [call.state for call in fork.calls() if call.tool == "send"] == [state]


def test_without_a_bound_the_same_call_is_made(store: Store) -> None:
    """A control: it is the bound that stops it."""
    thread = counted(store)
    thread.fork("aside")
    fork = store.thread("trip", agent=planner(use("send", to="ann"), say("Fine.")), timeline="aside")

    fork.run("Send it")

    assert [call.state for call in fork.calls() if call.tool == "send"] == ["succeeded"]


def test_the_kept_line_of_a_failed_run_is_bounded_like_its_own(store: Store) -> None:
    """Whoever forks from what a bounded run left behind reaches no further than the run did."""
    counted(store).fork("f0", effect_max="read_only")
    broken = store.thread("trip", agent=planner(use("look")), timeline="f0")
    with pytest.raises(errors.RunFailed):
        broken.run("look", head_policy="on_success")
    kept = broken.runs()[-1].line
    assert kept is not None
    broken.on(kept).fork("f1")
    fork = store.thread("trip", agent=planner(use("send", to="ann"), say("Fine.")), timeline="f1")

    fork.run("Send it")

    assert [call.state for call in fork.calls() if call.tool == "send"] == ["denied"]


def test_a_call_by_hand_is_bounded_too(store: Store) -> None:
    """The bound belongs to the line, not to an agent's run."""
    fork = counted(store).fork("f0", effect_max="read_only")

    result = fork.call(send, {"to": "ann"}, id="c1")

    assert (result.state, result.ok) == ("denied", False)


def test_a_bounded_fork_can_be_repeated_safely(store: Store) -> None:
    """The same op_id again, as after a write in doubt, gives the line that it began."""
    thread = counted(store)
    first = thread.fork("f0", effect_max="read_only", op_id="fork-1")

    again = thread.fork("f0", effect_max="read_only", op_id="fork-1")

    assert again.head == first.head
    with pytest.raises(errors.Conflict):
        thread.fork("f0", effect_max="local_write", op_id="fork-2")


def test_a_fork_that_failed_leaves_no_bound_behind(store: Store) -> None:
    """The name is free, and whoever takes it is bounded by what they ask for alone."""
    thread = counted(store)
    with pytest.raises(errors.NotFound):
        thread.fork("f0", at="HEAD~1000", effect_max="read_only")

    result = thread.fork("f0").call(send, {"to": "ann"}, id="c1")

    assert result.state == "succeeded"


def test_a_fork_and_its_bound_are_one_write(store_url: str) -> None:
    """No run can begin on the line before it is bounded, wherever the process stops."""
    injecting = Injecting(store_url)
    thread = counted(injecting.store)
    seen: list[Write] = []

    def look_on(wire: Wire, write: Write) -> Receipt:
        seen.append(write)
        return wire.inner.apply(write)

    injecting.wire.arm(look_on, nth=1, times=100)

    thread.fork("f0", effect_max="read_only")

    assert [([move.timeline for move in write.moves], len(write.cells)) for write in seen] == [(["f0"], 1)]


def test_a_fork_with_another_bound_is_another_fork(store: Store) -> None:
    """The op_id stands for all that was asked for; the line keeps the bound that it began with."""
    thread = counted(store)
    thread.fork("f0", effect_max="read_only", op_id="fork-1")

    for bound in ("local_write", None):
        with pytest.raises(errors.OpReused):
            thread.fork("f0", effect_max=bound, op_id="fork-1")  # pyright: ignore[reportArgumentType]

    assert thread.on("f0").call(send, {"to": "ann"}, id="c1").state == "denied"


def test_of_two_forks_of_one_name_the_first_keeps_its_bound(store_url: str) -> None:
    """Whoever comes second, even at the same moment, is told that the name is taken."""
    injecting = Injecting(store_url)
    thread = counted(injecting.store)

    def first(wire: Wire, write: Write) -> Receipt:
        wire.disarm()
        thread.fork("f0", effect_max="none")
        return wire.inner.apply(write)

    injecting.wire.arm(first, nth=1)

    with raises(errors.Conflict, "timeline_exists", timeline="f0"):
        thread.fork("f0", effect_max="privileged")

    assert thread.on("f0").call(look, {}, id="c1").state == "denied"
