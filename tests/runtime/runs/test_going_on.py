"""Going on: steering, resuming at start-up, what waits, and what a result tells."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Agent, Call, Message, Store, Text, Thread, aio, errors
from perdure.model.run import Usage
from perdure.runtime.agent.plugin import Moment, Plugin
from perdure.testing import Script, crash, fail, say, step, use
from perdure.testing.script import Item, ScriptStep
from tests.coded import raises
from tests.crash.processes import Pipe, running


@perdure.tool(effect="read_only")
def look(q: str = "x") -> str:
    """Look something up."""
    return f"saw {q}"


@perdure.tool(effect="external_write", ask=True)
def pay(amount: int, call: Call) -> str:
    """Pay, if somebody agrees."""
    call.put(f"/paid/{amount}.json", True)
    return f"paid {amount}"


def planner(*items: Item, **options: object) -> Agent:
    """An agent that takes these steps."""
    return Agent("planner", backend=Script(*items), tools=[look, pay], **options)  # pyright: ignore[reportArgumentType]


def steered(store: Store, phase: str, *words: str, ids: tuple[str, ...] = ()) -> Plugin:
    """A plug-in that says something to its own run, the first time that it comes to a phase."""
    left = list(words)

    def hook(moment: Moment) -> None:
        for number, each in enumerate(left):
            store.thread("trip").steer(each, id=ids[number] if ids else None)
        left.clear()

    hooks = {phase: hook}
    return Plugin("steerer", **hooks)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("phase", ["before_inference", "after_inference", "step_end"])
@pytest.mark.parametrize("policy", ["each_step", "on_success"])
def test_what_is_said_in_mid_run_is_heard_at_the_next_step(store: Store, phase: str, policy: str) -> None:
    """Whenever it is said: once, before the next inference, and it is in the transcript."""
    script = Script(use("look"), say("Done."))
    agent = Agent("planner", backend=script, tools=[look], plugins=[steered(store, phase, "hurry")])
    thread = store.thread("trip", agent=agent)

    result = thread.run("go", head_policy=policy)  # pyright: ignore[reportArgumentType]

    assert result.text == "Done."
    assert [message.text for message in script.contexts[0].messages] == ["go"]
    assert [message.text for message in script.contexts[1].messages if message.role == "user"] == [
        "go",
        "hurry",
    ]
    assert [entry.text for entry in thread.transcript() if entry.role == "user"] == ["go", "hurry"]
    assert len(thread.turns()) == 1


def test_several_things_said_at_once_are_heard_in_their_order(store: Store) -> None:
    """In the order in which they were said."""
    words = [f"word {number}" for number in range(5)]
    agent = planner(use("look"), say("Done."), plugins=[steered(store, "step_end", *words)])
    thread = store.thread("trip", agent=agent)

    thread.run("go")

    assert [entry.text for entry in thread.transcript() if entry.role == "user"] == ["go", *words]


def test_the_same_words_under_the_same_id_are_heard_once(store: Store) -> None:
    """Also if they are said again after they were heard."""
    agent = planner(
        use("look"), say("Done."), plugins=[steered(store, "step_end", "hurry", "hurry", ids=("s1", "s1"))]
    )
    thread = store.thread("trip", agent=agent)

    thread.run("go")

    assert [entry.id for entry in thread.transcript() if entry.text == "hurry"] == ["s1"]


def test_where_no_run_is_nobody_can_be_steered(store: Store) -> None:
    """Before the first run, after the last, and while one waits: there is nobody to hear it."""
    thread = store.thread("trip", agent=planner(use("pay", amount=1), say("Done.")))
    with raises(errors.Conflict, "run_to_steer_missing", timeline="main"):
        thread.steer("hello?")
    thread.run("go")

    with raises(errors.Conflict, "run_to_steer_missing", timeline="main"):
        thread.steer("hello?")
    with raises(errors.Invalid, "input_role_invalid", role="assistant"):
        thread.steer(Message("assistant", (Text("I am you"),)))


def test_words_to_a_run_that_was_cut_off_are_heard_when_it_goes_on(store: Store) -> None:
    """They are durable before they are heard."""
    cut = [True]

    def hook(moment: Moment) -> None:
        if cut and len(moment.context.messages if moment.context else ()) > 1:
            cut.clear()
            raise KeyboardInterrupt

    agent = planner(use("look"), say("Done."), plugins=[Plugin("cut", before_inference=hook)])
    thread = store.thread("trip", agent=agent)
    with pytest.raises(KeyboardInterrupt):
        thread.run("go")
    thread.steer("still there?")

    result = thread.resume()

    assert result.status == "succeeded"
    assert [entry.text for entry in thread.transcript() if entry.role == "user"] == ["go", "still there?"]


def test_store_resume_goes_on_with_everything_of_its_agent(store: Store) -> None:
    """What was cut off and what was decided goes on; what still waits, and what is another agent's, is left."""

    @perdure.tool(effect="read_only", name="look")
    def cut() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken = Agent("planner", backend=Script(use("look"), say("Done.")), tools=[cut])
        store.thread("cut-off", agent=broken).run("go")
    for name in ("decided", "undecided"):
        store.thread(name, agent=planner(use("pay", amount=1), say("Paid."))).run("go")
    other = Agent("other", backend=Script(use("pay", amount=1), say("Paid.")), tools=[pay])
    store.thread("others", agent=other).run("go")
    for name in ("decided", "others"):
        thread = store.thread(name)
        thread.decide(thread.approvals()[0].call, "approve")

    results = store.resume(planner(say(""), say("Went on.")))

    states = {
        name: store.thread(name).runs()[0].state for name in ("cut-off", "decided", "undecided", "others")
    }
    assert states == {
        "cut-off": "succeeded",
        "decided": "succeeded",
        "undecided": "waiting",
        "others": "waiting",
    }
    assert sorted(result.status for result in results) == ["succeeded", "succeeded", "waiting"]
    assert store.verify().ok


