"""Writes of tasks: a put carries those that led to it, and none is lost on any other way."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypedDict

import pytest

pytest.importorskip("langgraph", reason="langgraph is not installed")

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

import perdure
from perdure.engines.registry import open_engine
from perdure.errors import Conflict, PerdureError
from perdure.history import retention
from perdure.history.retention import RetentionPolicy
from perdure.integrations.checkpoint_layout import WRITES
from perdure.integrations.langgraph import Saver, task_writes
from perdure.integrations.langgraph.task_writes import (
    PendingWrites,
    WaitBackoff,
    is_carriable,
    merge_writes,
)
from perdure.model import canonical
from perdure.store.plumbing.handles import Ids, system_clock
from perdure.store.store import Store
from tests.integrations.graphs import chat, config, said, say

WRITE = {"task": "one", "path": "", "index": 0, "channel": "messages", "value": "hello", "at": 1}
KEY = ("t", "", "1f0")


@pytest.fixture(autouse=True)
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes wait long enough for a put on a busy machine."""
    monkeypatch.setattr(task_writes, "_WAIT_SECONDS", 1.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in a file."""
    with perdure.open(tmp_path / "agents.db") as opened:
        yield opened


def written(saver: Any, thread_id: str = "t") -> dict[str, list[tuple[str, str]]]:
    """The writes of each checkpoint, by its id: channel and value."""
    return {
        each.config["configurable"]["checkpoint_id"]: [
            (channel, str(value)) for _, channel, value in each.pending_writes or ()
        ]
        for each in saver.list(config(thread_id))
    }


def channels(saver: Any) -> list[list[str]]:
    """The channels that the tasks after each checkpoint wrote to."""
    return [[channel for channel, _ in each] for each in written(saver).values()]


def by_themselves(store: Store) -> int:
    """How many writes are stored by themselves."""
    return len(store.thread("t").on(WRITES).paths("/writes"))


def carried(store: Store) -> int:
    """How many commits carry writes."""
    return sum(
        name.startswith("langgraph-writes:") for each in store.thread("t").log() for name in each.names
    )


def test_a_put_carries_the_writes_that_led_to_it(store: Store) -> None:
    """They are read as those of the checkpoint below, as LangGraph's own saver has them, also after a restart."""
    ours, theirs = Saver(store), InMemorySaver()
    for number in range(3):
        say(chat().compile(checkpointer=ours), str(number))
        say(chat().compile(checkpointer=theirs), str(number))

    assert channels(ours) == channels(theirs)
    assert channels(Saver(store)) == channels(theirs)
    assert carried(store) > 0


class Count(TypedDict):
    """The state of a graph with several tasks in a step."""

    number: int


def test_the_writes_of_several_tasks_are_all_there(store: Store) -> None:
    """Each once, whether a put carries them or not; an error beside them is stored at once."""
    graph: Any = StateGraph(Count)
    ended: list[str] = []
    for name in "abcdefg":
        graph.add_node(name, lambda _, name=name: ended.append(name) or {})
        graph.add_edge(START, name)

    def fails(_: Any) -> Any:
        while len(ended) < 7:  # a task that ends after the error is given up by the graph
            time.sleep(0.01)
        time.sleep(0.2)  # until the last of them is handed to the saver
        raise RuntimeError("no")

    graph.add_node("z", fails)
    graph.add_edge(START, "z")
    app = graph.compile(checkpointer=(saver := Saver(store)))
    with pytest.raises(RuntimeError):
        app.invoke({"number": 1}, config())

    latest = saver.get_tuple(config())
    assert latest is not None
    tasks = [task for task, _, _ in latest.pending_writes or ()]
    assert len(tasks) == len(set(tasks)) == 8
    assert [channel for _, channel, _ in latest.pending_writes or ()].count("__error__") == 1


def test_writes_whose_put_fails_are_stored_by_themselves(store: Store) -> None:
    """The put that took them wrote nothing; `put_writes` returns when they are durable."""
    saver = Saver(store)
    app = chat().compile(checkpointer=saver)
    say(app, "one")
    before = by_themselves(store)
    failed = threading.Event()

    class Failing(Saver):
        def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
            if metadata["step"] == 4:
                with self._memory.pending.take("t", "", config["configurable"]["checkpoint_id"]):
                    failed.set()
                    raise Conflict("lost.", code="langgraph_lost_race")
            return super().put(config, checkpoint, metadata, new_versions)

    with pytest.raises(PerdureError):
        say(chat().compile(checkpointer=Failing(store)), "two", durability="sync")

    latest = saver.get_tuple(config())
    assert failed.is_set()
    assert latest is not None
    assert "messages" in [channel for _, channel, _ in latest.pending_writes or ()]
    assert by_themselves(store) > before


def deleted(path: Path, run: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The writes of each checkpoint before a run is deleted and collected, and after."""
    with perdure.open(path) as store:
        app = chat().compile(checkpointer=(saver := Saver(store)))
        for number in range(3):
            given = config() | {"metadata": {"run_id": f"r{number}"}}
            app.invoke({"messages": [HumanMessage(str(number))]}, given)
        before = written(saver)
        assert carried(store) > 0
        saver.delete_for_runs([run])
    with closing(open_engine(str(path), read_only=False, create=False, durability="power_loss")) as engine:
        policy = RetentionPolicy(undone_after_days=0, removed_threads=True)
        planned = retention.plan(engine, policy, system_clock() + 1_000_000)
        retention.carry_out(engine, planned, ids=Ids(system_clock))
    with perdure.open(path) as store:
        assert store.verify().ok
        return before, written(Saver(store))


@pytest.mark.parametrize("run", ["r1", "r2"])
def test_a_checkpoint_keeps_its_writes_if_those_after_it_are_deleted(tmp_path: Path, run: str) -> None:
    """Also where the commit that carried them is gone."""
    before, after = deleted(tmp_path / "agents.db", run)

    assert len(after) == 8
    assert after == {id: before[id] for id in after}


def test_an_undone_put_leaves_the_writes_with_their_checkpoint(store: Store) -> None:
    """The checkpoint below is the latest again, and its tasks are not run again."""
    ran: list[str] = []
    app = chat(ran.append).compile(checkpointer=(saver := Saver(store)))
    say(app, "one")
    thread = store.thread("t")
    thread.undo(to=thread.log()[2])
    undone = saver.get_tuple(config())
    app.invoke(None, config())

    assert undone is not None
    assert undone.pending_writes
    assert said(app) == ["one", "re: one", "done"]
    assert ran == ["one"]


def test_a_conversation_goes_on_after_its_older_states_were_let_go(tmp_path: Path) -> None:
    """It can be listed, pruned and continued; the checkpoints that are gone are not listed."""
    path = tmp_path / "agents.db"
    with perdure.open(path) as store:
        app = chat().compile(checkpointer=Saver(store))
        say(app, "one")
        say(app, "two")
    with closing(open_engine(str(path), read_only=False, create=False, durability="power_loss")) as engine:
        policy = RetentionPolicy(undone_after_days=0, superseded_after_days=0, removed_threads=True)
        planned = retention.plan(engine, policy, system_clock() + 1_000_000)
        retention.carry_out(engine, planned, ids=Ids(system_clock))
    with perdure.open(path) as store:
        app = chat().compile(checkpointer=(saver := Saver(store)))

        assert len(list(saver.list(config()))) == 1
        saver.prune(["t"])
        say(app, "three")
        assert said(app)[-3:] == ["three", "re: three", "done"]


def test_a_write_waits_until_a_put_has_stored_it() -> None:
    """And not longer: a write that no put takes is the caller's to store, and so is one whose put failed."""
    pending, backoff, stored = PendingWrites(), WaitBackoff(), list[bool]()
    waiter = threading.Thread(target=lambda: stored.append(pending.wait(KEY, [WRITE], backoff)))
    waiter.start()
    taken: Any = ()
    while not taken and waiter.is_alive():
        with pending.take(*KEY) as taken:
            assert stored == []
    waiter.join()

    assert stored == [bool(taken)]
    assert not pending.wait(KEY, [WRITE], backoff)  # no put comes
    with pending.take(*KEY) as nothing:
        assert nothing == ()


def test_a_write_waits_as_long_as_a_put_before_it_is_under_way() -> None:
    """Puts of a run come one after the other: the one that is to take it may have to wait for a slow disk."""
    pending, stored = PendingWrites(), list[bool]()
    waiter = threading.Thread(target=lambda: stored.append(pending.wait(KEY, [WRITE], WaitBackoff())))
    with pending.take("t", "", "1ef"):
        waiter.start()
        while not pending._waiting:
            time.sleep(0.001)
        time.sleep(0.1)
        with pending.take(*KEY) as taken:
            assert taken == [WRITE]
    waiter.join()

    assert stored == [True]


def test_a_forked_child_neither_takes_nor_waits_for_what_is_the_parents() -> None:
    """The parent's threads store their writes themselves."""
    pending, stored = PendingWrites(), list[bool]()
    waiter = threading.Thread(target=lambda: stored.append(pending.wait(KEY, [WRITE], WaitBackoff())))
    with pending.take("t", "", "1ef"):
        waiter.start()
        while not pending._waiting:
            time.sleep(0.001)
        if (child := os.fork()) == 0:
            with pending.take(*KEY) as taken:
                os._exit(0 if taken == () else 1)
        _, status = os.waitpid(child, 0)
        with pending.take(*KEY) as taken:
            assert taken == [WRITE]  # Control: the parent still has them
    waiter.join()

    assert status == 0
    assert stored == [True]


def test_writes_that_wait_in_vain_wait_less_and_less_often() -> None:
    """One that is stored meanwhile makes the next ones wait again."""
    backoff = WaitBackoff()
    waits = 0
    for _ in range(1_000):
        if backoff.should_wait():
            waits += 1
            backoff.record(is_stored=False)
    backoff.record(is_stored=True)

    assert 5 < waits < 15
    assert backoff.should_wait()
    assert backoff.should_wait()


def test_a_write_that_is_stored_twice_is_read_once() -> None:
    """An ordinary one as it was first, a special one as it was last."""
    first, last = {**WRITE, "value": "first", "at": 1}, {**WRITE, "value": "last", "at": 2}
    special = [{**each, "index": -1, "channel": "__error__"} for each in (last, first)]

    assert merge_writes([last, first]) == [first]
    assert merge_writes(special) == [special[0]]


def test_a_value_that_is_nested_too_deep_for_a_put_is_stored_by_itself() -> None:
    """A commit that carries a write nests it two levels deeper; its put must not fail for that."""
    deep: list[Any] = []
    for _ in range(61):
        deep = [deep]

    assert is_carriable([WRITE])
    assert not is_carriable([WRITE | {"value": deep}])
    assert canonical.encode(WRITE | {"value": deep})
