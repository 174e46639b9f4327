"""The same input id after a failure: the run goes on from its last step, and repeats nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Call, Store, Thread, aio, errors
from perdure.model.event import ConflictCovered, RunStarted
from perdure.model.run import HeadPolicy, OnFailure
from perdure.runtime import failpoints
from perdure.runtime.agent.plugin import Moment, Plugin
from perdure.runtime.failpoints import Point
from perdure.testing import Script, fail, say, use
from tests.coded import raises
from tests.crash.processes import Pipe, running
from tests.runtime.runs.world import World


def sender(world: World, *, fails: bool, loses: bool = False) -> Agent:
    """An agent that sends one letter, after which its model cannot be reached, or has done."""

    @perdure.tool(effect="external_write")
    def send(to: str, call: Call) -> str:
        world.do(to, call.key, call.attempt)
        call.put("/sent.json", to)
        if loses:
            raise TimeoutError
        return f"sent to {to}"

    script = Script(use("send", to="ann"), fail() if fails else say("Sent."))
    return Agent("planner", backend=script, tools=[send])


@perdure.tool(effect="read_only")
def look() -> str:
    """Look."""
    return "seen"


def failed(store: Store, world: World, policy: HeadPolicy = "each_step", keep: OnFailure = "restore") -> str:
    """The id of a run of input 'm1' that sent its letter and failed after it."""
    thread = store.thread("trip", agent=sender(world, fails=True))
    with pytest.raises(errors.RunFailed):
        thread.run("go", id="m1", head_policy=policy, on_failure=keep)
    return thread.runs()[-1].id


def said(thread: Thread) -> list[str]:
    """Who said something, in order."""
    return [entry.role for entry in thread.transcript()]


@pytest.mark.parametrize("policy", ["each_step", "on_success"])
@pytest.mark.parametrize("keep", ["restore", "keep"])
def test_a_failed_run_goes_on_from_its_last_step(
    store: Store, world: World, policy: HeadPolicy, keep: OnFailure
) -> None:
    """The letter is not sent again, its state is there again, and the message stands once."""
    run = failed(store, world, policy, keep)
    thread = store.thread("trip", agent=sender(world, fails=False))

    result = thread.run("go", id="m1")

    assert (result.run, result.status, result.text) == (run, "succeeded", "Sent.")
    assert world.counted() == {"ann": 1}
    assert thread.get("/sent.json") == "ann"
    assert said(thread) == ["user", "assistant", "tool", "assistant"]
    assert thread.run("go", id="m1") == result
    assert store.verify().ok


def test_a_retry_that_fails_puts_the_state_back_and_can_be_retried(store: Store, world: World) -> None:
    """As often as it takes: each failure restores what was there after the input."""
    failed(store, world)
    thread = store.thread("trip", agent=sender(world, fails=True))
    with pytest.raises(errors.RunFailed):
        thread.run("go", id="m1")
    between = thread.paths("/")

    store.thread("trip", agent=sender(world, fails=False)).run("go", id="m1")

    assert between == []
    assert (thread.get("/sent.json"), world.counted()) == ("ann", {"ann": 1})


def test_without_retry_the_first_failure_is_raised_again(store: Store, world: World) -> None:
    """A control: nothing is run, and nothing is written."""
    failed(store, world)
    thread = store.thread("trip", agent=sender(world, fails=False))
    head, runs = thread.head, thread.runs()

    with pytest.raises(errors.RunFailed):
        thread.run("go", id="m1", retry=False)

    assert (thread.head, thread.runs()) == (head, runs)


def test_a_retry_is_refused_while_an_external_write_is_unknown(store: Store, world: World) -> None:
    """It may have happened; once somebody has resolved it, the same input goes on."""
    raising = sender(world, fails=True, loses=True)
    thread = store.thread("trip", agent=raising)
    with pytest.raises(errors.RunFailed):
        thread.run("go", id="m1")
    again = store.thread("trip", agent=sender(world, fails=False))

    with pytest.raises(errors.Conflict):
        again.run("go", id="m1")
    again.resolve(again.calls()[0].id, "done", by="ann")

    assert again.run("go", id="m1").status == "succeeded"
    assert world.counted() == {"ann": 1}


@pytest.mark.parametrize("what", ["run", "message", "call", "undo"])
def test_a_retry_is_refused_after_later_turns(store: Store, world: World, what: str) -> None:
    """What was said since rests on the failure; after an undo of the run there is nothing to go on from.

    The error names what the run has done outside: the same words under another id may do it again.
    """
    failed(store, world)
    made = tuple(call.id for call in store.thread("trip").calls())
    thread = store.thread("trip", agent=Agent("planner", backend=Script(say("Hello."))))
    if what == "run":
        thread.run("other")
    elif what == "message":
        thread.add([{"role": "user", "content": "hm"}], api="openai-chat")
    elif what == "call":
        thread.call(look, {}, id="c1")
    else:
        thread.undo()
    head = thread.head

    code = "failed_run_undone" if what == "undo" else "failed_run_followed"
    with raises(errors.Conflict, code, calls=made):
        store.thread("trip", agent=sender(world, fails=False)).run("go", id="m1")

    assert (thread.head, len(made)) == (head, 1)


def test_a_run_that_did_nothing_outside_names_no_call(store: Store) -> None:
    """Control: its input can be given under another id without a look at what it did."""
    agent = Agent("planner", backend=Script(use("look"), fail()), tools=[look])
    with pytest.raises(errors.RunFailed):
        store.thread("trip", agent=agent).run("go", id="m1")
    thread = store.thread("trip", agent=Agent("planner", backend=Script(say("Hello.")), tools=[look]))
    thread.run("other")

    with raises(errors.Conflict, "failed_run_followed", calls=()):
        thread.run("go", id="m1")


def test_a_path_that_another_wrote_since_is_covered_and_named(store: Store, world: World) -> None:
    """A state write by hand says nothing in the conversation, so the run goes on over it."""
    failed(store, world)
    thread = store.thread("trip", agent=sender(world, fails=False))
    thread.put("/sent.json", "other")
    thread.put("/title.json", "Trip")

    thread.run("go", id="m1")

    covered = [
        event.path for entry in thread.log() for event in entry.events if isinstance(event, ConflictCovered)
    ]
    assert (thread.get("/sent.json"), thread.get("/title.json")) == ("ann", "Trip")
    assert covered == ["/sent.json"]


def test_a_run_that_failed_at_its_start_begins_again(store: Store) -> None:
    """The plug-in's part of the start is made by the retry."""
    broken: list[bool] = [True]

    def start(moment: Moment) -> None:
        if broken:
            raise ConnectionError
        moment.put("/opened.json", value=True)

    agent = Agent("planner", backend=Script(say("Hello.")), plugins=[Plugin("opening", run_start=start)])
    thread = store.thread("trip", agent=agent)
    with pytest.raises(errors.RunFailed):
        thread.run("go", id="m1")
    broken.clear()

    thread.run("go", id="m1")

    assert thread.get("/opened.json") is True


