"""A message that steered a run is sent again: it is the same input by whatever way it comes, and nothing is done twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Stop, Store, Thread, errors
from perdure.engines.contract import Receipt, Write
from perdure.model.context import Context
from perdure.model.run import HeadPolicy
from perdure.testing import Script, say, use
from perdure.testing.script import ScriptStep
from tests.coded import raises
from tests.runtime.runs.injecting import Injecting, Wire

_paid: list[str] = []

WORDS = "Pay tom 60"


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    """Forget what other tests paid."""
    _paid.clear()


@perdure.tool(effect="financial")
def pay(to: str) -> str:
    """Pay somebody."""
    _paid.append(to)
    return "paid"


@perdure.tool(effect="financial", ask=True)
def donate(to: str) -> str:
    """Pay somebody, once a person agrees."""
    _paid.append(to)
    return "donated"


def model(context: Context) -> ScriptStep:
    """Look around at first, pay when asked to, and answer what a tool has said."""
    last = context.messages[-1]
    if last.role == "tool":
        return say("Done.")
    return use("pay", to="tom") if last.text.startswith("Pay") else use("look")


def clerk(meanwhile: Callable[[], object] = bool, *, then: Any = model, **options: Any) -> Agent:
    """An agent that pays; while it looks around, something happens."""

    @perdure.tool(effect="read_only")
    def look() -> str:
        meanwhile()
        return "three bills"

    return Agent("clerk", backend=Script(then=then), tools=[look, pay, donate], **options)


def steering(store: Store, **options: Any) -> Agent:
    """The agent whose first run is steered by `msg-2`, which has it pay."""
    return clerk(lambda: store.thread("t").steer(WORDS, id="msg-2"), **options)


def steered(store: Store, *, head_policy: HeadPolicy = "each_step") -> Thread:
    """A thread whose first run has heard `msg-2`, paid and ended; its agent does nothing by itself any more."""
    store.thread("t", agent=steering(store)).run("Look", id="msg-1", head_policy=head_policy)
    assert _paid == ["tom"]
    return store.thread("t", agent=clerk())


def added(thread: Thread, id: str = "msg-2", text: str = WORDS) -> str:
    """Add a message as the guide for web handlers does."""
    try:
        thread.steer(text, id=id)
    except errors.Conflict:
        thread.run(text, id=id)
        return "run"
    return "steered"


def ids_of(thread: Thread) -> list[str]:
    """The ids of what users have said."""
    return [entry.id for entry in thread.transcript() if entry.role == "user"]


AGAIN: dict[str, Callable[[Thread], object]] = {
    "steer": lambda thread: thread.steer(WORDS, id="msg-2"),
    "run": lambda thread: thread.run(WORDS, id="msg-2"),
    "stream": lambda thread: list(thread.stream(WORDS, id="msg-2")),
    "start": lambda thread: thread.start(WORDS, id="msg-2"),
    "schedule": lambda thread: thread.schedule(WORDS, "1h", id="msg-2"),
    "given": lambda thread: thread.given(WORDS, id="msg-2"),
    "add": added,
}


@pytest.mark.parametrize("policy", ["each_step", "on_success"])
@pytest.mark.parametrize("way", AGAIN)
def test_the_run_that_heard_it_has_ended_and_nothing_is_done_again(
    store: Store, way: str, policy: HeadPolicy
) -> None:
    """By whatever way it comes: no run begins, none is queued, and nothing is paid."""
    thread = steered(store, head_policy=policy)
    head = thread.head

    AGAIN[way](thread)

    assert (thread.head, len(thread.runs()), _paid) == (head, 1, ["tom"])


def test_the_run_that_heard_it_is_given(store: Store) -> None:
    """Its result, its id, its record; control: another id begins another run, which pays."""
    thread = steered(store)
    first = thread.run("Look", id="msg-1")

    assert thread.run(WORDS, id="msg-2") == first
    assert thread.start(WORDS, id="msg-2") == first.run
    given = thread.given(WORDS, id="msg-2")
    assert given is not None
    assert given.id == first.run
    assert thread.run(WORDS, id="msg-3").run != first.run
    assert _paid == ["tom", "tom"]


def test_another_process_knows_it(store_url: str) -> None:
    """It is in the store and not in the memory of the process that queued it."""
    with perdure.open(store_url) as store:
        steered(store)
        with perdure.open(store_url) as other:
            thread = other.thread("t", agent=clerk())

            assert (added(thread), _paid) == ("steered", ["tom"])


@pytest.mark.parametrize("way", ["backup", "copy_to"])
def test_a_copy_of_the_store_knows_it(tmp_path: Path, way: str) -> None:
    """A file that was backed up, and a store that was written anew."""
    copy = tmp_path / "copy.db"
    with perdure.open(tmp_path / "store.db") as store:
        steered(store)
        store.backup(copy) if way == "backup" else store.copy_to(str(copy))

    with perdure.open(copy) as copied:
        thread = copied.thread("t", agent=clerk())

        assert (added(thread), thread.run(WORDS, id="msg-2").status) == ("steered", "succeeded")
        assert (len(thread.runs()), _paid, copied.verify().ok) == (1, ["tom"], True)


@pytest.mark.parametrize("way", ["run", "stream", "start", "schedule", "given"])
def test_other_words_under_its_id_are_a_conflict(store: Store, way: str) -> None:
    """As for the id of an input, and to steer it is one as well."""
    thread = steered(store)
    head, again = thread.head, getattr(thread, way)

    with raises(errors.Conflict, "input_id_reused", id="msg-2"):
        found = again("Pay ben 70", *(["1h"] if way == "schedule" else []), id="msg-2")
        list(found)  # a stream begins when it is read
    with raises(errors.Conflict, "message_id_reused", id="msg-2"):
        thread.steer("Pay ben 70", id="msg-2")

    assert (thread.head, len(thread.runs())) == (head, 1)


def test_while_its_run_lives_run_waits_for_that(store: Store) -> None:
    """The second caller gets the result of the run that hears the message."""
    inside, go_on = threading.Event(), threading.Event()

    def meanwhile() -> None:
        store.thread("t").steer(WORDS, id="msg-2")
        inside.set()
        go_on.wait(20)

    thread = store.thread("t", agent=clerk(meanwhile))
    found: list[object] = []
    callers = [
        threading.Thread(target=lambda id=id, text=text: found.append(thread.run(text, id=id)))
        for id, text in (("msg-1", "Look"), ("msg-2", WORDS))
    ]
    callers[0].start()
    inside.wait(20)
    callers[1].start()
    callers[1].join(0.2)
    go_on.set()
    for caller in callers:
        caller.join(20)

    assert found[0] == found[1]
    assert (len(thread.runs()), _paid) == (1, ["tom"])


def test_run_retries_the_run_that_heard_it_and_failed(store: Store) -> None:
    """Like the id that began the run: what was paid stays paid, and the run goes on."""

    def fails(context: Context) -> ScriptStep:
        if context.messages[-1].role == "tool" and _paid:
            raise ConnectionError("gone")
        return model(context)

    with pytest.raises(errors.RunFailed):
        store.thread("t", agent=steering(store, then=fails)).run("Look", id="msg-1")
    thread = store.thread("t", agent=clerk())

    assert thread.steer(WORDS, id="msg-2") == "msg-2"
    assert thread.runs()[0].state == "failed"
    assert (thread.run(WORDS, id="msg-2").text, len(thread.runs()), _paid) == ("Done.", 1, ["tom"])


def test_words_that_no_model_has_heard_yet_are_heard_once(store: Store) -> None:
    """The run was stopped before its next step; a resend in between adds nothing, and the next run hears them."""
    agent = steering(store, stop=Stop(steps=1))
    assert store.thread("t", agent=agent).run("Look", id="msg-1").status == "stopped"
    thread = store.thread("t", agent=clerk())

    assert [added(thread), added(thread)] == ["steered", "steered"]
    assert thread.run(WORDS, id="msg-2").status == "stopped"
    thread.run("Pay what I said", id="msg-3")

    assert (ids_of(thread), _paid) == (["msg-1", "msg-2", "msg-3"], ["tom"])


def test_words_that_a_run_which_waits_has_not_heard_are_heard_once(store_url: str) -> None:
    """They were queued while the run asked a person; a resend while it waits and after it has ended adds nothing."""
    asked: list[Context] = []

    def asks(context: Context) -> ScriptStep:
        asked.append(context)
        return use("donate", to="ben") if len(asked) == 1 else model(context)

    injecting = Injecting(store_url)
    store = injecting.store
    thread = store.thread("t", agent=clerk(then=asks))

    def speak(wire: Wire, write: Write) -> Receipt:
        if any(cell.name.startswith("waits/") for cell in write.cells):
            wire.disarm()
            store.thread("t").steer(WORDS, id="msg-2")
        return wire.inner.apply(write)

    injecting.wire.arm(speak, nth=1, times=100)
    first = thread.run("Donate", id="msg-1")

    assert (added(thread), thread.run(WORDS, id="msg-2")) == ("steered", first)
    thread.decide(first.approvals[0].call, "approve", by="ann")
    thread.resume()
    assert (added(thread), thread.run(WORDS, id="msg-2").run) == ("steered", first.run)
    assert (ids_of(thread), _paid) == (["msg-1", "msg-2"], ["ben", "tom"])


def test_after_an_undo_it_gives_the_first_result_as_the_input_does(store: Store) -> None:
    """An id names one input of its timeline for ever."""
    thread = steered(store)
    thread.undo()
    first, second = thread.run("Look", id="msg-1"), thread.run(WORDS, id="msg-2")

    assert (first, added(thread)) == (second, "steered")
    assert (ids_of(thread), _paid) == ([], ["tom"])


def test_on_a_fork_it_begins_a_run_as_the_input_does(store: Store) -> None:
    """Ids belong to their timeline: a fork is where other things are tried.  The message is there already, once."""
    fork = steered(store).fork("try")
    first = fork.run("Look", id="msg-1")

    with raises(errors.Conflict, "run_to_steer_missing", timeline="try"):
        fork.steer(WORDS, id="msg-2")
    second = fork.run(WORDS, id="msg-2")

    assert len({first.run, second.run, fork.runs()[0].id}) == 3
    assert ids_of(fork) == ["msg-1", "msg-2"]


def test_an_input_that_began_a_run_is_given_to_run_again(store: Store) -> None:
    """It steers nothing: where no run is, who adds it gets the run, which is retried if it failed."""

    def fails(context: Context) -> ScriptStep:
        raise ConnectionError("gone")

    with pytest.raises(errors.RunFailed):
        added(store.thread("t", agent=clerk(then=fails)), "msg-1", "Pay")

    assert added(store.thread("t", agent=clerk()), "msg-1", "Pay") == "run"
    assert (len(store.thread("t").runs()), _paid) == (1, ["tom"])


def test_an_input_that_is_queued_does_not_steer_another_run(store: Store) -> None:
    """It waits for its turn, and is heard once."""

    def meanwhile() -> None:
        store.thread("t").start(WORDS, id="msg-2")
        store.thread("t").steer(WORDS, id="msg-2")

    agent = clerk(meanwhile)
    store.thread("t", agent=agent).run("Look", id="msg-1")
    assert _paid == []
    store.work(agent, until_idle=True)

    assert (ids_of(store.thread("t")), _paid) == (["msg-1", "msg-2"], ["tom"])


def test_of_two_that_come_at_once_one_is_the_input(store_url: str) -> None:
    """While the first is about to be queued the run ends, and the second begins a run: the first is that input."""
    injecting = Injecting(store_url)
    store = injecting.store
    inside, go_on = threading.Event(), threading.Event()

    def meanwhile() -> None:
        inside.set()
        go_on.wait(20)

    thread = store.thread("t", agent=clerk(meanwhile))
    runner = threading.Thread(target=thread.run, args=("Look",), kwargs={"id": "msg-1"})

    def overtake(wire: Wire, write: Write) -> Receipt:
        if any(cell.name.startswith("steer/") for cell in write.cells):
            wire.disarm()
            go_on.set()
            runner.join(20)
            thread.run(WORDS, id="msg-2")
        return wire.inner.apply(write)

    runner.start()
    inside.wait(20)
    injecting.wire.arm(overtake, nth=1, times=100)

    assert store.thread("t").steer(WORDS, id="msg-2") == "msg-2"
    assert (ids_of(thread), _paid, len(thread.runs())) == (["msg-1", "msg-2"], ["tom"], 2)


def test_of_two_texts_that_come_at_once_under_one_id_one_is_refused(store_url: str) -> None:
    """The store has one of them when the other arrives."""
    injecting = Injecting(store_url)
    store = injecting.store
    refused: list[errors.Conflict] = []

    def overtake(wire: Wire, write: Write) -> Receipt:
        if any(cell.name.startswith("steer/") for cell in write.cells):
            wire.disarm()
            store.thread("t").steer("Pay ben 70", id="msg-2")
        return wire.inner.apply(write)

    def meanwhile() -> None:
        injecting.wire.arm(overtake, nth=1, times=100)
        with raises(errors.Conflict, "message_id_reused", id="msg-2") as error:
            store.thread("t").steer(WORDS, id="msg-2")
        refused.append(error.value)

    store.thread("t", agent=clerk(meanwhile)).run("Look", id="msg-1")

    assert (len(refused), ids_of(store.thread("t"))) == (1, ["msg-1", "msg-2"])
