"""A sealed timeline takes no more writes, so no run goes on there: its calls are not made, and it can be ended."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

import perdure
from perdure import Agent, Store, Thread
from perdure.errors import Sealed, StaleHead
from perdure.runtime import event_loop
from perdure.runtime.run import control
from perdure.runtime.run.take import take
from perdure.testing import Script, say, use
from tests.coded import raises


class Post:
    """What was sent."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.sent: list[int] = []

    def clerk(self) -> Agent:
        """An agent that asks before it sends."""

        @perdure.tool(effect="external_write", ask=True)
        def send(number: int) -> str:
            """Send something."""
            self.sent.append(number)
            return "sent"

        return Agent("clerk", backend=Script(use("send", number=1), say("Sent.")), tools=[send])


@pytest.fixture
def post() -> Post:
    """Where it is sent to."""
    return Post()


@pytest.fixture
def store() -> Generator[Store]:
    """An empty store."""
    with perdure.open("memory:") as opened:
        yield opened


@pytest.fixture
def thread(store: Store, post: Post) -> Thread:
    """A thread on which a run waits for an approval."""
    thread = store.thread("letters", agent=post.clerk())
    thread.run("Send it", id="m1")
    return thread


def approve(thread: Thread) -> None:
    """Approve what waits."""
    thread.decide(thread.approvals()[0].call, "approve", by="ben")


def states(thread: Thread) -> list[str]:
    """The states of all runs of the thread."""
    return [each.state for each in thread.runs()]


def test_nothing_is_decided_on_a_line_that_a_promote_has_sealed(
    store: Store, post: Post, thread: Thread
) -> None:
    """It was sent from there, by a run that could then neither commit it, nor go on, nor be cancelled."""
    thread.fork("other", at="turn:1").put("/there.json", 1)
    thread.promote("other")
    (old,) = [each.head.timeline for each in thread.timelines() if each.sealed]

    with raises(Sealed, "sealed"):
        approve(thread.on(old))
    store.work(post.clerk(), until_idle=True)

    assert (post.sent, states(thread)) == ([], ["waiting"])


def test_a_run_that_was_decided_before_the_seal_does_not_go_on(
    store: Store, post: Post, thread: Thread
) -> None:
    """Its call is not made, a worker leaves it alone, and a person can end it."""
    approve(thread)
    thread.seal()

    with raises(Sealed, "sealed"):
        thread.resume()
    assert store.work(post.clerk(), until_idle=True) == 0
    assert (post.sent, states(thread)) == ([], ["waiting"])
    assert thread.cancel().state == "cancelled"
    assert store.open_runs() == []


@pytest.mark.parametrize("ended_by", ["a person", "a worker"])
def test_a_run_whose_timeline_is_sealed_while_it_is_taken_makes_no_call(
    store: Store, post: Post, thread: Thread, monkeypatch: pytest.MonkeyPatch, ended_by: str
) -> None:
    """The seal comes after the run has looked and before it has the lease; the run counts as interrupted, and can be ended."""
    approve(thread)
    find = control.current_model

    def sealed_meanwhile(*given: Any, **options: Any) -> Any:
        thread.seal()
        return find(*given, **options)

    with monkeypatch.context() as patched:
        patched.setattr(control, "current_model", sealed_meanwhile)
        with raises(Sealed, "sealed"):
            thread.resume()

    assert (post.sent, states(thread)) == ([], ["running"])
    if ended_by == "a person":
        thread.cancel()
    else:  # as one does that finds it; others wait until its lease has ended
        event_loop.drive(take(thread._env(), thread.runs()[0].id, deaths_max=3))
    assert (states(thread), store.open_runs()) == (["cancelled"], [])


def test_a_call_by_hand_is_refused_before_it_is_made(store: Store, post: Post) -> None:
    """It was made, and then the error said that nothing was written."""
    thread = store.thread("by-hand", agent="clerk")
    thread.put("/a.json", 1)

    @perdure.tool(effect="external_write")
    def send(number: int) -> str:
        """Send something."""
        post.sent.append(number)
        return "sent"

    thread.call(send, {"number": 1}, id="before")
    thread.seal()

    with raises(Sealed, "sealed"):
        thread.call(send, {"number": 2}, id="after")
    assert [each.id for each in thread.calls()] == ["before"]
    assert thread.call(send, {"number": 1}, id="before").text == "sent"  # the first result, as ever
    assert post.sent == [1]


@pytest.mark.parametrize(("act", "kind"), [("seal", Sealed), ("undo", StaleHead)])
@pytest.mark.parametrize(("fails", "state"), [(False, "succeeded"), (True, "unknown")])
def test_a_call_by_hand_that_is_made_when_its_timeline_is_sealed_is_named(
    store: Store, act: str, kind: type[Sealed | StaleHead], *, fails: bool, state: str
) -> None:
    """The error does not say that nothing was done: it says what the ledger has of the call."""
    thread = store.thread("by-hand", agent="clerk")
    thread.put("/a.json", 1)

    @perdure.tool(effect="external_write")
    def send() -> str:
        """Send something while another program seals the timeline, or undoes its turn."""
        getattr(store.thread("by-hand"), act)()
        if fails:
            raise ConnectionError("reset")
        return "sent"

    with pytest.raises(kind) as refused:
        thread.call(send, {}, id="c1")

    assert [each.state for each in thread.calls()] == [state]
    assert f"'c1' is {state}" in refused.value.because


def test_no_input_is_queued_there(thread: Thread) -> None:
    """A worker could only fail it; an input that was queued before is still found by its id."""
    run = thread.start("And then?", id="m2")
    thread.seal()

    with raises(Sealed, "sealed"):
        thread.start("And then?", id="m3")
    assert thread.start("And then?", id="m2") == run


def test_control_a_fork_of_the_sealed_timeline_goes_on(store: Store, post: Post, thread: Thread) -> None:
    """It has the question too, and takes writes."""
    thread.seal()
    fork = thread.fork("on")

    approve(fork)
    store.work(post.clerk(), until_idle=True)

    assert post.sent == [1]
    assert fork.transcript()[-1].message.text == "Sent."
