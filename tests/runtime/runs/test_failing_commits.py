"""A commit fails at each point of the schedule: the run fails, nothing is half-visible, the next run works."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest

import perdure
from perdure import Agent, Call, Thread, errors
from perdure.engines.contract import Receipt, Write
from perdure.model.context import Context
from perdure.model.run import ENDED
from perdure.runtime.events import Happened, Happening, RunEnded
from perdure.testing import Script, say, step, use
from tests.runtime.failing import run_fails
from tests.runtime.runs.injecting import Action, Injecting, Wire, in_doubt, unavailable

WRITES = 6  # of the run below: input, two requests, two rounds, the end
FOR_EVER = 1_000_000

KINDS: dict[str, Action] = {
    "unavailable": unavailable,
    "lost before": in_doubt(applied=False),
    "lost for good": in_doubt(applied=False, blind=True),
    "lost after": in_doubt(applied=True, blind=True),
}

_sent: list[str] = []


@perdure.tool(effect="external_write")
def book(flight: str, call: Call) -> str:
    """Book a flight."""
    _sent.append(flight)
    call.put(f"/booked/{flight}.json", True)
    return f"booked {flight}"


@pytest.fixture
def injecting(store_url: str) -> Iterator[Injecting]:
    """A store whose writes can be made to fail."""
    _sent.clear()
    opened = Injecting(store_url)
    with opened.store:
        yield opened


def begun(injecting: Injecting) -> Thread:
    """A thread with one finished turn, whose next run books twice."""
    first = injecting.store.thread("trip", agent=Agent("planner", backend=Script(say("Hello."))))
    first.run("Hi")
    script = Script(use("book", flight="A"), use("book", flight="B"), say("Done."))
    return injecting.store.thread("trip", agent=Agent("planner", backend=script, tools=[book]))


def next_run(injecting: Injecting) -> tuple[Thread, list[Context]]:
    """The same thread after another run, and what its model was shown."""
    script = Script(*[say("Next.")] * 4)
    thread = injecting.store.thread("trip", agent=Agent("planner", backend=script, tools=[book]))
    assert thread.run("And now?").text == "Next."
    return thread, script.contexts


def check_well_formed(context: Context) -> None:
    """Every call has one result, right behind it, and no result stands alone."""
    asked: list[str] = []
    for message in context.messages:
        assert [result.call_id for result in message.tool_results] == asked
        asked = [call.id for call in message.tool_calls]
    assert asked == []


def check_whole(injecting: Injecting, thread: Thread, contexts: list[Context]) -> None:
    """Everything that can be seen is whole, and every run has ended."""
    assert injecting.store.verify().ok
    assert all(run.state in ENDED for run in thread.runs())
    assert max(Counter(_sent).values(), default=0) <= 1
    for context in contexts:
        check_well_formed(context)


def test_the_schedule_has_as_many_writes_as_the_tests_below_assume(injecting: Injecting) -> None:
    """A control: without a failure the run makes this many writes, and books twice."""
    thread = begun(injecting)
    injecting.wire.arm(unavailable, nth=FOR_EVER)

    result = thread.run("Book both")

    assert (result.text, injecting.wire.count, _sent) == ("Done.", WRITES, ["A", "B"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, FOR_EVER])
@pytest.mark.parametrize("nth", range(1, WRITES + 1))
def test_a_failing_commit_fails_the_run_and_the_next_one_works(
    injecting: Injecting, nth: int, times: int, kind: str
) -> None:
    """Whichever write fails, once or for ever: an error, nothing half-visible, and then it all works again."""
    thread = begun(injecting)
    injecting.wire.arm(KINDS[kind], nth=nth, times=times)

    with pytest.raises((errors.RunFailed, errors.Unavailable)) as failure:
        thread.run("Book both")

    assert isinstance(failure.value, errors.RunFailed) or nth == 1
    injecting.wire.disarm()
    thread, contexts = next_run(injecting)
    check_whole(injecting, thread, contexts)


@pytest.mark.parametrize("nth", range(1, WRITES + 1))
def test_a_lost_answer_that_can_be_asked_for_changes_nothing(injecting: Injecting, nth: int) -> None:
    """A write whose outcome is in doubt is settled by its op_id; the run goes on."""
    thread = begun(injecting)
    injecting.wire.arm(in_doubt(applied=True), nth=nth)

    result = thread.run("Book both")

    assert (result.status, _sent) == ("succeeded", ["A", "B"])
    assert thread.paths("/") == ["/booked/A.json", "/booked/B.json"]
    assert injecting.store.verify().ok


@pytest.mark.parametrize("nth", range(2, WRITES))
def test_what_a_failed_run_wrote_is_put_back(injecting: Injecting, nth: int) -> None:
    """The closing commit leaves the thread's state as it was after the input."""
    thread = begun(injecting)
    injecting.wire.arm(unavailable, nth=nth)

    with pytest.raises(errors.RunFailed):
        thread.run("Book both")

    assert thread.paths("/") == []
    assert thread.log()[0].reason == "run_finished"
    assert thread.runs()[-1].state == "failed"