def test_store_resume_tells_what_failed_and_goes_on(store: Store) -> None:
    """One run that fails is in the list, and keeps no other from going on."""
    for name in ("a", "b"):
        thread = store.thread(name, agent=planner(use("pay", amount=1), say("Paid.")))
        waiting = thread.run("go")
        thread.decide(waiting.approvals[0].call, "approve")

    results = store.resume(planner(say(""), fail()))

    assert [result.status for result in results] == ["failed", "failed"]


def test_a_second_resume_finds_nothing_to_do(store: Store) -> None:
    """A control: what has ended is not taken up again."""
    thread = store.thread("trip", agent=planner(use("pay", amount=1), say("Paid.")))
    thread.decide(thread.run("go").approvals[0].call, "approve")
    store.resume(planner(say(""), say("Done.")))
    head = thread.head

    assert store.resume(planner(say("Never."))) == []
    with pytest.raises(errors.NotFound):
        thread.resume()
    assert thread.head == head


def test_two_runs_that_wait_on_one_line_are_decided_each_for_itself(store: Store) -> None:
    """Resuming one leaves the other's call alone, whichever is decided first."""
    first = store.thread("trip", agent=planner(use("pay", amount=1), say("One."))).run("one")
    second = store.thread("trip", agent=planner(use("pay", amount=2), say("Two."))).run("two")
    thread = store.thread("trip", agent=planner(*[say("Done.")] * 4))
    thread.decide(second.approvals[0].call, "approve")

    assert store.resume(planner(*[say("Done.")] * 4))[0].status in ("waiting", "succeeded")

    runs = {run.id: run.state for run in thread.runs()}
    assert runs == {first.run: "waiting", second.run: "succeeded"}
    assert thread.paths("/") == ["/paid/2.json"]
    thread.decide(first.approvals[0].call, "approve")
    assert thread.resume().run == first.run
    assert thread.paths("/") == ["/paid/1.json", "/paid/2.json"]


