"""Going on with a run as a stream: the same events as at its beginning, on both faces."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Store, Thread, aio, errors
from perdure.runtime.events import Committed, Happening, RunEnded, TextDelta
from perdure.testing import Script, say, use


@perdure.tool(effect="external_write", ask=True)
def pay(amount: int) -> str:
    """Pay, if somebody agrees."""
    return f"paid {amount}"


payer = Agent("payer", backend=Script(use("pay", amount=5), say("All is paid."), pieces=2), tools=[pay])


def decided(store: Store) -> Thread:
    """A thread whose run waits and was approved."""
    thread = store.thread("trip", agent=payer)
    thread.run("go")
    thread.decide(thread.approvals()[0].call, "approve", by="ann")
    return thread


def words(events: list[Happening]) -> list[str]:
    """What was written, piece by piece."""
    return [event.text for event in events if isinstance(event, TextDelta)]


def test_a_resumed_run_can_be_watched(store: Store) -> None:
    """Words come in pieces, the last event has the result, and the run is the one that waited."""
    thread = decided(store)

    events = list(thread.resume_stream())

    assert len(words(events)) == 2
    assert isinstance(events[-1], RunEnded)
    assert (events[-1].result.status, events[-1].result.text) == ("succeeded", "All is paid.")
    assert len(thread.runs()) == 1


def test_a_run_of_another_timeline_is_watched_there(store: Store) -> None:
    """Named by its id, its events are those of its own line."""
    thread = decided(store)
    (run,) = thread.runs()
    elsewhere = thread.fork("other")

    events = list(elsewhere.resume_stream(run.id))

    assert len(words(events)) == 2
    assert [event.commit for event in events if isinstance(event, Committed)][-1] == thread.head.commit
    assert elsewhere.head.commit != thread.head.commit


def test_leaving_the_loop_does_not_stop_the_run(store: Store) -> None:
    """The run ends by itself, as one that was begun as a stream does."""
    thread = decided(store)

    next(iter(thread.resume_stream()))
    list(thread.follow())

    assert thread.turns()[-1].text == "All is paid."


def test_nothing_to_go_on_with_is_raised_where_the_stream_is_read(store: Store) -> None:
    """The same error as `resume` raises."""
    thread = store.thread("trip", agent=payer)

    with pytest.raises(errors.NotFound):
        list(thread.resume_stream())


def test_the_awaitable_face_does_the_same(tmp_path: Path) -> None:
    """`async for`, and the same events."""
    with perdure.open(tmp_path / "s.db") as store:
        decided(store)

    async def resumed() -> list[Happening]:
        async with aio.open(tmp_path / "s.db") as store:
            thread = await store.thread("trip", agent=payer)
            return [event async for event in thread.resume_stream()]

    events = asyncio.run(resumed())

    assert len(words(events)) == 2
    assert isinstance(events[-1], RunEnded)