def test_a_retry_is_seen_as_an_open_run_in_the_log(store: Store, world: World) -> None:
    """Its commit says that the run was started again."""
    failed(store, world)
    thread = store.thread("trip", agent=sender(world, fails=False))

    thread.run("go", id="m1")

    events = [event for entry in thread.log() for event in entry.events]
    assert sum(isinstance(event, RunStarted) for event in events) == 2
    assert len(thread.turns()) == 1


def test_a_stream_shows_the_retry(store: Store, world: World) -> None:
    """Its last event has the result."""
    failed(store, world)
    thread = store.thread("trip", agent=sender(world, fails=False))

    events = list(thread.stream("go", id="m1"))

    assert events[-1].type == "run.ended"
    assert world.counted() == {"ann": 1}


def test_the_awaitable_face_retries_too(store_url: str, world: World) -> None:
    """The same rules, on an event loop."""
    with perdure.open(store_url) as store:
        failed(store, world)

        async def main() -> str:
            async with aio.open(store_url) as other:
                thread = await other.thread("trip", agent=sender(world, fails=False))
                with pytest.raises(errors.RunFailed):
                    await thread.run("go", id="m1", retry=False)
                return (await thread.run("go", id="m1")).text

        assert asyncio.run(main()) == "Sent."
    assert world.counted() == {"ann": 1}


