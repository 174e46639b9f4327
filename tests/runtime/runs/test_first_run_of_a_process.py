"""The first run of a process, and the resumption of a run, cost the same on a long thread as on a short one.

Everything that the engine gives back is counted: calls, and the commits among their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Agent, Thread
from perdure.context.limits import ContextLimits
from perdure.engines.contract import Step
from perdure.engines.memory import MemoryEngine
from perdure.history import reader
from perdure.history.reader import eventful
from perdure.history.space import CommitCache
from perdure.model.message import Message, Text
from perdure.runtime.inference.backend import line_backend
from perdure.testing import Script, say, use
from tests.crash.campaign import sized
from tests.runtime.runs.injecting import Wire, opened

SHORT, LONG = 100, sized(1_000, 3_000)  # commits
STEPS_MAX = 250  # commits that may be decoded, whatever the length of the thread
PROBES_MAX = 80  # more calls where something is found by halving

READS = frozenset(
    {
        "cell",
        "cells",
        "entries",
        "steps",
        "events",
        "objects",
        "holds",
        "moves",
        "labelled",
        "turn",
        "hold",
        "recorded",
    }
)


class Meter(Wire):
    """A wire that counts the reads, and the commits that they return."""

    calls = 0
    steps_read = 0

    def __getattribute__(self, name: str) -> Any:
        """Return what the engine has; a read is counted."""
        if name not in READS:
            return super().__getattribute__(name)
        read = getattr(self.inner, name)

        def counted(*args: Any, **options: Any) -> Any:
            found = read(*args, **options)
            self.calls += 1
            self.steps_read += len(found) if name in ("steps", "events") else isinstance(found, Step)
            return found

        return counted


@perdure.tool(effect="read_only")
def look() -> str:
    """Look."""
    return "seen"


@perdure.tool(effect="external_write", ask=True)
def send() -> str:
    """Send."""
    return "sent"


def agent_with(*script: Any) -> Agent:
    """Return an agent that is shown no more than fits into a small window."""
    limits = ContextLimits(window=3_000, turns=4)
    return Agent("planner", backend=Script(*script), tools=[look, send], context=limits)


def changes(thread: Thread, count: int) -> None:
    """Commit so many changes of the state."""
    for number in range(count):
        with thread.change("note") as change:
            change.put("/n", number)


def messages(thread: Thread, count: int) -> None:
    """Commit so many messages."""
    for number in range(count):
        with thread.change("said") as change:
            change.add(Message("user" if number % 2 else "assistant", (Text(f"word {number} " * 4),)))


def runs_before_changes(thread: Thread, count: int) -> None:
    """Run once, then commit so many changes."""
    thread.run("first")
    changes(thread, count)


def first_run(fill: Callable[[Thread, int], None], count: int) -> Meter:
    """Fill a thread, open its store again and run once; return what that run has read."""
    engine = MemoryEngine()
    fill(opened(Wire(engine), "memory:").thread("trip", agent=agent_with(say("Yes."))), count)
    meter = Meter(engine)
    thread = opened(meter, "memory:").thread("trip", agent=agent_with(use("look"), say("Done.")))
    meter.calls = meter.steps_read = 0

    assert thread.run("go").status == "succeeded"

    return meter


@pytest.mark.parametrize("fill", [changes, runs_before_changes])
def test_the_first_run_reads_as_much_of_a_long_thread_as_of_a_short_one(
    fill: Callable[[Thread, int], None],
) -> None:
    """Many times as many changes of the state, which the model is not shown: each is read once, to know that."""
    short, long = first_run(fill, SHORT), first_run(fill, LONG)

    assert long.steps_read <= max(short.steps_read, STEPS_MAX) + LONG
    assert long.calls <= short.calls + PROBES_MAX


def test_messages_alone_cost_the_same_number_of_reads() -> None:
    """Once the window is outgrown, a longer history needs no call more, and no other commit is decoded."""
    middle, long = first_run(messages, sized(1_000, 1_500)), first_run(messages, sized(1_400, 3_000))

    assert (long.calls, long.steps_read) == (middle.calls, middle.steps_read)


def test_a_walk_to_the_beginning_is_seen_by_the_meter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: with a backend that is looked for commit by commit, the same measure grows with the thread."""

    def every(space: Any, at: Any) -> Any:
        return reader.recent(space, at)

    monkeypatch.setattr("perdure.switching.current_backend.eventful", every)
    monkeypatch.setattr("perdure.switching.current_backend._was_leased", lambda _: True)

    assert first_run(messages, LONG).steps_read > LONG


def test_resuming_reads_as_much_of_a_long_thread_as_of_a_short_one() -> None:
    """A run waits, others change the state again and again, and the decision comes in a later process."""

    def resumed(count: int) -> Meter:
        engine = MemoryEngine()
        thread = opened(Wire(engine), "memory:").thread("trip", agent=agent_with(use("send"), say("Done.")))
        waiting = thread.run("go")
        changes(thread, count)
        thread.decide(waiting.approvals[0].call, "approve", by="ada")
        meter = Meter(engine)
        thread = opened(meter, "memory:").thread("trip", agent=agent_with(use("send"), say("Done.")))
        meter.calls = meter.steps_read = 0
        assert thread.resume().status == "succeeded"
        return meter

    short, long = resumed(SHORT), resumed(LONG)

    assert long.steps_read <= max(short.steps_read, STEPS_MAX) + LONG
    assert long.calls <= short.calls + PROBES_MAX


def walked(thread: Thread, walk: Callable[..., Any]) -> Sequence[Step]:
    """Return the commits with events, as a walk yields them."""
    space = thread._space  # pyright: ignore[reportPrivateUsage]
    space = msgspec.structs.replace(space, steps=CommitCache())
    return [step for step in walk(space, thread.head.commit) if step.changeset.events]


@pytest.mark.parametrize(
    "gaps", [(), (0,), (1, 1, 1), (7, 8, 9), (300,), (0, 500, 0), (130, 1, 260, 2), (1_000, 3)]
)
def test_a_walk_that_skips_finds_every_commit_with_events(store_url: str, gaps: tuple[int, ...]) -> None:
    """However many commits without events are between them, before and after."""
    thread = perdure.open(store_url).thread("trip", agent="planner")
    for number, gap in enumerate(gaps):
        changes(thread, gap)
        messages(thread, number % 3 + 1)
    changes(thread, sum(gaps) % 17)

    assert walked(thread, eventful) == walked(thread, reader.recent)


def test_the_backend_is_found_behind_changes_and_on_forks() -> None:
    """A run long ago, a switch beside it, and a thread that was never run."""
    store = opened(Wire(MemoryEngine()), "memory:")
    ran = store.thread("ran", agent=agent_with(say("Yes.")))
    ran.run("first")
    messages(ran, 60)
    changes(ran, 300)
    fork = ran.fork("other")
    never = store.thread("never", agent=agent_with(say("Yes.")))
    messages(never, 60)

    found = [line_backend(thread._env()) for thread in (ran, fork, never)]  # pyright: ignore[reportPrivateUsage]

    assert [None if each is None else each.name for each in found] == ["script:test", "script:test", None]
