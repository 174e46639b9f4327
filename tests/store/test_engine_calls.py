"""How often each operation calls the engine.  On a server each call is a round trip, and a write counts one.

A scene prepares a store and returns the operation.  The bounds are what the operations need today.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Store, Thread
from perdure.engines.contract import CellOf, CellWrite, HeadOf
from perdure.engines.memory import MemoryEngine
from perdure.engines.sqlite.engine import SqliteEngine
from perdure.errors import Corrupt, Moved
from perdure.testing import Script, say, use
from perdure.testing.engines.builders import SPACE, write
from tests.selection import engines
from tests.store.engine_calls import CountingEngine, opened

_names = count()
_numbers = count()

Scene = Callable[[Store], Callable[[], Any]]


@perdure.tool(effect="external_write")
def send(to: int) -> str:
    """Send something."""
    return f"sent {to}"


def agent(*steps: Any) -> Agent:
    """An agent whose backend says these steps over and over."""
    return Agent("planner", backend=Script(*steps * 10), tools=[send])


def talked(store: Store) -> Thread:
    """A thread with two runs, several states and one other thread beside it."""
    other = store.thread("other", agent="planner")
    other.put("/a.json", 1)
    thread = store.thread("trip", agent=agent(say("Hello."), say("Hello again.")))
    thread.run("Hi.")
    thread.put("/notes/a.json", {"n": 1})
    thread.put("/notes/b.json", {"n": 2})
    thread.run("And then?")
    thread.get("/notes/a.json")
    return thread


def run_without_tool(store: Store) -> Callable[[], Any]:
    """A run of one step, in a thread with a history."""
    talked(store)
    thread = store.thread("trip", agent=agent(say("Done.")))
    return lambda: thread.run("Go on.")


def run_with_write(store: Store) -> Callable[[], Any]:
    """A run with one external write, the first of its tool in this process."""
    talked(store)
    thread = store.thread("trip", agent=agent(use("send", to=next(_numbers)), say("Done.")))
    return lambda: thread.run("Send it.")


def later_run_with_write(store: Store) -> Callable[[], Any]:
    """A run with one external write, after others; its input has an id of the caller."""
    act: Callable[[], Any] = run_with_write(store)
    act()
    numbers = iter(range(1000, 2000))
    said = [step for _ in range(3) for step in (use("send", to=next(numbers)), say("Done."))]
    thread = store.thread("trip", agent=Agent("planner", backend=Script(*said), tools=[send]))
    thread.run("First.", id="first")
    return lambda: thread.run("Second.", id="second")


def first_run(store: Store) -> Callable[[], Any]:
    """The first run of a thread that was just begun."""
    thread = store.thread("trip", agent=agent(say("Done.")))
    return lambda: thread.run("Go on.")


def put(store: Store) -> Callable[[], Any]:
    """One value."""
    thread = talked(store)
    return lambda: thread.put("/notes/c.json", {"n": 3})


def put_again(store: Store) -> Callable[[], Any]:
    """One value, under an op_id that was used before."""
    thread = talked(store)
    thread.put("/notes/c.json", {"n": 3}, op_id="mine")
    return lambda: thread.put("/notes/c.json", {"n": 3}, op_id="mine")


def put_named(store: Store) -> Callable[[], Any]:
    """One value, under an op_id of the caller."""
    thread = talked(store)
    return lambda: thread.put("/notes/c.json", {"n": 3}, op_id="mine")


def block(store: Store) -> Callable[[], Any]:
    """One message and one value in a block."""
    thread = talked(store)

    def act() -> None:
        with thread.change("turn") as change:
            change.say("user", "Hello.")
            change.put("/notes/c.json", change.get("/notes/a.json"))

    return act


def get(store: Store) -> Callable[[], Any]:
    """A value that was read before."""
    thread = talked(store)
    return lambda: thread.get("/notes/a.json")


def log(store: Store) -> Callable[[], Any]:
    """The last commits."""
    thread = talked(store)
    return lambda: thread.log(limit=20)


def transcript(store: Store) -> Callable[[], Any]:
    """All messages."""
    thread = talked(store)
    return thread.transcript


def opening(store: Store) -> Callable[[], Any]:
    """A thread that exists, by its id."""
    talked(store)
    return lambda: store.thread("trip")


def opening_with_agent(store: Store) -> Callable[[], Any]:
    """A thread that exists, with its agent."""
    talked(store)
    declared = agent(say("Hello."))
    store.thread("trip", agent=declared)
    return lambda: store.thread("trip", agent=declared)


def opening_timeline(store: Store) -> Callable[[], Any]:
    """Another timeline of a thread."""
    talked(store).fork("b")
    return lambda: store.thread("trip", timeline="b")


def beginning(store: Store) -> Callable[[], Any]:
    """A new thread of a known agent."""
    talked(store)
    declared = agent(say("Hello."))
    store.thread("trip", agent=declared)
    return lambda: store.thread("new", agent=declared)


def fork(store: Store) -> Callable[[], Any]:
    """A timeline at the newest commit."""
    thread = talked(store)
    return lambda: thread.fork("b")


def undo(store: Store) -> Callable[[], Any]:
    """The last turn."""
    return talked(store).undo


def redo(store: Store) -> Callable[[], Any]:
    """The last undo."""
    thread = talked(store)
    thread.undo()
    return thread.redo


def threads(store: Store) -> Callable[[], Any]:
    """All threads of a store, in one page."""
    talked(store)
    return lambda: list(store.threads())


def parted(store: Store) -> Thread:
    """A thread with a fork, both with values and messages of their own."""
    thread = talked(store)
    other = thread.fork("b")
    other.put("/notes/d.json", 4)
    with other.change("turn") as change:
        change.say("user", "Hello.")
    thread.put("/notes/e.json", 5)
    return thread


def diff(store: Store) -> Callable[[], Any]:
    """Two timelines."""
    thread = parted(store)
    theirs = thread.on("b").head
    return lambda: thread.diff(theirs)


def promote(store: Store) -> Callable[[], Any]:
    """A fork becomes main."""
    thread = parted(store)
    return lambda: thread.promote("b")


def merge(store: Store) -> Callable[[], Any]:
    """A fork is merged into main."""
    thread = parted(store)
    return lambda: thread.merge("b")


def check_switch(store: Store) -> Callable[[], Any]:
    """The report about another backend."""
    thread = parted(store)
    return lambda: thread.check_switch(Script(say("Hi.")))


BOUNDS: dict[Scene, int] = {
    run_without_tool: 3,
    run_with_write: 8,
    later_run_with_write: 7,
    first_run: 4,
    put: 2,
    put_named: 2,
    put_again: 2,
    block: 4,
    get: 2,
    log: 2,
    transcript: 2,
    opening: 2,
    opening_with_agent: 2,
    opening_timeline: 3,
    beginning: 2,
    fork: 2,
    undo: 3,
    redo: 3,
    threads: 2,
    diff: 2,
    promote: 5,
    merge: 6,
    check_switch: 5,
}


@pytest.fixture(params=engines("sqlite", "memory"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that does not exist yet."""
    return f"memory:calls-{next(_names)}" if request.param == "memory" else str(tmp_path / "agents.db")


