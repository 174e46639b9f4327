"""On record: a run's record names the backend that took its last step, its history where it began."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from perdure import Agent, Route, Store, Thread
from perdure.errors import RunFailed
from perdure.model.context import Context
from perdure.model.event import RunStarted
from perdure.model.message import Message, Text
from perdure.model.run import HeadPolicy
from perdure.providers.contract import Finished, ModelEvent
from perdure.runtime import failpoints
from perdure.testing import Script, fail, say

A, B, C = "openai:gpt-5.6", "anthropic:claude-sonnet-5-5", "google:gemini-2.5-pro"


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """No point is armed afterwards."""
    yield
    failpoints.disarm()


def recorded(thread: Thread) -> str | None:
    """The backend that the record of the last run names."""
    return thread.runs()[-1].backend


def begun_on(thread: Thread) -> list[str | None]:
    """The backends that runs began with, oldest first."""
    events = [event for commit in reversed(thread.log()) for event in commit.events]
    return [event.backend for event in events if isinstance(event, RunStarted)]


def test_the_record_names_whom_the_run_came_to(store: Store) -> None:
    """Along a route of three it is the last; the history tells the first."""
    route = Route([Script(fail(), backend=B), Script(say("Hello."), backend=C)])
    thread = store.thread("t", agent=Agent("a", backend=Script(fail(), backend=A), route=route))

    thread.run("Hello")

    assert recorded(thread) == C
    assert begun_on(thread) == [A]
    assert [step.to_backend for step in thread.switches(run=thread.runs()[-1].id)] == [B, C]
    assert store.verify().ok


def test_without_a_failover_the_record_names_whom_it_began_with(store: Store) -> None:
    """Control: a route that nobody takes changes nothing."""
    agent = Agent("a", backend=Script(say("Hello."), backend=A), route=Route([Script(backend=B)]))
    thread = store.thread("t", agent=agent)

    thread.run("Hello")

    assert (recorded(thread), begun_on(thread)) == (A, [A])


@pytest.mark.parametrize("policy", ["each_step", "on_success"])
def test_a_run_that_fails_in_the_end_names_who_failed_last(store: Store, policy: HeadPolicy) -> None:
    """Also where its commits stay on a line of its own."""
    agent = Agent("a", backend=Script(fail(), backend=A), route=Route([Script(fail(), backend=B)]))
    thread = store.thread("t", agent=agent)

    with pytest.raises(RunFailed):
        thread.run("Hello", head_policy=policy)

    assert recorded(thread) == B


class Looks:
    """A model that looks up which backend the record names while it speaks."""

    backend = B

    def __init__(self) -> None:
        self.thread: Thread | None = None
        self.seen: list[str | None] = []

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Look, and say so."""
        assert self.thread is not None
        self.seen.append(recorded(self.thread))
        yield Finished(message=Message("assistant", (Text("I looked."),)))


def test_the_record_is_right_while_the_run_lives(store: Store) -> None:
    """Whoever looks meanwhile sees who is asked now."""
    spare = Looks()
    thread = store.thread("t", agent=Agent("a", backend=Script(fail(), backend=A), route=Route([spare])))
    spare.thread = store.thread("t")

    thread.run("Hello")

    assert spare.seen == [B]


def test_what_is_said_to_the_run_at_that_moment_is_heard(store: Store) -> None:
    """The record is changed by others just before the write: it is read again, and nothing is lost."""
    spare = Script(say("Hello."), say("Hei."), backend=B)
    thread = store.thread("t", agent=Agent("a", backend=Script(fail(), backend=A), route=Route([spare])))

    def interrupt() -> None:
        thread.steer("In Norwegian, please")

    failpoints.arm("switch_checked", interrupt)

    thread.run("Hello")

    assert recorded(thread) == B
    assert thread.runs()[-1].steered == 1
    assert [entry.message.text for entry in thread.transcript()].count("In Norwegian, please") == 1
    assert len(thread.switches()) == 1
    assert store.verify().ok
