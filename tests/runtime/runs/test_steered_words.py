"""What is said to a run in mid-flight is heard once, and keeps the run going only if it was not heard yet."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

import perdure
from perdure import Agent, Stop, Store, Thread, errors
from perdure.engines.contract import Receipt, Write
from perdure.model.run import HeadPolicy
from perdure.testing import Script, say, use
from perdure.testing.script import ScriptStep
from tests.coded import raises
from tests.runtime.runs.injecting import Injecting, Wire


@perdure.tool(effect="read_only")
def look() -> str:
    """Look around."""
    return "three lamps"


def test_words_that_were_heard_do_not_ask_for_another_step() -> None:
    """The last words of the model answer them; the run is over then."""
    with perdure.open("memory:") as store:

        @perdure.tool(effect="read_only")
        def look() -> str:
            store.thread("t").steer("A blue one", id="msg-2")
            return "three lamps"

        script = Script(use("look"), say("Three blue lamps."))
        thread = store.thread("t", agent=Agent("clerk", backend=script, tools=[look]))

        result = thread.run("Find a lamp", id="msg-1")

        assert (result.status, result.steps) == ("succeeded", 2)
        assert [entry.id for entry in thread.transcript() if entry.role == "user"] == ["msg-1", "msg-2"]


def test_words_that_come_while_the_model_speaks_its_last_are_answered() -> None:
    """Control: what was not heard yet does ask for another step."""
    with perdure.open("memory:") as store:

        def last(context: object) -> object:
            store.thread("t").steer("And a red one", id="msg-2")
            return say("One lamp.")

        script = Script(last, say("Two lamps."))  # pyright: ignore[reportArgumentType]
        thread = store.thread("t", agent=Agent("clerk", backend=script))

        result = thread.run("Find a lamp", id="msg-1")

        assert (result.text, result.steps) == ("Two lamps.", 2)


def ids_of(thread: Thread) -> list[str]:
    """The ids of what users have said."""
    return [entry.id for entry in thread.transcript() if entry.role == "user"]


def test_words_are_heard_in_the_order_in_which_they_came(store: Store) -> None:
    """All of them, however many, whatever their ids sort like."""
    wanted = [f"msg-{number * 7919 % 1000}" for number in range(250)]

    def speak(context: object) -> ScriptStep:
        for id in wanted:
            store.thread("t").steer(f"This is {id}", id=id)
        return use("look")

    script = Script(speak, say("Heard."))
    thread = store.thread("t", agent=Agent("clerk", backend=script, tools=[look]))

    thread.run("Listen", id="first")

    assert ids_of(thread) == ["first", *wanted]


def test_the_same_id_with_other_words_is_a_conflict(store: Store) -> None:
    """Whether it still waits or was heard; with the same words it changes nothing, then as well."""

    def again(context: object) -> ScriptStep:
        handle = store.thread("t")
        handle.steer("A blue one", id="msg-2")
        handle.steer("A blue one", id="msg-2")
        with raises(errors.Conflict, "message_id_reused", id="msg-2"):
            handle.steer("A red one", id="msg-2")
        return use("look")

    script = Script(again, again, say("Done."))
    thread = store.thread("t", agent=Agent("clerk", backend=script, tools=[look]))

    thread.run("Find a lamp", id="msg-1")

    assert ids_of(thread) == ["msg-1", "msg-2"]


@pytest.mark.parametrize("policy", ["each_step", "on_success"])
def test_words_that_come_at_the_very_end_keep_the_run_going(store_url: str, policy: HeadPolicy) -> None:
    """Queued a moment before the write that ends the run: that is refused, and the model is asked once more."""
    injecting = Injecting(store_url)
    store = injecting.store
    script = Script(say("One lamp."), say("Two lamps."))
    thread = store.thread("t", agent=Agent("clerk", backend=script))

    def speak(wire: Wire, write: Write) -> Receipt:
        if write.moves and any(cell.name.startswith("run/") for cell in write.cells) and not wire.blind:
            wire.disarm()
            store.thread("t").steer("And a red one", id="msg-2")
        return wire.inner.apply(write)

    injecting.wire.arm(speak, nth=2, times=100)
    result = thread.run("Find a lamp", id="msg-1", head_policy=policy)

    assert (result.text, result.steps, ids_of(thread)) == ("Two lamps.", 2, ["msg-1", "msg-2"])
    assert [message.text for message in script.contexts[1].messages][-1] == "And a red one"


def test_nothing_is_queued_for_a_run_that_has_just_ended(store_url: str) -> None:
    """The write needs the lease: whoever is too late is told, and no later run hears it."""
    injecting = Injecting(store_url)
    store = injecting.store
    going_on, over = threading.Event(), threading.Event()

    def slow(context: object) -> ScriptStep:
        going_on.set()
        over.wait(10)
        return say("Done.")

    thread = store.thread("t", agent=Agent("clerk", backend=Script(slow, say("Next."))))
    runner = threading.Thread(target=thread.run, args=("Go",), kwargs={"id": "msg-1"})

    def wait(wire: Wire, write: Write) -> Receipt:
        if any(cell.name.startswith("steer/") for cell in write.cells):
            wire.disarm()
            over.set()
            runner.join(10)
        return wire.inner.apply(write)

    runner.start()
    going_on.wait(10)
    injecting.wire.arm(wait, nth=1, times=100)

    with raises(errors.Conflict, "run_to_steer_missing", timeline="main"):
        store.thread("t").steer("Too late", id="msg-2")

    thread.run("Again", id="msg-3")
    assert ids_of(thread) == ["msg-1", "msg-3"]


@pytest.mark.parametrize("policy", ["each_step", "on_success"])
@pytest.mark.parametrize("end", ["failed", "stopped", "cancelled"])
def test_words_that_a_run_never_heard_are_in_the_conversation(
    store: Store, end: str, policy: HeadPolicy
) -> None:
    """However it ends: they were accepted, so the next run sees them, once."""

    def speak(context: object) -> ScriptStep:
        store.thread("t").steer("And a red one", id="msg-2")
        if end == "failed":
            raise ConnectionError("gone")
        if end == "cancelled":
            raise KeyboardInterrupt  # the run is cut off
        return use("look")

    agent = Agent("clerk", backend=Script(speak), tools=[look], stop=Stop(steps=1))
    thread = store.thread("t", agent=agent)
    with suppress(errors.RunFailed, KeyboardInterrupt):
        thread.run("Find a lamp", id="msg-1", head_policy=policy)
    if end == "cancelled":
        thread.cancel()
    script = Script(say("Fine."))

    store.thread("t", agent=Agent("clerk", backend=script)).run("And now?", id="msg-3")

    assert thread.runs()[0].state == end
    assert [id for id in ids_of(thread) if id == "msg-2"] == ["msg-2"]
    assert "And a red one" in [message.text for message in script.contexts[0].messages]


def test_words_for_one_line_are_not_heard_on_another(store: Store) -> None:
    """Also where the name of one line begins like that of another."""
    store.thread("t", agent="clerk").fork("a")
    store.thread("t").fork("a/b")

    def outer(context: object) -> ScriptStep:
        store.thread("t", agent=Agent("clerk", backend=Script(inner, say("b."))), timeline="a/b").run("b")
        return say("a.")

    def inner(context: object) -> ScriptStep:
        store.thread("t", timeline="a/b").steer("for b", id="msg-b")
        return say("heard.")

    thread = store.thread("t", agent=Agent("clerk", backend=Script(outer, say("again."))), timeline="a")

    thread.run("a", id="msg-a")

    assert ids_of(thread) == ["msg-a"]
    assert "msg-b" in ids_of(store.thread("t", timeline="a/b"))
