"""Equal calls of several openings: one that has never read the gate of a call takes it for new, and the store refuses that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import perdure
from perdure import Agent, Store, Thread
from perdure.testing import Script, say, use
from tests.runtime.runs.unguarded import guard_by_id_alone

Booker = Callable[[Store], Thread]


@pytest.fixture
def booked() -> list[str]:
    """Return the flights that were booked."""
    return []


@pytest.fixture(params=["ask", "allow"])
def booker(booked: list[str], request: pytest.FixtureRequest) -> Booker:
    """Return a function that returns the thread, for an agent that books one flight."""

    @perdure.tool(effect="external_write", repeat_guard=request.param)
    def book(flight: str) -> str:
        """Book a flight."""
        booked.append(flight)
        return f"booked {flight}"

    def thread_in(store: Store) -> Thread:
        script = Script(use("book", flight="SK1"), say("Done."))
        return store.thread("trip", agent=Agent("planner", backend=script, tools=[book]))

    return thread_in


@pytest.mark.parametrize("booker", ["ask"], indirect=True)
def test_what_another_opening_has_done_is_not_done_again_unasked(
    store: Store, store_url: str, booker: Booker, booked: list[str]
) -> None:
    """After an undo the run of another opening asks, as the first opening would."""
    booker(store).run("Book it")
    booker(store).undo()

    with perdure.open(store_url) as other:
        result = booker(other).run("Book it, please")

    assert (result.status, result.approvals[0].action) == ("waiting", "repeat")
    assert booked == ["SK1"]


@pytest.mark.parametrize("booker", ["ask"], indirect=True)
def test_without_the_gate_it_is_done_again(
    store: Store, store_url: str, booker: Booker, booked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: nothing else would have refused the call."""
    guard_by_id_alone(monkeypatch)
    booker(store).run("Book it")
    booker(store).undo()

    with perdure.open(store_url) as other:
        booker(other).run("Book it, please")

    assert booked == ["SK1", "SK1"]


@pytest.mark.parametrize("booker", ["allow"], indirect=True)
def test_a_tool_that_may_repeat_is_started_by_the_write_of_its_turn(
    store: Store, store_url: str, booker: Booker, booked: list[str]
) -> None:
    """The refused write leaves no trace: the other opening's turn enters and starts its call in one write, once."""
    booker(store).run("Book it")

    with perdure.open(store_url) as other:
        result = booker(other).run("Book it, please")
        (call,) = booker(other).calls(run=result.run)
        first = booker(other).trace(call.id).passed[0]

    assert (result.status, booked, call.attempt) == ("succeeded", ["SK1", "SK1"], 1)
    assert first.states == ("proposed", "requested", "started")
