"""When turns, steps and calls began and ended, as their commits and the ledger have recorded it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress

import pytest

import perdure
from perdure import Agent, Retry
from perdure.errors import NotDone, RunFailed
from perdure.shapes.conversation import TurnPage
from perdure.shapes.ledger import CallRecordShape
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.testing import Script, say, use

BEGAN = 1_800_000_000_000_000  # µs since 1970, UTC
now = [0.0]  # seconds since then
failures = [0]


@pytest.fixture
def store() -> Generator[Store]:
    """A store whose clock moves only when a tool or a test says so."""
    now[0], failures[0] = 0.0, 0
    with perdure.open("memory:", clock=lambda: BEGAN + round(now[0] * 1e6)) as opened:
        yield opened


@perdure.tool(effect="external_write", idempotent=True, retry=Retry(attempts=3, delay=0))
def send(seconds: float) -> str:
    """Take some time; fail as often as the test says."""
    now[0] += seconds
    if failures[0]:
        failures[0] -= 1
        raise NotDone("not this time")
    return "sent"


@perdure.tool(effect="read_only")
def look(seconds: float) -> str:
    """Take some time, and change nothing."""
    now[0] += seconds
    return "seen"


@perdure.tool(effect="financial", ask=True)
def pay(seconds: float) -> str:
    """Take some time, once a person has agreed."""
    now[0] += seconds
    return "paid"


def agent(*answers: object) -> Agent:
    """An agent whose model needs no time, as its clock does not move."""
    return Agent("a", backend=Script(*answers), tools=[send, look, pay])  # pyright: ignore[reportArgumentType]


def seconds(*times: int | None) -> list[float | None]:
    """Times as seconds since the clock began."""
    return [None if each is None else (each - BEGAN) / 1e6 for each in times]


def attempts(thread: Thread) -> list[list[float | None]]:
    """When each call of a thread was last attempted."""
    return [seconds(*thread.trace(call.id).last_attempt) for call in thread.calls()]


def test_a_turn_lasts_from_its_first_commit_to_its_last(store: Store) -> None:
    """Its steps begin where the commit before them was made: the second with the result of the tool."""
    thread = store.thread("t", agent=agent(use("send", seconds=5), say("Sent.")))

    thread.run("Send it")

    (turn,) = thread.turns()
    said = [entry.id for entry in turn.entries if entry.role == "assistant"]
    assert seconds(turn.at, turn.ended_at) == [0, 5]
    assert [(each.message, *seconds(each.begun_at, each.ended_at)) for each in turn.steps] == [
        (said[0], 0, 0),
        (said[1], 5, 5),
    ]


def test_a_step_of_a_retried_run_begins_with_the_retry(store: Store) -> None:
    """The time between is nobody's step; the turn lasts from its input on."""
    thread = store.thread("t", agent=Agent("a", backend=Script()))
    with suppress(RunFailed):
        thread.run("Hello", id="m1")
    now[0] = 3600

    store.thread("t", agent=Agent("a", backend=Script(say("Hello.")))).run("Hello", id="m1")

    (turn,) = thread.turns()
    assert seconds(turn.at, turn.ended_at) == [0, 3600]
    assert [seconds(each.begun_at, each.ended_at) for each in turn.steps] == [[3600, 3600]]


def test_what_a_person_or_an_import_says_is_no_step(store: Store) -> None:
    """No model was asked, so nobody knows how long it took."""
    thread = store.thread("t", agent="a")
    with thread.change("said") as change:
        change.say("user", "Hello")
        change.say("assistant", "Hello.")
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    thread.add(
        [
            {"role": "user", "content": "Look"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "seen"},
            {"role": "assistant", "content": "I have looked."},
        ]
    )

    assert [turn.steps for turn in thread.turns()] == [(), ()]
    assert attempts(thread) == [[None, None]]


def test_a_call_lasts_from_the_start_of_its_tool_to_its_outcome(store: Store) -> None:
    """A call that only reads has no entry of its start; its request is taken."""
    thread = store.thread("t", agent=agent(use("send", seconds=5), use("look", seconds=2), say("Done.")))

    thread.run("Go")

    assert attempts(thread) == [[0, 5], [5, 7]]


def test_the_wait_for_a_person_is_no_time_of_the_tool(store: Store) -> None:
    """Before the decision it was not called; after it, it began then."""
    thread = store.thread("t", agent=agent(use("pay", seconds=4), say("Paid.")))
    thread.run("Pay")
    before = attempts(thread)
    now[0] = 7200

    thread.decide(thread.calls()[0].id, "approve", by="ann")
    thread.resume()

    assert (before, attempts(thread)) == ([[None, None]], [[7200, 7204]])


def test_of_several_attempts_the_last_one_counts(store: Store) -> None:
    """The first two were proven not to have been done."""
    failures[0] = 2
    thread = store.thread("t", agent=agent(use("send", seconds=5), say("Sent.")))

    thread.run("Send it")

    assert attempts(thread) == [[10, 15]]


def test_a_person_who_settles_a_call_later_does_not_make_it_longer(store: Store) -> None:
    """Its attempt ended when its outcome was recorded as unknown."""

    @perdure.tool(effect="financial")
    def wire(amount: int) -> str:
        now[0] += 30
        raise TimeoutError

    model = Script(use("wire", amount=1), say("?"))
    thread = store.thread("t", agent=Agent("a", backend=model, tools=[wire]))
    thread.run("Wire it")
    now[0] = 90_000

    thread.resolve(thread.calls()[0].id, "done", by="ann")

    assert attempts(thread) == [[0, 30]]


def test_programs_read_the_times_as_they_were_recorded(store: Store) -> None:
    """In the shapes that the server sends; control: a call that was not started has none."""
    thread = store.thread("t", agent=agent(use("send", seconds=5), use("pay", seconds=1)))
    thread.run("Go")

    (turn,) = TurnPage.of(thread, thread.at(), limit=1).turns
    calls = [CallRecordShape.traced(thread, each) for each in thread.calls()]

    assert (turn.at, turn.ended_at) == ("2027-01-15T08:00:00.000000Z", "2027-01-15T08:00:05.000000Z")
    assert [(each.begun_at[17:19], each.ended_at[17:19]) for each in turn.steps] == [
        ("00", "00"),
        ("05", "05"),
    ]
    assert [(each.started_at, each.ended_at) for each in calls] == [(turn.at, turn.ended_at), (None, None)]