def test_what_waits_is_listed_with_its_thread(store: Store) -> None:
    """Over all threads, oldest first; and threads are found by the state of their runs."""
    for number, name in enumerate(("b", "a"), 1):
        store.thread(name, agent=planner(use("pay", amount=number), say("Paid."))).run("go")
    store.thread("idle", agent=planner(say("Done."))).run("go")

    assert [approval.thread for approval in store.approvals()] == ["b", "a"]
    assert [thread.id for thread in store.threads(state="waiting")] == ["a", "b"]
    assert list(store.threads(state="running")) == []
    for approval in store.approvals():
        store.thread(approval.thread).decide(approval.call, "deny")
    assert store.approvals() == []


def test_a_thread_with_a_live_run_is_found(store: Store) -> None:
    """While a tool of it runs."""
    seen: list[list[str]] = []

    @perdure.tool(effect="read_only")
    def listing() -> str:
        seen.append([thread.id for thread in store.threads(state="running")])
        return "listed"

    agent = Agent("planner", backend=Script(use("listing"), say("Done.")), tools=[listing])
    store.thread("idle", agent=planner(say("Done."))).run("go")

    store.thread("busy", agent=agent).run("go")

    assert seen == [["busy"]]


class Trip(msgspec.Struct):
    """What the last words are to be."""

    to: str
    days: int


def test_last_words_of_a_type_come_as_that_type(store: Store) -> None:
    """With or without a fence of backticks; the model is shown the schema; the same id gives the same again."""
    script = Script(say('```json\n{"to": "Rome", "days": 3}\n```'))
    thread = store.thread("trip", agent=Agent("planner", backend=script))

    result = thread.run("Where?", id="m1", output=Trip)

    assert result.output == Trip("Rome", 3)
    assert "output_schema" in script.contexts[0].options
    assert thread.run("Where?", id="m1", output=Trip).output == Trip("Rome", 3)


def test_last_words_that_are_not_of_the_type_are_an_error_where_they_are_read(store: Store) -> None:
    """The run itself has succeeded; its words can still be read."""
    thread = store.thread("trip", agent=planner(say("Rome, three days.")))

    result = thread.run("Where?", output=Trip)

    assert (result.status, result.text) == ("succeeded", "Rome, three days.")
    with raises(errors.Invalid, "output_mismatch", run=result.run):
        _ = result.output


def test_a_run_that_was_asked_for_no_type_has_no_output(store: Store) -> None:
    """A control: it says how to ask."""
    result = store.thread("trip", agent=planner(say("Hello."))).run("Hi")

    with raises(errors.Invalid, "output_type_missing"):
        _ = result.output


def test_usage_is_the_sum_over_all_steps(store: Store) -> None:
    """Also over a suspension, and the same when it is asked for again."""
    one = Usage(input_tokens=10, output_tokens=2, cached_tokens=4)
    script = Script(step(use("pay", amount=1), say("", usage=one)), say("Done.", usage=one))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[pay]))
    waiting = thread.run("go", id="m1")
    assert waiting.usage == one
    thread.decide(waiting.approvals[0].call, "approve")

    result = thread.resume()

    assert (result.usage, result.steps) == (one + one, 2)
    assert thread.run("go", id="m1") == result


def test_a_whole_new_state_comes_with_the_input(store: Store) -> None:
    """It is there before anything runs, replaces what was there, and is undone with the turn."""
    script = Script(use("look"), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[look]))
    thread.put("/old.json", 1)

    thread.run("go", state={"/new.json": 2, "/raw": b"\x00\x01"})

    assert thread.paths("/") == ["/new.json", "/raw"]
    first = thread.turns()[-1]
    assert thread.at(first.before).paths("/") == ["/old.json"]
    thread.undo()
    assert thread.paths("/") == ["/old.json"]