@pytest.mark.parametrize("nth", range(2, WRITES + 1))
def test_a_run_that_cannot_even_say_that_it_failed_is_finished_by_the_next(
    injecting: Injecting, nth: int
) -> None:
    """From the log alone: the interrupted run goes on where it stood, and books nothing twice."""
    thread = begun(injecting)
    injecting.wire.arm(unavailable, nth=nth, times=FOR_EVER)
    with pytest.raises(errors.RunFailed):
        thread.run("Book both")
    assert thread.runs()[-1].state == "running"

    injecting.wire.disarm()
    thread, contexts = next_run(injecting)

    assert [run.state for run in thread.runs()] == ["succeeded"] * 3
    check_whole(injecting, thread, contexts)


@pytest.mark.parametrize("kind", KINDS)
def test_no_finish_event_after_a_failed_final_commit(injecting: Injecting, kind: str) -> None:
    """Whoever watches gets the error, and no word that the run has ended well."""
    thread = begun(injecting)
    injecting.wire.arm(KINDS[kind], nth=WRITES, times=FOR_EVER)
    seen: list[Happening] = []

    with pytest.raises(errors.RunFailed):
        for event in thread.stream("Book both"):
            seen.append(event)  # noqa: PERF402  # what came before the error counts

    assert not [event for event in seen if isinstance(event, RunEnded)]
    assert not [event for event in seen if isinstance(event, Happened) and event.ends]


def test_a_finish_event_comes_where_the_final_commit_succeeds(injecting: Injecting) -> None:
    """A control for the one above."""
    seen = list(begun(injecting).stream("Book both"))

    assert isinstance(seen[-1], RunEnded)
    assert len([event for event in seen if isinstance(event, Happened) and event.ends]) == 1


def test_a_run_that_could_not_begin_leaves_nothing(injecting: Injecting) -> None:
    """The input's own commit fails: no words, no run, and nobody who follows waits for ever."""
    thread = begun(injecting)
    head = thread.head
    injecting.wire.arm(unavailable, nth=1)

    with pytest.raises(errors.Unavailable):
        thread.run("Book both")

    assert thread.head == head
    assert len(thread.runs()) == 1
    assert list(thread.follow()) == []


@pytest.mark.parametrize("nth", [3, 4])
def test_results_that_could_not_be_written_for_a_moment_are_not_lost(injecting: Injecting, nth: int) -> None:
    """Of two calls side by side: the write of the first result fails, or that of the round; both are known after it."""
    script = Script(step(use("book", flight="A"), use("book", flight="B")), say("Done."))
    thread = injecting.store.thread("trip", agent=Agent("planner", backend=script, tools=[book]))

    def both_are_back(wire: Wire, write: Write) -> Receipt:
        while len(_sent) < 2:
            time.sleep(0.01)
        time.sleep(0.05)  # until the second has returned, too
        return unavailable(wire, write)

    injecting.wire.arm(both_are_back, nth=nth)
    with run_fails("Unavailable"):
        thread.run("Book both")

    assert [call.state for call in thread.calls()] == ["succeeded", "succeeded"]
    assert sorted(_sent) == ["A", "B"]
