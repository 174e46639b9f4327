"""A switch races a running turn: one wins, the other is told, and no thread is ever half switched.

In every history each turn was taken by the backend that the line was on when it began.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Store, Thread
from perdure.engines.contract import Receipt, Write
from perdure.engines.sqlite import SqliteEngine
from perdure.errors import Busy, Conflict
from perdure.model.event import BackendSwitched, MessageAppended, RunStarted
from perdure.runtime.run import start
from perdure.testing import Script, say, use
from tests.crash.campaign import sized
from tests.crash.processes import Pipe, running
from tests.runtime.runs.opened import store_on

A, B = "openai:gpt-5.6", "anthropic:claude-sonnet-5-5"
THREAD = "trip-42"
TURNS = sized(24, 600)


class Interrupted(SqliteEngine):
    """An engine that does something else, once, right before the next write that has certain words in it."""

    event = ""
    meanwhile: Callable[[], None] | None = None

    def apply(self, write: Write) -> Receipt:
        """Let the other come in between."""
        meanwhile = self.meanwhile
        held = [each.body for each in write.objects] + [each.value or b"" for each in write.cells]
        if meanwhile is not None and any(self.event.encode() in each for each in held):
            self.meanwhile = None
            meanwhile()
        return super().apply(write)


@pytest.fixture
def engine(tmp_path: Path) -> Interrupted:
    """Such an engine, on a file."""
    return Interrupted(tmp_path / "agents.db")


@pytest.fixture
def store(engine: Interrupted) -> Iterator[Store]:
    """A store on it."""
    with store_on(engine) as opened:
        yield opened


def agent(*texts: str, backend: str = A) -> Agent:
    """An agent that says that."""
    return Agent("planner", backend=Script(*(say(text) for text in texts), backend=backend))


def half_switched(thread: Thread) -> list[str]:
    """Where the history does not agree with itself about whose turn it was."""
    found: list[str] = []
    line: str | None = None
    for commit in reversed(thread.log()):
        for event in commit.events:
            match event:
                case BackendSwitched(from_backend=before, to_backend=to):
                    if line is not None and before != line:
                        found.append(f"switched from {before}, but it was on {line}")
                    line = to
                case RunStarted(backend=str() as backend):
                    if line is not None and backend != line:
                        found.append(f"a run began on {backend}, but the line was on {line}")
                    line = backend
                case MessageAppended(role="assistant", provider=provider, model=model):
                    if f"{provider}:{model}" != line:
                        found.append(f"{provider}:{model} spoke, but the line was on {line}")
                case _:
                    pass
    return found


def test_a_switch_under_a_running_turn_is_told_so(store: Store) -> None:
    """The turn wins: the switch raises `Busy`, names the run, and has written nothing."""
    begun, end = threading.Event(), threading.Event()

    @perdure.tool(effect="read_only")
    def wait() -> str:
        """Wait."""
        begun.set()
        assert end.wait(30)
        return "waited"

    script = Script(use("wait"), say("Done."), backend=A)
    thread = store.thread(THREAD, agent=Agent("planner", backend=script, tools=[wait]))
    running_turn = threading.Thread(target=lambda: thread.run("Go"))
    running_turn.start()
    assert begun.wait(30)

    with pytest.raises(Busy):
        store.thread(THREAD, agent=agent()).switch(Script(backend=B))

    end.set()
    running_turn.join()
    assert (thread.backend, half_switched(thread)) == (A, [])


def test_a_turn_that_begins_while_a_switch_is_made_goes_on_with_the_new_backend(
    store: Store, engine: Interrupted
) -> None:
    """It had read that the line is on A; the switch was written first, so it is asked of B."""
    thread = store.thread(THREAD, agent=agent("Hello."))
    thread.run("Hello")
    new = Script(say("I am B."), backend=B)

    engine.event, engine.meanwhile = "run.started", lambda: _switch(thread, new)
    result = thread.run("Who are you?")

    assert (result.text, thread.backend, half_switched(thread)) == ("I am B.", B, [])


def test_a_run_that_is_resumed_while_a_switch_is_made_goes_on_with_the_new_backend(
    store: Store, engine: Interrupted
) -> None:
    """It takes the lease by the revision that it read before it found its model."""

    @perdure.tool(effect="none", ask=True)
    def look() -> str:
        """Look."""
        return "seen"

    first = Script(use("look"), say("I am A."), backend=A)
    thread = store.thread(THREAD, agent=Agent("planner", backend=first, tools=[look]))
    (asked,) = thread.run("Look").approvals
    thread.decide(asked.call, "approve")

    engine.event = '"state":"running"'
    engine.meanwhile = lambda: _switch(thread, Script(say("I am B."), backend=B))
    result = thread.resume()

    assert (result.text, thread.backend, half_switched(thread)) == ("I am B.", B, [])


def test_without_looking_again_the_turn_would_take_the_switch_back(
    store: Store, engine: Interrupted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: a run that does not hold its backend against the line it begins on leaves it half switched."""
    monkeypatch.setattr(start, "is_on", lambda *_: True)
    thread = store.thread(THREAD, agent=agent("Hello.", "I am A."))
    thread.run("Hello")

    engine.event = "run.started"
    engine.meanwhile = lambda: _switch(thread, Script(backend=B))
    thread.run("Who are you?")

    assert half_switched(thread) != []


