"""The saver of LangGraph: the framework's own conformance suite, conflicts, branches, one history, deletion."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypedDict

import pytest

pytest.importorskip("langgraph.checkpoint.conformance")
pytest.importorskip("langgraph.checkpoint.sqlite")

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import perdure
from perdure import Store, aio
from perdure.engines.registry import open_engine
from perdure.engines.sqlite.engine import SqliteEngine
from perdure.errors import Busy, Conflict, Invalid, PerdureError, StaleHead
from perdure.history import retention
from perdure.history.retention import RetentionPolicy
from perdure.integrations import checkpoint_layout, foreign_ids
from perdure.integrations.langgraph import Saver, checkpoints
from perdure.integrations.langgraph import saver as module
from perdure.integrations.langgraph.checkpoints import GraphThreads, fork
from perdure.store.plumbing.handles import Ids, system_clock
from tests.coded import raises
from tests.crash.campaign import sized
from tests.engines.postgres.server import MISSING
from tests.engines.postgres.stores import url_in
from tests.forked import PIPE, ForkedProcess, own
from tests.integrations.graphs import chat, config, meet, said, say
from tests.selection import some


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store."""
    with perdure.open(tmp_path / "agents.db") as store:
        yield store
        assert store.verify().ok


class SyncHalf(Saver):
    """A saver whose awaitable methods call the synchronous ones under the running loop."""

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self, config: Any, **options: Any) -> AsyncGenerator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        for each in self.list(config, **options):
            yield each

    async def aput(self, *args: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.put(*args)

    async def aput_writes(self, *args: Any, **options: Any) -> None:
        self.put_writes(*args, **options)

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Any) -> None:
        self.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        self.prune(thread_ids, strategy=strategy)


def conformance(kind: type[Saver], url: str) -> dict[str, tuple[int, list[Any]]]:
    """Run LangGraph's suite; return for each capability what passed and what failed."""

    @checkpointer_test(name=kind.__name__)
    async def made() -> AsyncGenerator[Saver]:
        with tempfile.TemporaryDirectory() as folder:
            async with aio.open(url or f"{folder}/a.db") as store:
                yield kind(store)

    report = asyncio.run(validate(made))
    return {name: (each.tests_passed, each.failures or []) for name, each in report.results.items()}


@pytest.mark.parametrize("kind", [Saver, SyncHalf])
def test_langgraphs_own_suite_passes_on_sqlite(kind: type[Saver]) -> None:
    """All 81 tests, of its required and its optional capabilities, through both halves."""
    found = conformance(kind, "")

    assert {name: failures for name, (_, failures) in found.items() if failures} == {}
    assert sum(passed for passed, _ in found.values()) == 81


@pytest.mark.deep
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.usefixtures("postgres")
def test_langgraphs_own_suite_passes_on_postgresql(tmp_path: Path) -> None:
    """All 81 tests."""
    found = conformance(Saver, url_in(tmp_path))

    assert {name: failures for name, (_, failures) in found.items() if failures} == {}
    assert sum(passed for passed, _ in found.values()) == 81


class ForgetfulSaver(Saver):
    """A control: it loses the channel that a put does not mention."""

    def _channel_values(self, found: Any) -> dict[str, Any]:
        return {name: each for name, each in super()._channel_values(found).items() if name != "step"}


def test_the_suite_finds_a_saver_that_forgets() -> None:
    """Control: the suite is not passed by anything."""
    found = conformance(ForgetfulSaver, "")

    assert sum(passed for passed, _ in found.values()) < 81


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_an_acknowledged_turn_is_in_the_latest_state(store: Store, durability: str) -> None:
    """Eight writers on one thread: the losers get an error, and nothing that was acknowledged is missing."""
    app = chat().compile(checkpointer=Saver(store))
    met = meet([app] * 8, Counter(), turns=sized(3, 20), durability=durability, retry=False)

    assert met.missing == []
    assert met.acknowledged != []
    assert set(met.errors) <= {"langgraph_lost_race", "busy"}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_with_retries_everything_gets_in_and_no_run_under_way_is_killed(
    store: Store, durability: str
) -> None:
    """A run whose input was accepted is never refused afterwards: where it is stored first, its first step runs once."""
    ran: Counter[str] = Counter()
    app = chat(lambda text: ran.update([text])).compile(checkpointer=Saver(store))
    turns = sized(2, 20)
    met = meet([app] * 8, ran, turns=turns, durability=durability, retry=True)

    assert len(met.acknowledged) == 8 * turns
    assert met.missing == []
    assert durability != "sync" or set(ran.values()) == {1}


def test_a_saver_that_does_not_compare_loses_acknowledged_turns(tmp_path: Path) -> None:
    """Control: LangGraph's own saver acknowledges turns that are then not in the latest state."""
    with SqliteSaver.from_conn_string(str(tmp_path / "control.db")) as saver:
        app = chat().compile(checkpointer=saver)
        met = meet([app] * 8, Counter(), turns=3, durability="sync", retry=False)

    assert met.missing != []


