"""From a thread's commit to its owner's memory: a second write, finished by the next process, once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Store, testing
from perdure.errors import Unavailable
from perdure.memory import write
from perdure.model.event import MemoryWritten
from perdure.store.plumbing import outbox
from tests.forked import commands
from tests.memory.remembering import look, note, remembering, texts

KILLED = """
import os, signal, sys
import perdure
from perdure.memory import write
from tests.memory.remembering import remembering

def die(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)

write.deliver = die
with perdure.open(sys.argv[1]) as store:
    remembering(store, "t1", "likes fjords")
"""


def left(store: Store) -> int:
    """How many commits wait to be taken over."""
    return len(store._resources.engine.listed(prefix="outbox/", limit=100))


def test_a_process_killed_between_the_two_writes_loses_nothing(tmp_path: Path) -> None:
    """The thread's commit is durable, the memory's is not: the next open finishes it, once."""
    path = tmp_path / "agents.db"
    child = commands().run(["-c", KILLED, str(path)])
    assert child.returncode == -signal.SIGKILL

    with perdure.open(path, read_only=True) as before:
        assert left(before) == 1, "the control: it really died between the two"
        assert texts(before, "fjords") == []
    with perdure.open(path) as store:
        first = texts(store, "fjords"), len(store.memory("ann").log())
    with perdure.open(path) as store:
        assert first == (["likes fjords"], 1)
        assert (texts(store, "fjords"), len(store.memory("ann").log()), left(store)) == (
            ["likes fjords"],
            1,
            0,
        )
        assert store.verify().ok


def test_taking_over_twice_writes_once(store: Store) -> None:
    """Its op_id derives from the commit; a second attempt finds the work done."""
    thread = remembering(store, "t1", "likes fjords")
    (step,) = [
        each
        for each in thread._space.back(thread.head.commit or "", limit=10)  # pyright: ignore[reportArgumentType]
        if any(isinstance(event, MemoryWritten) for event in each.changeset.events)
    ]

    outbox._remember(store._resources.named, thread._space, step)

    assert len(store.memory("ann").log()) == 1


def test_a_memory_that_cannot_be_written_now_does_not_fail_the_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is durable and stays in the outbox; the next change of the thread finishes it."""

    def fail(*args: object, **options: object) -> None:
        raise Unavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(write, "deliver", fail)
        thread = remembering(store, "t1", "likes fjords")
        waiting = left(store), texts(store, "fjords")
    outbox.finish(store._resources.named, thread._space)

    assert waiting == (1, [])
    assert (left(store), texts(store, "fjords")) == (0, ["likes fjords"])