def test_a_switch_that_a_turn_overtakes_is_told_so(store: Store, engine: Interrupted) -> None:
    """A run that waits for nobody has begun and is under way when the switch comes to write."""
    begun, end = threading.Event(), threading.Event()

    @perdure.tool(effect="read_only")
    def wait() -> str:
        """Wait."""
        begun.set()
        assert end.wait(30)
        return "waited"

    script = Script(use("wait"), say("Done."), backend=A)
    thread = store.thread(THREAD, agent=Agent("planner", backend=script, tools=[wait]))
    turn = threading.Thread(target=lambda: thread.run("Go"))

    def overtake() -> None:
        turn.start()
        assert begun.wait(30)

    engine.event, engine.meanwhile = "backend.switched", overtake
    with pytest.raises(Busy):
        store.thread(THREAD, agent=agent()).switch(Script(backend=B))

    end.set()
    turn.join()
    assert (thread.backend, half_switched(thread)) == (A, [])


def test_a_switch_over_what_others_wrote_is_made_on_top(store: Store, engine: Interrupted) -> None:
    """A change of the state in between is no run: the switch looks again, and its checkpoint names the new commit."""
    thread = store.thread(THREAD, agent=agent("Hello."))
    thread.run("Hello")

    engine.event, engine.meanwhile = "backend.switched", lambda: _put(thread)
    report = thread.switch(Script(backend=B))

    assert thread.get("/title.json") == "Oslo"
    assert report.checkpoint is not None
    assert report.checkpoint.commit == thread.log()[1].digest


def _switch(thread: Thread, to: Script) -> None:
    thread.switch(to)


def _put(thread: Thread) -> None:
    thread.put("/title.json", "Oslo")


def talk(pipe: Pipe, path: str, turns: int) -> None:
    """In another process: take turns, whoever's they are."""
    both = {name: Script(*(say("Hello.") for _ in range(turns)), backend=name) for name in (A, B)}
    route = perdure.Route([both[B]])
    with perdure.open(path) as store:
        thread = store.thread(THREAD, agent=Agent("planner", backend=both[A], route=route))
        pipe.send("ready")
        pipe.recv()
        told = 0
        for number in range(turns):
            time.sleep(number % 3 / 50)  # sometimes at once, sometimes not
            try:
                thread.run(f"Turn {number}")
            except Busy:
                told += 1
        pipe.send(told)


def test_two_processes_never_leave_a_thread_half_switched(lasting_url: str) -> None:
    """One takes turns, the other switches to and fro as fast as it can; every history agrees with itself."""
    made = told = 0
    others = {A: Script(backend=B), B: Script(backend=A)}  # by the backend that the line is on
    with perdure.open(lasting_url) as store:
        thread = store.thread(THREAD, agent=agent())
        with running(talk, lasting_url, TURNS) as other:
            assert other.answer() == "ready"
            other.tell("go")
            while not other.is_heard():
                try:
                    made += thread.switch(others[thread.backend or A]).switched
                except Conflict:  # a run is there, or they come and go all the time
                    told += 1
            other.answer()

        assert half_switched(thread) == []
        assert len(thread.runs()) == TURNS
        assert store.verify().ok
    assert made
    assert told