def test_a_decision_made_elsewhere_lets_the_same_input_go_on(store: Store) -> None:
    """Whoever gives the input again after the decision gets the end of the run, not that it waits."""

    @perdure.tool(effect="external_write", ask=True)
    def pay() -> str:
        return "paid"

    agent = Agent("planner", backend=Script(use("pay"), say("Done.")), tools=[pay])
    thread = store.thread("trip", agent=agent)
    waiting = thread.run("go", id="m1")
    still = thread.run("go", id="m1")
    store.thread("trip").decide(waiting.approvals[0].call, "approve", by="ann")

    result = thread.run("go", id="m1")

    assert (still.status, result.run, result.text) == ("waiting", waiting.run, "Done.")


def _retry_and_die(pipe: Pipe, path: str, world: str, point: Point) -> None:
    """Retry, and be killed at a point of the retried run."""
    failpoints.arm(point, lambda: os.kill(os.getpid(), signal.SIGKILL))
    agent = two_letters(World(world), fails=False)
    with perdure.open(path, durability="process_crash") as store:
        store.thread("trip", agent=agent).run("go", id="m1")


def two_letters(world: World, *, fails: bool) -> Agent:
    """An agent that sends two letters, one after the other; its model fails before the second, or not."""

    @perdure.tool(effect="external_write")
    def send(to: str, call: Call) -> str:
        world.do(to, call.key, call.attempt)
        failpoints.hit("during_effect")
        call.put(f"/sent/{to}.json", True)
        return f"sent to {to}"

    second = fail() if fails else use("send", to="bob")
    return Agent("planner", backend=Script(use("send", to="ann"), second, say("Sent.")), tools=[send])


@pytest.mark.parametrize(
    ("point", "bob"),
    [
        ("before_intent", "succeeded"),
        ("after_intent", "unknown"),
        ("during_effect", "unknown"),
        ("while_recording", "unknown"),
        ("after_turn", "succeeded"),
        ("before_finish", "succeeded"),
        ("after_finish", "succeeded"),
    ],
)
def test_a_retry_that_is_killed_repeats_nothing(tmp_path: Path, world: World, point: Point, bob: str) -> None:
    """Given once more the run goes on: each letter is sent at most once, and the state is what was sent."""
    path = str(tmp_path / "agents.db")
    with perdure.open(path) as store, pytest.raises(errors.RunFailed):
        store.thread("trip", agent=two_letters(world, fails=True)).run("go", id="m1")
    with running(_retry_and_die, path, world.path, point) as owner:
        owner.process.join()
    with perdure.open(path) as store:
        thread = store.thread("trip", agent=two_letters(world, fails=False))

        result = thread.run("go", id="m1")

        assert (result.status, world.repeated()) == ("succeeded", [])
        assert [call.state for call in thread.calls()] == ["succeeded", bob]
        assert thread.get("/sent/ann.json") is True
        assert said(thread).count("user") == 1
        assert store.verify().ok


def test_a_failure_and_its_refusals_say_how_to_try_again(store: Store, world: World) -> None:
    """The error, `resume` without the run, and a name that does not exist; the way that they name works."""
    thread = store.thread("trip", agent=sender(world, fails=True))
    with pytest.raises(errors.RunFailed) as first:
        thread.run("go", id="m1")
    run = thread.runs()[-1].id
    with pytest.raises(errors.NotFound) as nothing:
        thread.resume()
    with pytest.raises(AttributeError, match=r"resume\(run, retry=True\)"):
        _ = thread.retry  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]

    assert f"resume('{run}', retry=True)" in str(first.value)
    assert (nothing.value.code, nothing.value.facts["run"]) == ("last_run_failed", run)
    assert f"resume('{run}', retry=True)" in str(nothing.value)
    mended = store.thread("trip", agent=sender(world, fails=False))
    assert mended.resume(run, retry=True).text == "Sent."