class ChecksBefore(Saver):
    """A control: it compares first and writes then, whatever the head is at that time."""

    def _commit(self, line: Any, record: Any, checkpoint: Any, below: Any, *, head: Any) -> None:
        super()._commit(line, record, checkpoint, below, head=line.head)


def test_a_comparison_outside_the_write_loses_acknowledged_turns(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: two puts that both compared before either wrote are both acknowledged."""
    saver, both = ChecksBefore(store), threading.Barrier(2)
    app = chat().compile(checkpointer=saver)
    say(app, "first")
    compared, one_by_one = ChecksBefore._commit, threading.Lock()

    def commit(self: Any, *args: Any, **options: Any) -> None:
        both.wait(60)
        with one_by_one:
            compared(self, *args, **options)

    latest = saver.get_tuple(config())
    assert latest is not None
    monkeypatch.setattr(ChecksBefore, "_commit", commit)
    acknowledged: list[str] = []

    def put(text: str) -> None:
        version = saver.get_next_version(None, None)
        checkpoint: Any = {
            **latest.checkpoint,
            "id": str(uuid6()),
            "channel_values": {**latest.checkpoint["channel_values"], "turns": [text]},
            "channel_versions": {**latest.checkpoint["channel_versions"], "turns": version},
        }
        saver.put(latest.config, checkpoint, {"source": "loop", "step": 3, "parents": {}}, {"turns": version})
        acknowledged.append(text)

    writers = [threading.Thread(target=put, args=(text,)) for text in ("one", "two")]
    for each in writers:
        each.start()
    for each in writers:
        each.join()

    now = saver.get_tuple(config())
    assert now is not None
    assert len(acknowledged) == 2
    assert len(now.checkpoint["channel_values"]["turns"]) == 1


@pytest.mark.parametrize("metadata", [{}, {"user": "ada"}])
def test_a_new_input_does_not_take_the_place_of_a_run_under_way(
    store: Store, metadata: dict[str, str]
) -> None:
    """It is refused while the run is at work, also with a saver of its own; the run finishes, and then it gets in."""
    began, may_go = threading.Event(), threading.Event()

    def slow(text: str) -> None:
        if text == "slow":
            began.set()
            may_go.wait(60)

    one = chat(slow).compile(checkpointer=Saver(store)).with_config(metadata=metadata)
    other = chat().compile(checkpointer=Saver(store))
    run = threading.Thread(target=say, args=(one, "slow"), kwargs={"durability": "sync"})
    run.start()
    assert began.wait(60)
    with pytest.raises(Busy):
        say(other, "newcomer")
    may_go.set()
    run.join()
    say(other, "newcomer")

    assert [each for each in said(other) if not each.startswith("re")] == ["slow", "done", "newcomer", "done"]


OTHER_PROCESS = """
import sys
import perdure
from perdure.integrations.langgraph import Saver
from tests.integrations.graphs import chat, say
def wait(text):
    print("began", flush=True)
    sys.stdin.readline()
with perdure.open(sys.argv[1]) as store:
    say(chat(wait).compile(checkpointer=Saver(store)), "slow", durability="sync")
"""


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_run_of_another_process_is_under_way_until_that_process_has_ended(
    store: Store, tmp_path: Path, is_killed: bool
) -> None:
    """A killed process holds nothing: the next input gets in at once."""
    command = ["-c", OTHER_PROCESS, str(tmp_path / "agents.db")]
    with ForkedProcess(own(), command, stdin=PIPE, stdout=PIPE) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "began\n"
        app = chat().compile(checkpointer=Saver(store, lease_seconds=600))
        with pytest.raises(Busy):
            say(app, "newcomer")
        if is_killed:
            other.kill()
        else:
            other.stdin.write("\n")
            other.stdin.close()
        other.wait(60)
    say(app, "newcomer")

    assert ("re: slow" in said(app)) == (not is_killed)
    assert "re: newcomer" in said(app)


def test_the_lease_of_a_silent_process_ends_by_itself(store: Store, tmp_path: Path) -> None:
    """Without a sign of life for so long, its run does not hold the thread any more."""
    command = ["-c", OTHER_PROCESS, str(tmp_path / "agents.db")]
    with ForkedProcess(own(), command, stdin=PIPE, stdout=PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "began\n"
        say(chat().compile(checkpointer=Saver(store, lease_seconds=0)), "newcomer")
        other.kill()


def test_a_credential_in_the_config_is_not_stored(store: Store) -> None:
    """LangGraph adds what the config has to the metadata of each checkpoint; control: the rest of it is there."""
    app = chat().compile(checkpointer=Saver(store))

    app.invoke({"messages": [HumanMessage("hi")]}, config(openai_api_key="xyzzy", user_id="u7"))

    found = [dict(each.metadata) for each in Saver(store).list(config())]
    assert found
    assert all(each["user_id"] == "u7" and "xyzzy" not in str(each) for each in found)


@pytest.mark.parametrize("metadata", [{}, {"user": "ada"}])
def test_an_interrupted_run_holds_nothing(store: Store, metadata: dict[str, str]) -> None:
    """After a breakpoint, an interrupt or an error the next input gets in at once."""

    def ask(state: Any) -> Any:
        if state["messages"][-1].content == "fail":
            raise ValueError("no")
        return {"messages": [AIMessage(str(interrupt("sure?")))]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    app = graph.compile(checkpointer=Saver(store)).with_config(metadata=metadata)
    say(app, "one")
    app.invoke(Command(resume="yes"), config())
    say(app, "two")
    with pytest.raises(ValueError, match="no"):
        say(app, "fail")
    say(app, "three")
    stopped = chat().compile(checkpointer=Saver(store), interrupt_before=["finish"])
    stopped = stopped.with_config(metadata=metadata)
    say(stopped, "four")
    say(stopped, "five")

    assert [each for each in said(app) if not each.startswith("re:")] == [
        "one",
        "yes",
        "two",
        "fail",
        "three",
        "four",
        "five",
    ]


def test_a_lost_race_can_be_a_branch_or_win(store: Store) -> None:
    """`branch` keeps both and the latest as it is; `last_writer` does as LangGraph's own savers do."""
    for policy, latest in (("branch", "fast"), ("last_writer", "slow")):
        saver = Saver(store, on_conflict=policy)  # pyright: ignore[reportArgumentType]
        thread_id = f"thread {policy}"
        may_go, began = threading.Event(), threading.Event()

        def slow(text: str, began: threading.Event = began, may_go: threading.Event = may_go) -> None:
            if text == "slow":
                began.set()
                may_go.wait(60)

        app = chat(slow).compile(checkpointer=saver)
        run = threading.Thread(target=say, args=(app, "slow", thread_id), kwargs={"durability": "exit"})
        run.start()
        assert began.wait(60)
        say(app, "fast", thread_id)
        may_go.set()
        run.join()

        texts = [
            each.checkpoint["channel_values"].get("messages", []) for each in saver.list(config(thread_id))
        ]
        assert said(app, thread_id)[0] == latest
        assert {"fast", "slow"} <= {message.content for messages in texts for message in messages}


def test_a_branch_that_is_asked_for_becomes_the_latest(store: Store) -> None:
    """By going on from an earlier checkpoint; what was the latest is found by its id, as a timeline of the thread."""
    app = chat().compile(checkpointer=Saver(store))
    say(app, "one")
    first = app.get_state(config())
    say(app, "two")
    second = app.get_state(config())
    app.invoke({"messages": [HumanMessage("other")]}, first.config)

    assert said(app) == ["one", "re: one", "done", "other", "re: other", "done"]
    assert [each.content for each in app.get_state(second.config).values["messages"]][3] == "two"
    thread = store.thread("t")
    assert [entry.text for entry in thread.transcript()] == said(app)
    assert len(thread.timelines()) > 2


def test_what_a_graph_stored_is_a_thread(store: Store) -> None:
    """Transcript, state, moments by checkpoint id, diff and export; each put is one commit."""
    app = chat().compile(checkpointer=Saver(store))
    say(app, "hello")
    thread = store.thread("t")
    state = app.get_state(config())

    assert [(entry.role, entry.text) for entry in thread.transcript()] == [
        ("user", "hello"),
        ("assistant", "re: hello"),
        ("assistant", "done"),
    ]
    name = f"langgraph:{state.config.get('configurable', {})['checkpoint_id']}"
    assert thread.at(name).digest == thread.head.commit
    assert len(thread.get("/langgraph/channels/messages")) == 3
    assert len(thread.diff(thread.log()[1], thread.head).messages_b) == 1
    assert "re: hello" in str(thread.export("openai-chat").body)


def test_messages_that_a_graph_removes_or_replaces_leave_the_transcript(store: Store) -> None:
    """And tool calls with their results are shown as such."""

    def tidy(state: Any) -> Any:
        old = state["messages"][0]
        call = {"name": "look", "args": {"at": 1}, "id": "c1"}
        return {
            "messages": [
                RemoveMessage(id=old.id),
                AIMessage("", tool_calls=[call]),
                ToolMessage("a tree", tool_call_id="c1"),
                AIMessage("first", id="same"),
            ]
        }

    def again(state: Any) -> Any:
        return {"messages": [AIMessage("second", id="same")]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("tidy", tidy)
    graph.add_node("again", again)
    graph.add_edge(START, "tidy")
    graph.add_edge("tidy", "again")
    say(graph.compile(checkpointer=Saver(store)), "secret")
    thread = store.thread("t")

    assert [entry.role for entry in thread.transcript()] == ["assistant", "tool", "assistant"]
    assert thread.transcript()[0].message.tool_calls[0].name == "look"
    assert thread.transcript()[2].text == "second"
    assert "secret" not in str(thread.export("openai-chat").body)


def test_a_message_that_a_node_alters_in_place_is_stored_as_it_is_now(store: Store) -> None:
    """An element is used again only if its message has the same fields."""

    def alter(state: Any) -> Any:
        state["messages"][0].content = "altered"
        state["messages"][0].additional_kwargs["x"] = [1]
        return {"messages": [AIMessage("new")]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("alter", alter)
    graph.add_edge(START, "alter")
    say(graph.compile(checkpointer=Saver(store)), "as it was")

    fresh = graph.compile(checkpointer=Saver(store))
    module._memories.clear()
    assert said(fresh) == ["altered", "new"]
    assert said(graph.compile(checkpointer=Saver(store))) == ["altered", "new"]


@pytest.mark.parametrize("was_path", [False, True])
def test_a_channel_that_only_says_which_node_is_next_is_no_path(
    store: Store, monkeypatch: pytest.MonkeyPatch, was_path: bool
) -> None:
    """Its value None would be stored again with each step; a thread in which it is a path is read and goes on all the same."""
    app = chat().compile(checkpointer=Saver(store), interrupt_before=["finish"])
    with monkeypatch.context() as patch:
        if was_path:
            patch.setattr(checkpoints, "is_trigger", lambda *_: False)
        say(app, "hello")
    found = Saver(store).get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"]["branch:to:finish"] is None
    paths = store.thread("t").paths(checkpoint_layout.CHANNELS)
    assert len(paths) == (2 if was_path else 1)

    app.invoke(None, config())
    assert said(app) == ["hello", "re: hello", "done"]
    assert store.thread("t").paths(checkpoint_layout.CHANNELS) == [checkpoint_layout.channel_path("messages")]


def test_an_old_message_that_a_node_alters_in_place_is_stored_at_the_end_of_its_run(store: Store) -> None:
    """A step looks into the last messages alone; the put that ends the run, and any other put, looks into all of them."""

    def alter(state: Any) -> Any:
        last = state["messages"][-1].content
        if last != "as it was":
            state["messages"][0].content = last
        return {"messages": state["messages"][:1]}  # LangGraph puts it where it was: the same object

    graph: Any = StateGraph(MessagesState)
    graph.add_node("alter", alter)
    graph.add_node("finish", lambda _: {"messages": [AIMessage("done")]})
    graph.add_edge(START, "alter")
    graph.add_edge("alter", "finish")
    app = graph.compile(checkpointer=Saver(store))
    app.invoke({"messages": [HumanMessage("as it was")]}, config())
    app.update_state(
        config(), {"messages": [AIMessage(str(number)) for number in range(100)]}, as_node="finish"
    )
    for durability in ("sync", "exit"):
        say(app, f"altered with {durability}", durability=durability)
        module._memories.clear()
        assert said(graph.compile(checkpointer=Saver(store)))[0] == f"altered with {durability}"
        app = graph.compile(checkpointer=Saver(store))


def test_what_a_saver_hands_out_is_the_callers_own(store: Store) -> None:
    """Altering it changes nothing for the next reader."""
    saver = Saver(store)
    say(chat().compile(checkpointer=saver), "hello")
    for _ in range(2):
        found = saver.get_tuple(config())
        assert found is not None
        messages = found.checkpoint["channel_values"]["messages"]
        assert messages[0].content == "hello"
        assert messages[0].additional_kwargs == {}
        messages[0].content = "altered"
        messages[0].additional_kwargs["x"] = 1


def test_a_graph_runs_awaited_and_blocking_on_one_saver(store: Store) -> None:
    """Also where a loop runs on the thread that calls the synchronous half."""
    app = chat().compile(checkpointer=Saver(store))

    async def main() -> None:
        await app.ainvoke({"messages": [HumanMessage("awaited")]}, config())
        say(app, "blocking")

    asyncio.run(main())
    assert [each for each in said(app) if "re" not in each and each != "done"] == ["awaited", "blocking"]


@pytest.mark.parametrize("strategy", ["keep_latest", "delete"])
def test_what_is_pruned_is_gone_at_once_and_its_bytes_after_gc(tmp_path: Path, strategy: str) -> None:
    """The rest verifies, and the latest checkpoint reads as before."""
    path = tmp_path / "agents.db"
    with perdure.open(path) as store:
        saver = Saver(store)
        app = chat().compile(checkpointer=saver)
        for number in range(5):
            say(app, f"{number} secret-{number} " * 200)
        before, ids = said(app), [each.config for each in saver.list(config())]
        saver.prune(["t"], strategy=strategy)

        assert said(app) == (before if strategy == "keep_latest" else [])
        assert [each for each in ids if saver.get_tuple(each)] == (
            ids[:1] if strategy == "keep_latest" else []
        )
        assert len(list(saver.list(config()))) == (strategy == "keep_latest")
    removed = collected(path, superseded=strategy == "keep_latest")
    with perdure.open(path) as store:
        assert removed > 0
        assert store.verify().ok
        assert said(chat().compile(checkpointer=Saver(store))) == (
            before if strategy == "keep_latest" else []
        )


def collected(path: Path, *, superseded: bool = False) -> int:
    """Forget what was undone or removed, perhaps what later states replaced too; return how many objects went."""
    with closing(open_engine(str(path), read_only=False, create=False, durability="power_loss")) as engine:
        superseded_after = 0 if superseded else None
        policy = RetentionPolicy(
            undone_after_days=0, superseded_after_days=superseded_after, removed_threads=True
        )
        planned = retention.plan(engine, policy, system_clock() + 1_000_000)
        retention.carry_out(engine, planned, ids=Ids(system_clock))
        return planned.count


def compact(path: Path) -> int:
    """The bytes of a copy of the store without free space."""
    copied = path.with_suffix(f".{time.monotonic_ns()}")
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM INTO ?", (str(copied),))
    return copied.stat().st_size


def draft() -> Any:
    """A graph whose channel holds another text after each turn, and nothing of those before."""

    def write(state: Any) -> Any:
        return {"text": random.Random(state["number"]).randbytes(10_000).hex()}

    graph: Any = StateGraph(Draft)
    graph.add_node("write", write)
    graph.add_edge(START, "write")
    return graph


class Draft(TypedDict):
    """The state of the graph that drafts."""

    number: int
    text: str


def test_a_prune_and_gc_free_the_states_before_the_latest(tmp_path: Path) -> None:
    """Twelve texts of which one is left take less than half of the bytes."""
    path = tmp_path / "agents.db"
    with perdure.open(path) as store:
        saver = Saver(store)
        app = draft().compile(checkpointer=saver)
        for number in range(12):
            app.invoke({"number": number}, config())
    before = compact(path)
    with perdure.open(path) as store:
        Saver(store).prune(["t"])
    collected(path)

    assert compact(path) < before / 2
    with perdure.open(path) as store:
        assert draft().compile(checkpointer=Saver(store)).get_state(config()).values["number"] == 11
        assert store.verify().ok


def test_a_conversation_that_is_pruned_takes_no_more_bytes(tmp_path: Path) -> None:
    """Its latest checkpoint has every message, and none is stored once more; also not if it is pruned again and again."""
    path = tmp_path / "agents.db"
    with perdure.open(path) as store:
        app = chat().compile(checkpointer=Saver(store))
        for number in range(sized(12, 30)):
            say(app, f"{number}: {random.Random(number).randbytes(1_000).hex()}")
        before = said(app)
    size = compact(path)
    for _ in range(3):
        with perdure.open(path) as store:
            Saver(store).prune(["t"])
        collected(path, superseded=True)

    assert compact(path) < size
    with perdure.open(path) as store:
        assert said(chat().compile(checkpointer=Saver(store))) == before
        assert len(store.thread("t").transcript()) == len(before)


def test_a_branch_keeps_what_it_needs_of_a_pruned_thread(store: Store) -> None:
    """A fork of the thread still reads the checkpoint below it."""
    saver = Saver(store)
    app = chat().compile(checkpointer=saver)
    say(app, "one")
    kept = store.thread("t").fork("kept")
    say(app, "two")
    saver.prune(["t"])

    assert [entry.text for entry in kept.transcript()] == ["one", "re: one", "done"]


def test_runs_are_deleted_by_their_ids(store: Store) -> None:
    """Their checkpoints are gone and the latest of another run is the latest."""
    saver = Saver(store)
    app = chat().compile(checkpointer=saver)
    for number in range(2):
        app.invoke(
            {"messages": [HumanMessage(str(number))]}, config() | {"metadata": {"run_id": f"r{number}"}}
        )
    saver.delete_for_runs(["r1"])

    assert said(app) == ["0", "re: 0", "done"]
    say(app, "again")
    assert said(app)[3:] == ["again", "re: again", "done"]


def put(saver: Saver, below: Any, id: str, *messages: str, run: str = "") -> Any:
    """Put a checkpoint with these messages, whose texts are their ids, and with a text of its own."""
    said = [HumanMessage(each, id=each) for each in messages]
    checkpoint: Any = {
        "v": 4,
        "id": id,
        "ts": "",
        "channel_values": {"messages": said, "draft": f"draft {id} " * 100},
        "channel_versions": {"messages": id, "draft": id},
        "versions_seen": {},
        "updated_channels": None,
    }
    metadata: Any = {"source": "loop", "run_id": run}
    return saver.put(below, checkpoint, metadata, {"messages": id})


def latest(saver: Saver, thread_id: str = "t") -> str:
    """The id of the latest checkpoint."""
    found = saver.get_tuple(config(thread_id))
    return "" if found is None else found.checkpoint["id"]


@pytest.fixture
def branched(store: Store) -> Saver:
    """A saver of a thread whose latest checkpoint is 2, and whose 3 is a branch that lost."""
    saver = Saver(store, on_conflict="branch")
    first = put(saver, config(), "1", "a", run="r1")
    put(saver, first, "2", "a", "b", run="r2")
    put(saver, first, "3", "a", "c", run="r3")
    return saver


def test_pruning_keeps_the_latest_and_not_the_largest_id(branched: Saver) -> None:
    """A branch that lost a race has a larger id than the checkpoint that was acknowledged as the latest."""
    assert latest(branched) == "2"
    branched.prune(["t"])

    assert [each.checkpoint["id"] for each in branched.list(config())] == ["2"]
    assert latest(branched) == "2"


def test_the_latest_of_a_copy_is_that_of_its_source(branched: Saver) -> None:
    """Also where a branch has a larger id, and where a checkpoint follows the latest on a branch."""
    branched.copy_thread("t", "copy")

    assert latest(branched, "copy") == "2"
    assert [each.checkpoint["id"] for each in branched.list(config("copy"))] == ["3", "2", "1"]


@pytest.mark.parametrize(("runs", "left"), [(["r2"], "1"), (["r1", "r2"], "3"), (["r3"], "2")])
def test_a_deleted_checkpoint_is_not_the_latest(branched: Saver, runs: list[str], left: str) -> None:
    """The nearest below it is; if none is left there, the newest of a branch."""
    branched.delete_for_runs(runs)

    assert latest(branched) == left
    put(branched, config(checkpoint_id=left), "4", "z")
    assert latest(branched) == "4"


def test_messages_can_be_removed_after_pruning(store: Store) -> None:
    """The transcript that begins anew has the messages under their own ids."""
    saver = Saver(store)
    second = put(saver, put(saver, config(), "1", "a"), "2", "a", "b")
    saver.prune(["t"])
    put(saver, second, "3", "b", "c")

    assert [entry.text for entry in store.thread("t").transcript()] == ["b", "c"]


@pytest.mark.parametrize("how", ["keep_latest", "delete", "runs"])
def test_a_put_while_checkpoints_are_deleted_stays(
    store: Store, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head is moved only from where it was planned; else the saver plans again."""
    saver = Saver(store)
    second = put(saver, put(saver, config(), "1", "a"), "2", "a", "b", run="r2")
    cut, acknowledged = GraphThreads._cut, list[str]()

    def late(self: GraphThreads, *args: Any) -> None:
        if not acknowledged:
            put(Saver(store), second, "3", "a", "b", "c", run="r3")
            acknowledged.append(latest(saver))
        cut(self, *args)

    monkeypatch.setattr(GraphThreads, "_cut", late)
    if how == "runs":
        saver.delete_for_runs(["r2"])
    else:
        saver.prune(["t"], strategy=how)

    assert acknowledged == ["3"]
    assert latest(saver) == ("" if how == "delete" else "3")
    left = [each.checkpoint["id"] for each in saver.list(config())]
    assert left == {"keep_latest": ["3"], "delete": [], "runs": ["3", "1"]}[how]


class Killed(BaseException):
    """The process ended here, as far as the store can tell."""


@contextmanager
def killed_after(writes: int) -> Generator[None]:
    """Let so many durable writes pass, and kill the next."""
    apply, tried = SqliteEngine.apply, list[int]()

    def counted(self: SqliteEngine, write: Any) -> Any:
        tried.append(1)
        if len(tried) > writes:
            raise Killed
        return apply(self, write)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteEngine, "apply", counted)
        yield


def pruned_and_killed(path: Path, strategy: str, writes: int) -> bool:
    """Put three checkpoints and prune them, killed after so many writes; False: the prune has ended before."""
    with perdure.open(path) as store:
        saver = Saver(store)
        put(saver, put(saver, put(saver, config(), "1", "a"), "2", "a", "b"), "3", "a", "b", "c")
        with killed_after(writes):
            try:
                saver.prune(["t"], strategy=strategy)
            except Killed:
                return True
    return False


WINDOWS = range(9)  # a prune that keeps the latest has as many writes


def test_a_prune_has_as_many_windows_as_are_tried(tmp_path: Path) -> None:
    """Control: a kill in the last window still cuts it off, and one write later it has ended."""
    ended = [pruned_and_killed(tmp_path / f"{n}.db", "keep_latest", n) for n in (WINDOWS[-1], len(WINDOWS))]

    assert ended == [True, False]


@pytest.mark.parametrize("writes", WINDOWS)
def test_a_prune_that_was_killed_hinders_no_put(tmp_path: Path, writes: int) -> None:
    """After a kill at any write the latest is read and listed, the next put goes on top of it, and a prune ends it."""
    assert pruned_and_killed(tmp_path / "agents.db", "keep_latest", writes)

    with perdure.open(tmp_path / "agents.db") as store:
        saver = Saver(store)
        assert latest(saver) == "3"
        assert next(saver.list(config())).checkpoint["id"] == "3"
        put(saver, config(checkpoint_id="3"), "4", "a", "b", "c", "d")

        assert latest(saver) == "4"
        assert [entry.text for entry in store.thread("t").transcript()] == ["a", "b", "c", "d"]
        saver.prune(["t"])
        assert [each.checkpoint["id"] for each in saver.list(config())] == ["4"]
        assert store.verify().ok


@pytest.mark.parametrize("writes", WINDOWS)
def test_a_prune_that_was_killed_is_ended_by_the_next(tmp_path: Path, writes: int) -> None:
    """Pruned again, the latest alone is left, as if nothing had happened."""
    assert pruned_and_killed(tmp_path / "agents.db", "keep_latest", writes)

    with perdure.open(tmp_path / "agents.db") as store:
        saver = Saver(store)
        saver.prune(["t"])

        assert [each.checkpoint["id"] for each in saver.list(config())] == ["3"]
        assert latest(saver) == "3"


LONG = [HumanMessage(f"{number}", id=f"m{number}") for number in range(2_200)]


def put_long_and_killed(path: Path, writes: int) -> bool:
    """Put a checkpoint with more messages than one write may have, killed after so many writes; False: it has ended before."""
    with perdure.open(path) as store:
        saver = Saver(store)
        below = put(saver, config(), "1", "a")
        with killed_after(writes):
            try:
                put_messages(saver, below, "2", [HumanMessage("a", id="a"), *LONG])
            except Killed:
                return True
    return False


def put_messages(saver: Saver, below: Any, id: str, messages: list[HumanMessage]) -> Any:
    """Put a checkpoint with these messages."""
    values = {"messages": messages}
    checkpoint: Any = {
        "v": 4,
        "id": id,
        "ts": "2026-01-01T00:00:00Z",
        "channel_values": values,
        "channel_versions": {"messages": id},
        "versions_seen": {},
    }
    below["configurable"].setdefault("checkpoint_ns", "")
    return saver.put(below, checkpoint, {"source": "loop", "step": 1, "parents": {}}, {})


@pytest.mark.parametrize("writes", some(range(10), one_of=3))
def test_a_long_put_that_was_killed_is_there_or_not(tmp_path: Path, writes: int) -> None:
    """After a kill at any write the checkpoint and the transcript are the old or the new ones, and the put can be made again."""
    is_killed = put_long_and_killed(tmp_path / "agents.db", writes)

    with perdure.open(tmp_path / "agents.db") as store:
        saver, thread = Saver(store), store.thread("t")
        found = latest(saver)
        assert len(thread.transcript()) == (1 if found == "1" else 1 + len(LONG))
        assert is_killed or found == "2"
        if found == "1":
            put_messages(saver, config(checkpoint_id="1"), "2", [HumanMessage("a", id="a"), *LONG])
        texts = [entry.text for entry in thread.transcript()]
        assert texts == ["a", *(each.content for each in LONG)]
        assert saver.missed_messages(config()) == []


def test_a_long_put_has_fewer_windows_than_are_tried(tmp_path: Path) -> None:
    """Control: a kill in a window before the move leaves the old one, and the last one tried cuts off nothing."""
    assert put_long_and_killed(tmp_path / "first.db", 3)
    assert not put_long_and_killed(tmp_path / "last.db", 10)


def test_a_graph_begins_with_a_history_of_thousands(store: Store) -> None:
    """It goes on from there, takes most of it back, and is pruned; the transcript follows."""
    saver = Saver(store)
    app = chat().compile(checkpointer=saver)
    app.invoke({"messages": LONG}, config())
    assert said(app)[-2:] == ["re: 2199", "done"]
    assert len(store.thread("t").transcript()) == len(LONG) + 2

    app.update_state(
        config(), {"messages": [RemoveMessage(f"m{number}") for number in range(1_000)]}, "finish"
    )
    assert [entry.text for entry in store.thread("t").transcript()] == said(app)
    saver.prune(["t"])
    assert len(said(app)) == len(store.thread("t").transcript()) == len(LONG) - 1_000 + 2


def test_a_branch_of_a_removed_thread_is_an_error_at_once(store: Store) -> None:
    """Another name is tried only where the name is taken."""
    thread = store.thread("z", agent="q")
    thread.put("/x", 1)
    thread.fork("taken")
    assert fork(thread, "taken", None).timeline == "taken.1"
    store.thread("z").rm(force=True)

    with pytest.raises(StaleHead):
        fork(thread, "taken", None)


def test_a_deleted_thread_can_be_begun_again(store: Store) -> None:
    """By the same saver and by another one that had it open."""
    one, other = Saver(store), Saver(store)
    say(chat().compile(checkpointer=one), "first")
    assert other.get_tuple(config()) is not None
    one.delete_thread("t")
    assert other.get_tuple(config()) is None
    say(chat().compile(checkpointer=other), "second")

    assert said(chat().compile(checkpointer=one)) == ["second", "re: second", "done"]


@pytest.mark.parametrize("id", ["x" * 4096, "a/b|c:d", "~", "é\u0301", "a%2Fb", "..", "HEAD"])
def test_a_thread_of_any_id_is_kept_exactly(store: Store, id: str) -> None:
    """And is not mistaken for one whose id begins with it."""
    saver = Saver(store)
    app = chat().compile(checkpointer=saver)
    say(app, "hello", id)

    assert said(app, id) == ["hello", "re: hello", "done"]
    assert said(app, id + "x") == said(app, id[:-1] or "x") == []
    assert {each.config.get("configurable", {})["thread_id"] for each in saver.list(None)} == {id}


SPACES = ["", "a", "a|b", "a|b:c", "a/", "a" * 4096, "a" * 4095 + "b", "*", "A"]


def met(store: Store) -> list[str]:
    """Put a checkpoint and a write with the same ids into each namespace; return those that then hold another's, or none."""
    saver = Saver(store)
    for number, space in enumerate(SPACES):
        checkpoint: Any = {
            "v": 4,
            "id": "same",
            "ts": "",
            "channel_values": {"n": number},
            "channel_versions": {"n": "1"},
            "versions_seen": {},
            "updated_channels": None,
        }
        saver.put(config(checkpoint_ns=space), checkpoint, {"source": "loop"}, {"n": "1"})
        below = config(checkpoint_ns=space, checkpoint_id="same")
        saver.put_writes(below, [("n", number)], "task")

    wrong: list[str] = []
    for number, space in enumerate(SPACES):
        found, held = None, None
        with suppress(PerdureError):  # a record that names another namespace is refused
            found = saver.get_tuple(config(checkpoint_ns=space, checkpoint_id="same"))
        if found is not None:
            held = found.checkpoint["channel_values"], found.pending_writes
        if held != ({"n": number}, [("task", "n", number)]):
            wrong.append(space)
    return wrong


def test_namespaces_do_not_meet(store: Store) -> None:
    """Neither by a common beginning nor by a separator, though their checkpoints have the same ids."""
    assert met(store) == []


CONFUSED: dict[str, Any] = {
    "cut off": lambda text: foreign_ids.path_segment(text[:100]),
    "without separators": lambda text: "x" + "".join(sign for sign in text if sign.isalnum()),
    "in one case": lambda text: foreign_ids.path_segment(text.lower()),
}


@pytest.mark.parametrize("how", CONFUSED)
def test_namespaces_whose_names_are_shortened_meet(
    store: Store, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Control: a saver that names timelines and checkpoints by a part of the namespace is found out."""
    confused = CONFUSED[how]
    line_of: Any = lambda space: f"langgraph/{confused(space).lower()[:60].strip('~')}" if space else "main"  # noqa: E731
    name_of: Any = lambda space, id: foreign_ids.moment_name("langgraph", f"{confused(space)}/{id}")  # noqa: E731
    for owner in (checkpoint_layout, checkpoints, module):
        for name, each in (("line_of", line_of), ("name_of", name_of)):
            monkeypatch.setattr(owner, name, each, raising=False)

    assert met(store) != []


def test_bad_use_is_one_clear_error(store: Store, tmp_path: Path) -> None:
    """A config without a thread, a read-only store, a thread of another agent: nothing is written."""
    with raises(Invalid, "thread_not_named"):
        Saver(store).get_tuple({"configurable": {}})
    with raises(Invalid, "choice_invalid", what="on_conflict"):
        Saver(store, on_conflict="ignore")  # pyright: ignore[reportArgumentType]
    store.thread("t", agent="planner")
    with raises(Conflict, "thread_of_another_agent", agent="planner"):
        say(chat().compile(checkpointer=Saver(store, agent="desk")), "hello")
    with (
        perdure.open(tmp_path / "agents.db", read_only=True) as reading,
        pytest.raises(perdure.errors.PerdureError),
    ):
        say(chat().compile(checkpointer=Saver(reading)), "hello")

    assert store.thread("t").log() == []