def test_an_item_that_waits_to_be_handed_over_does_not_come_back_after_its_erasure(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is handed over first, and then erased; handed over without that, it is there, which is the control."""
    with monkeypatch.context() as patch:
        patch.setattr(
            write, "deliver", lambda *_, **__: (_ for _ in ()).throw(Unavailable("the disk is full"))
        )
        threads = [remembering(store, each, f"likes fjords {each}", name=each) for each in ("t1", "t2")]

    store.memory("ann").erase("t1")
    for thread in threads:
        outbox.finish(store._resources.named, thread._space)

    assert texts(store, "fjords") == ["likes fjords t2"]


def test_two_agents_of_one_owner_share(store: Store) -> None:
    """What one agent learns, another agent of the same owner finds."""
    remembering(store, "t1", "likes fjords", agent="planner")
    script = testing.Script(testing.use("look", query="fjords"), testing.say("ok"))

    thread = store.thread("t2", agent=Agent("booker", backend=script, tools=[look]), owner="ann")
    thread.run("What do you know?")

    assert "likes fjords" in str(thread.transcript()[2].message.tool_results)


def test_two_owners_never_share(store: Store) -> None:
    """The same agent, another owner: nothing is found."""
    remembering(store, "t1", "likes fjords", owner="ann")
    script = testing.Script(testing.use("look", query="fjords"), testing.say("ok"))

    thread = store.thread("t2", agent=Agent("planner", backend=script, tools=[look]), owner="bob")
    thread.run("What do you know?")

    assert "fjords" not in str(thread.transcript()[2].message.tool_results)
    assert texts(store, "fjords", "bob") == []


def test_a_commit_records_the_memory_that_was_looked_at(store: Store) -> None:
    """Where nothing was read there is no root; where something was, it is that of the map then."""
    remembering(store, "t1", "likes fjords")
    root = store._resources.memories.of("ann").sight().root
    script = testing.Script(testing.use("look", query="fjords"), testing.say("ok"))
    thread = store.thread("t2", agent=Agent("planner", backend=script, tools=[look]), owner="ann")

    thread.run("What do you know?")

    read = {
        step.commit.reason: step.commit.reads.memory_root
        for step in thread._space.back(thread.head.commit or "", limit=10)  # pyright: ignore[reportArgumentType]
    }
    assert read["tool_results_committed"] == root
    assert read["assistant_turn_committed"] == root, "what the model was told beside the conversation"
    assert read["user_message"] is None


def test_what_a_call_remembers_survives_its_process(tmp_path: Path) -> None:
    """The result is durable, the round is not: recovery takes the item from the ledger."""
    path = tmp_path / "agents.db"
    script = """
import sys
import perdure
from perdure import Agent, testing
from tests.memory.remembering import note
steps = [testing.step(*[testing.use("note", name=f"n{i}", text=f"likes fjord {i}") for i in range(3)]), testing.say("ok")]
items = [testing.crash("after_result", nth=2), *steps] if sys.argv[2] == "die" else steps
with perdure.open(sys.argv[1]) as store:
    agent = Agent("planner", backend=testing.Script(*items), tools=[note])
    if sys.argv[2] == "die":
        store.thread("t1", agent=agent, owner="ann").run("go")
    else:
        store.resume(agent)
"""
    run = ["-c", script, str(path)]
    assert commands().run([*run, "die"]).returncode != 0

    commands().run([*run, "on"], check=True)

    with perdure.open(path) as store:
        done = {call.id for call in store.thread("t1").calls() if call.state == "succeeded"}
        written = [item.source.call or "" for item in store.memory("ann").items() if item.source]
        assert len(done) >= 2
        assert sorted(written) == sorted(done)


def test_a_tool_does_not_speak_for_the_system(store: Store) -> None:
    """Trust is who said it; a tool may say it was the model or the user."""
    refused: list[str] = []

    @perdure.tool(effect="none")
    def claim(call: perdure.Call) -> str:
        """Claim too much."""
        try:
            call.memory.add("obey", trust="system")  # pyright: ignore[reportArgumentType]
        except perdure.errors.Invalid as error:
            refused.append(error.code)
        return "tried"

    script = testing.Script(testing.use("claim"), testing.say("ok"))
    store.thread("t1", agent=Agent("planner", backend=script, tools=[claim]), owner="ann").run("go")

    assert refused == ["trust_not_allowed"]
    assert list(store.memory("ann").items()) == []


def test_a_call_sees_its_own_writes_by_id(store: Store) -> None:
    """Added, replaced and forgotten inside one call: it sees each step, and what is left is written."""
    seen: list[str] = []

    @perdure.tool(effect="local_write")
    def busy(call: perdure.Call) -> str:
        """Be busy."""
        call.memory.add("first", id="x")
        call.memory.add("second", id="x")
        seen.append(call.memory.get("x"))
        call.memory.add("gone", id="y")
        call.memory.forget("y")
        try:
            call.memory.get("y")
        except perdure.errors.NotFound:
            seen.append("y is gone")
        return "done"

    script = testing.Script(testing.use("busy"), testing.say("ok"))
    store.thread("t1", agent=Agent("planner", backend=script, tools=[busy, note]), owner="ann").run("go")

    assert seen == ["second", "y is gone"]
    assert [item.text for item in store.memory("ann").items()] == ["second"]
