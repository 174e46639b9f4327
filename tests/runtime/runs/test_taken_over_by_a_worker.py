"""A worker takes a run over and ends it in the moment in which another caller is about to go on with it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import perdure
from perdure import Agent, Thread, errors
from perdure.engines.contract import Receipt, Write
from perdure.runtime.session.result import Result
from perdure.testing import Script, say, use
from perdure.testing.script import ScriptStep
from tests.runtime.runs.injecting import Injecting, Wire

_done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    """Forget what other tests did."""
    _done.clear()


@perdure.tool(effect="external_write", ask=True)
def order(lamp: str) -> str:
    """Order a lamp."""
    _done.append(lamp)
    return "ordered"


@perdure.tool(effect="read_only")
def look() -> str:
    """Look, and be cut off the first time."""
    if not _done:
        _done.append("looked")
        raise KeyboardInterrupt
    return "seen"


def clerk(tool: str = "look") -> Agent:
    """An agent that uses one of the tools, answers, and has a second answer."""
    step = use("order", lamp="Luxo") if tool == "order" else use("look")
    return Agent("clerk", backend=Script(step, say("Done."), say("Again.")), tools=[look, order])


def cut_off(thread: Thread) -> None:
    """Leave a run on the thread that was cut off."""
    with pytest.raises(KeyboardInterrupt):
        thread.run("Look", id="msg-1")


class Overtaken:
    """A thread, and a worker of the same process that acts first when a caller is about to take a run over."""

    def __init__(self, url: str, tool: str = "look") -> None:
        """Nothing happens yet."""
        self.injecting, self.agent = Injecting(url), clerk(tool)
        self.thread = self.injecting.store.thread("t", agent=self.agent)

    def by(self, act: Callable[[Thread], object]) -> None:
        """Let the worker act when a caller takes the timeline, just before its write."""

        def overtake(wire: Wire, write: Write) -> Receipt:
            if any(cell.name.startswith("lease/") and cell.value for cell in write.cells):
                wire.disarm()
                act(self.injecting.store.thread("t", agent=self.agent))
            return wire.inner.apply(write)

        self.injecting.wire.arm(overtake, nth=1, times=100)


def resumed(thread: Thread) -> Result:
    """Go on with the run of the thread to its end."""
    result = thread.resume()
    assert result.status == "succeeded"
    return result


WAYS: dict[str, Callable[[Thread], Result]] = {
    "run": lambda thread: thread.run("Look", id="msg-1"),
    "stream": lambda thread: list(thread.stream("Look", id="msg-1"))[-1].result,  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
    "resume": lambda thread: thread.resume(),
    "resume_run": lambda thread: thread.resume(thread.runs()[0].id),
    "resume_stream": lambda thread: list(thread.resume_stream())[-1].result,  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
}


@pytest.mark.parametrize("way", WAYS)
def test_who_goes_on_with_a_run_gets_the_result_of_the_one_who_was_first(store_url: str, way: str) -> None:
    """No error of a race inside reaches the caller; the run is carried on once."""
    overtaken = Overtaken(store_url)
    cut_off(overtaken.thread)
    overtaken.by(resumed)

    result = WAYS[way](overtaken.thread)

    assert (result.status, result.text) == ("succeeded", "Done.")
    assert [run.state for run in overtaken.thread.runs()] == ["succeeded"]


def test_a_new_input_runs_after_the_one_that_was_taken_over(store_url: str) -> None:
    """It was to finish the run in its way first, which another process has done."""
    overtaken = Overtaken(store_url)
    cut_off(overtaken.thread)
    overtaken.by(resumed)

    result = overtaken.thread.run("And now?", id="msg-2")

    assert result.text == "Again."
    assert [run.state for run in overtaken.thread.runs()] == ["succeeded", "succeeded"]


@pytest.mark.parametrize("way", ["run", "resume"])
def test_a_decided_run_that_was_taken_over_gives_its_result(store_url: str, way: str) -> None:
    """As for the client that sends its message again while a worker goes on with the decided run."""
    overtaken = Overtaken(store_url, "order")
    waiting = overtaken.thread.run("Look", id="msg-1")
    overtaken.thread.decide(waiting.approvals[0].call, "approve", by="ann")
    overtaken.by(resumed)

    result = WAYS[way](overtaken.thread)

    assert (result.status, result.text, _done) == ("succeeded", "Done.", ["Luxo"])


def test_a_queued_run_that_was_begun_gives_its_result(store_url: str) -> None:
    """By the worker, while its input is given again."""
    overtaken = Overtaken(store_url)
    _done.append("looked")
    run = overtaken.thread.start("Look", id="msg-1")
    overtaken.by(lambda thread: thread.resume(run))

    assert overtaken.thread.resume(run).text == "Done."
    assert len(overtaken.thread.runs()) == 1


def test_a_run_that_is_cancelled_while_a_worker_takes_it_over_is_cancelled_once(store_url: str) -> None:
    """The worker sees the request and ends it; who has cancelled gets the record, and no error."""
    overtaken = Overtaken(store_url)
    cut_off(overtaken.thread)
    overtaken.by(lambda thread: thread.resume())

    record = overtaken.thread.cancel()

    assert record.state == "cancelled"
    assert [run.state for run in overtaken.thread.runs()] == ["cancelled"]


def test_a_run_that_the_worker_has_not_ended_is_busy(store_url: str) -> None:
    """Control: who asks to go on with a run that lives is told so."""
    overtaken = Overtaken(store_url)
    cut_off(overtaken.thread)
    inside, go_on = threading.Event(), threading.Event()
    workers: list[threading.Thread] = []

    def speak(context: object) -> ScriptStep:
        inside.set()
        go_on.wait(20)
        return say("Done.")

    def live(thread: Thread) -> None:
        working = overtaken.injecting.store.thread("t", agent=clerk().on(Script(use("look"), speak)))
        workers.append(threading.Thread(target=working.resume))
        workers[0].start()
        inside.wait(20)

    overtaken.by(live)
    with pytest.raises(errors.Busy):
        overtaken.thread.resume()

    go_on.set()
    workers[0].join(20)
    assert overtaken.thread.runs()[0].state == "succeeded"