@pytest.mark.parametrize("scene", BOUNDS, ids=lambda scene: scene.__name__)
def test_an_operation_calls_the_engine_at_most_so_often(
    url: str, monkeypatch: pytest.MonkeyPatch, scene: Scene
) -> None:
    """The calls of one operation, in a store that is in use."""
    with opened(url, monkeypatch) as (store, calls):
        act = scene(store)
        calls.clear()
        act()

    assert len(calls) <= BOUNDS[scene], calls


def test_a_run_with_an_external_write_writes_four_times(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start, the start of the call, the result, and its end: no round trip is saved by a promise."""
    with opened(url, monkeypatch) as (store, calls):
        act = later_run_with_write(store)
        calls.clear()
        act()

    assert calls.count("apply") == 4


@pytest.mark.parametrize("scene", [later_run_with_write, run_without_tool, put_named, fork, undo, threads])
def test_asked_one_by_one_the_questions_are_too_many(monkeypatch: pytest.MonkeyPatch, scene: Scene) -> None:
    """The control: the bound holds because one call answers several questions, not because nothing is counted."""
    with opened(f"memory:calls-{next(_names)}", monkeypatch, per_question=True) as (store, calls):
        act = scene(store)
        calls.clear()
        act()

    assert len(calls) > BOUNDS[scene], calls


def test_another_handle_on_an_open_thread_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that knows the agent's declaration nor one that expects a head; an agent without a map has no space."""
    reads: list[object] = []
    real = SqliteEngine._read
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("trip", agent="planner")
        thread.put("/a.json", 1)
        head = store.thread("trip").head
        monkeypatch.setattr(SqliteEngine, "_read", lambda self, read: reads.append(read) or real(self, read))
        thread.with_agent(agent(say("Hello."))).expecting(head)
        assert reads == []

        store.thread("trip")
        assert reads  # Control: to open a thread reads


def test_the_counter_counts_every_call_that_can_be_a_round_trip() -> None:
    """Reads and writes alike, refused ones too; the clock and the names of processes are of this host."""
    engine = CountingEngine(MemoryEngine())
    engine.instant()
    engine.holder()
    engine.hold(SPACE, "main")
    engine.cell(SPACE, "mark")
    engine.apply(write("op", CellWrite(name="mark", expected=0, value=b"{}")))
    with pytest.raises(Moved):
        engine.apply(write("other", CellWrite(name="mark", expected=0, value=b"{}")))
    engine.answers((HeadOf(SPACE, "main"), CellOf(SPACE, "mark")))

    assert engine.calls == ["hold", "cell", "apply", "apply", "answers"]


def test_a_thread_from_a_list_is_compared_with_its_seal_before_it_is_first_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list reads no space of a thread, and a new thread has nothing to compare; any other use is refused."""
    with perdure.open("memory:") as store:
        store.thread("trip", agent="planner").put("/a.json", 1)
        compared: list[str] = []

        def check(space: str, **_: Any) -> None:
            compared.append(space)
            if space.startswith("thread:"):
                raise Corrupt("it was edited.", code="seal_broken")

        monkeypatch.setattr(store._resources.engine, "check", check)
        thread = next(store.threads())
        store.thread("new", agent="planner")
        assert set(compared) == {"store", "agent:planner"}

        with pytest.raises(Corrupt):
            thread.get("/a.json")
        with pytest.raises(Corrupt):
            thread.put("/a.json", 2)
        with pytest.raises(Corrupt):
            store.thread("trip")
