"""What a model is shown of a result is kept once, and found from wherever it is asked for."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Store, Thread, errors
from perdure.testing import Script, say, step, use
from tests.runtime.runs.injecting import Injecting, unavailable

_sent: list[str] = []


@perdure.tool(effect="external_write", idempotent=True, key="order-{what}")
def order(what: str, note: str = "") -> str:
    """Order something; equal orders are one."""
    _sent.append(what)
    return f"ordered {what}"


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    """Forget what other tests ordered."""
    _sent.clear()


def thread_of(store: Store, *items: object, timeline: str = "main") -> Thread:
    """The thread, for an agent that takes these steps."""
    agent = Agent("planner", backend=Script(*items), tools=[order])  # pyright: ignore[reportArgumentType]
    return store.thread("trip", agent=agent, timeline=timeline)


def words(thread: Thread, call: str) -> str:
    """What the ledger says that a model is shown."""
    result = thread.trace(call, history=False).result
    assert result is not None
    return "".join(getattr(block, "text", "") for block in result.content)


def test_a_result_that_the_conversation_is_told_with_is_not_kept_twice(store: Store) -> None:
    """The last of a round is in the message that is written with it; the others have bodies of their own."""
    thread = thread_of(store, step(use("order", what="tea"), use("order", what="milk")), say("Done."))

    thread.run("go")

    calls = thread.calls()
    assert sorted(call.preview is None for call in calls) == [False, True]
    assert [words(thread, call.id) for call in calls] == ["ordered tea", "ordered milk"]
    thread.undo()
    assert [words(thread, call.id) for call in calls] == ["ordered tea", "ordered milk"]
    assert store.verify().ok


def test_the_words_are_found_from_a_line_that_does_not_hold_the_message(store: Store) -> None:
    """The ledger is the thread's: a fork from before the call sees what it came to."""
    thread = thread_of(store, use("order", what="tea"), say("Done."))
    thread.put("/title.json", "Trip")
    fork = thread.fork("aside")
    thread.run("go")

    (call,) = fork.calls()

    assert (call.preview, words(fork, call.id), fork.transcript()) == (None, "ordered tea", [])


def test_an_equal_key_borrows_the_words(store: Store) -> None:
    """From a call whose words are in a message, for a run and for a call by hand."""
    thread = thread_of(store, use("order", what="tea"), say("Done."))
    thread.run("go")

    again = thread.call(order, {"what": "tea", "note": "by hand"}, id="c1")

    assert (again.text, _sent) == ("ordered tea", ["tea"])


def test_a_result_whose_message_could_not_be_written_has_its_words_with_it(store_url: str) -> None:
    """The commit fails once, and the ledger alone is written: nothing is lost, and resuming tells the model."""
    injecting = Injecting(store_url)

    @perdure.tool(effect="external_write")
    def send() -> str:
        _sent.append("sent")
        injecting.wire.arm(unavailable, nth=1)
        return "sent after all"

    script = Script(use("send"), say("Done."))
    thread = injecting.store.thread("trip", agent=Agent("planner", backend=script, tools=[send]))

    with pytest.raises(errors.RunFailed):
        thread.run("go")

    (call,) = thread.calls()
    assert (call.state, call.preview is not None) == ("succeeded", True)
    assert words(thread, call.id) == "sent after all"
    told = [
        entry.message.tool_results for entry in thread.transcript() if entry.message and entry.role == "tool"
    ]
    assert "sent after all" in str(told)
    assert _sent == ["sent"]