def test_the_same_input_with_another_state_is_a_conflict(store: Store) -> None:
    """What an id names is words and state together."""
    thread = store.thread("trip", agent=planner(say("Done.")))
    thread.run("go", id="m1", state={"/a.json": 1})

    assert thread.run("go", id="m1", state={"/a.json": 1}).status == "succeeded"
    with pytest.raises(errors.Conflict):
        thread.run("go", id="m1", state={"/a.json": 2})


@pytest.mark.parametrize("path", ["/__run/x.json", "/__kernel/x", "no-slash", ""])
def test_a_new_state_with_a_path_that_cannot_be_is_refused_before_anything(store: Store, path: str) -> None:
    """Nothing is run, nothing is said."""
    thread = store.thread("trip", agent=planner(say("Done.")))

    with pytest.raises(errors.Invalid):
        thread.run("go", state={path: 1})

    assert (thread.head.commit, thread.runs()) == (None, [])


def _cut_off(pipe: Pipe, path: str) -> None:
    """Run an agent and be killed after its first round."""
    agent = Agent("planner", backend=Script(crash("after_turn"), use("look"), say("Done.")), tools=[look])
    with perdure.open(path, durability="process_crash") as store:
        store.thread("trip", agent=agent).run("go")


def test_the_awaitable_face_resumes_and_follows_what_another_process_left(tmp_path: Path) -> None:
    """At start-up: every interrupted run of this agent goes on, and whoever follows sees it end."""
    path = str(tmp_path / "agents.db")
    with running(_cut_off, path) as owner:
        owner.process.join()

    async def main() -> None:
        async with aio.open(path) as store:
            (result,) = await store.resume(planner(use("look"), say("Done.")))
            thread = await store.thread("trip")
            assert (result.status, result.text) == ("succeeded", "Done.")
            assert [entry.role for entry in await thread.transcript()] == [
                "user",
                "assistant",
                "tool",
                "assistant",
            ]
            assert [event async for event in thread.follow()] == []

    asyncio.run(main())


def test_many_runs_on_many_threads_at_once(store: Store) -> None:
    """Each thread of the program on a thread of the store: all end well."""
    failures: list[BaseException] = []

    def go(number: int) -> None:
        try:
            thread: Thread = store.thread(
                f"trip-{number}", agent=planner(use("look"), use("look"), say("Done."))
            )
            assert thread.run("go").text == "Done."
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=go, args=(number,)) for number in range(12)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert failures == []
    assert store.verify().ok


@perdure.tool(effect="financial", name="pay")
def lost(amount: int) -> str:
    """Pay, and lose the answer."""
    raise TimeoutError("no answer")


@pytest.mark.parametrize("outcome", ["done", "not_done", None])
def test_a_result_names_the_calls_whose_outcome_is_unknown_by_now(store: Store, outcome: Any) -> None:
    """Whoever asks for it again after a person has settled the call; control: without that it is still unknown."""
    agent = Agent("planner", backend=Script(use("pay", amount=60), say("Hm.")), tools=[lost])
    thread = store.thread("trip", agent=agent)
    first = thread.run("go", id="m1")
    (call,) = first.unclear_calls
    if outcome is not None:
        thread.resolve(call, outcome, by="ann")

    left = () if outcome else (call,)
    assert thread.run("go", id="m1").unclear_calls == left
    assert thread.wait(first.run).unclear_calls == left
    assert list(thread.stream("go", id="m1"))[-1].result.unclear_calls == left  # pyright: ignore[reportAttributeAccessIssue]


def test_a_call_that_was_settled_while_its_run_went_on_is_not_unclear(store: Store) -> None:
    """The result of a live run is read from the ledger like any other."""

    def settles(context: object) -> ScriptStep:
        store.thread("trip").resolve(thread.calls()[0].id, "done", by="ann")
        return say("Done.")

    agent = Agent("planner", backend=Script(use("pay", amount=60), settles), tools=[lost])
    thread = store.thread("trip", agent=agent)

    result = thread.run("go", id="m1")

    assert (result.calls, result.unclear_calls, thread.run("go", id="m1")) == (1, (), result)
