"""Threads of LangGraph's savers become threads; stored objects are read as data and never constructed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pytest

import perdure
from perdure import Store
from perdure.errors import Invalid, Unsupported
from perdure.integrations.importers import import_sessions
from perdure.integrations.importers.foreign_data import ForeignObject, decode_typed, plain
from tests.coded import raises
from tests.engines.postgres.server import Server
from tests.integrations.importers.counts import Counts, in_store, sound

CONSTRUCTED, CALLED, PYDANTIC = 0, 3, 5


def packed(value: Any) -> bytes:
    """Bytes of the serializer."""
    return msgspec.msgpack.encode(value)


def named(code: int, *parts: Any) -> msgspec.msgpack.Ext:
    """An extension value that names a class and its arguments."""
    return msgspec.msgpack.Ext(code, packed(parts))


def message(kind: str, content: Any, **fields: Any) -> msgspec.msgpack.Ext:
    """A message as the saver stores it."""
    name = {"human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage", "system": "SystemMessage"}[
        kind
    ]
    told = {"content": content, "type": kind, **fields}
    return named(PYDANTIC, f"langchain_core.messages.{kind}", name, told, "model_validate_json")


def database(path: Path, *checkpoints: tuple[str, str | None, dict[str, Any]], version: int = 4) -> Path:
    """Write a database with the checkpoints of one thread: id, parent, values of channels."""
    file = path / "graph.db"
    with sqlite3.connect(file) as connection:
        connection.executescript(
            "CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, "
            "parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB);"
            "CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, task_id TEXT, "
            "task_path TEXT, idx INTEGER, channel TEXT, type TEXT, value BLOB);"
        )
        for id, parent, values in checkpoints:
            body = {
                "v": version,
                "id": id,
                "channel_values": values,
                "channel_versions": dict.fromkeys(values, 1),
            }
            row = ("t", "", id, parent, "msgpack", packed(body), b"{}")
            connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    connection.close()
    return file


ASKED = message("human", "Hi.", id="m1")
CALL = message(
    "ai", "", id="m2", tool_calls=[{"name": "look", "args": {"n": 1}, "id": "c1", "type": "tool_call"}]
)
FOUND = message("tool", "found", id="m3", tool_call_id="c1")
SAID = message("ai", [{"type": "text", "text": "Done."}], id="m4")


def test_messages_of_all_checkpoints_are_one_thread(store: Store, tmp_path: Path) -> None:
    """Each list holds the one before; the calls are in the ledger, and words of the system are counted."""
    system = message("system", "Obey.")
    first = ("1", None, {"messages": [system, ASKED]})
    file = database(tmp_path, first, ("2", "1", {"messages": [system, ASKED, CALL, FOUND, SAID]}))

    report = import_sessions(store, file)

    assert in_store(store) == Counts(inputs=1, replies=2, calls=1, results=1)
    assert report.sessions[0].unmapped == {"message of the system": 1}
    assert sound(store) == []


def test_what_only_a_vendor_reads_of_a_block_is_counted(store: Store, tmp_path: Path) -> None:
    """A signature and citations stay in the original; the words are in the transcript."""
    blocks = [
        {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
        {"type": "text", "text": "Rain.", "citations": [{"url": "u"}]},
    ]
    file = database(tmp_path, ("1", None, {"messages": [ASKED, message("ai", blocks, id="m4")]}))

    report = import_sessions(store, file)

    assert report.sessions[0].unmapped == {"citations of text": 1, "signature of thinking": 1}
    assert store.thread("t").transcript()[-1].text == "Rain."


def test_messages_that_a_graph_removed_are_on_another_timeline(store: Store, tmp_path: Path) -> None:
    """Main is the list of the newest checkpoint."""
    short = message("human", "Summary.", id="m9")
    full = ("1", None, {"messages": [ASKED, SAID]})
    file = database(tmp_path, full, ("2", "1", {"messages": [short, SAID]}))

    import_sessions(store, file)

    thread = store.thread("t")
    told = {
        h.head.timeline: [e.text for e in thread.on(h.head.timeline).transcript()] for h in thread.timelines()
    }
    assert told.pop("main") == ["Summary.", "Done."]
    assert list(told.values()) == [["Hi.", "Done."]]


def test_a_list_of_messages_may_hold_something_else(store: Store, tmp_path: Path) -> None:
    """The messages beside it are a conversation, and it is counted."""
    odd = {"messages": [ASKED, {"note": 1}, SAID], "documents": [{"content": "a page"}]}

    report = import_sessions(store, database(tmp_path, ("1", None, odd)))

    assert in_store(store) == Counts(inputs=1, replies=1)
    assert report.sessions[0].unmapped == {"message of the unknown role": 1}


def test_writes_of_a_delta_channel_are_replayed(store: Store, tmp_path: Path) -> None:
    """A checkpoint without the list is its parent's list and the writes that were stored there."""
    file = database(tmp_path, ("1", None, {"messages": [ASKED]}), ("2", "1", {}))
    with sqlite3.connect(file) as connection:
        body = {"v": 4, "channel_values": {}, "channel_versions": {"messages": 2}}
        connection.execute("UPDATE checkpoints SET checkpoint = ? WHERE checkpoint_id = '2'", (packed(body),))
        row = ("t", "", "1", "task", "", 0, "messages", "msgpack", packed([SAID]))
        connection.execute("INSERT INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    connection.close()

    import_sessions(store, file)

    assert [entry.text for entry in store.thread("t").transcript()] == ["Hi.", "Done."]


def test_a_stored_object_is_never_constructed(store: Store, tmp_path: Path) -> None:
    """Bytes that name a function and its argument become data in the state, and nothing is called."""
    proof = tmp_path / "called"
    hostile = named(CONSTRUCTED, "os", "system", f"touch {proof}")
    also = named(CALLED, "builtins", "eval", f"open({str(proof)!r}, 'w')", "__call__")
    file = database(tmp_path, ("1", None, {"messages": [ASKED], "bad": hostile, "worse": [also]}))

    import_sessions(store, file)

    thread = store.thread("t")
    assert thread.get("/langgraph/channels/bad") == {
        "$": "enum",
        "type": ["os", "system"],
        "v": f"touch {proof}",
    }
    assert not proof.exists()


def test_pickles_are_not_read() -> None:
    """Neither are values of any other kind that is not known."""
    for kind in ("pickle", "msgpack+aes", "yaml"):
        with raises(Invalid, "import_value_unreadable", kind=kind):
            decode_typed(kind, b"cos\nsystem\n(S'true'\ntR.")


def test_values_that_are_nested_too_deeply_are_refused() -> None:
    """Arrays in arrays, and extension values in extension values."""
    inner: Any = 1
    for _ in range(100):
        inner = msgspec.msgpack.Ext(CONSTRUCTED, packed(("a", "b", inner)))
    with raises(Invalid, "import_value_unreadable", kind="msgpack"):
        decode_typed("msgpack", packed(inner))
    with raises(Invalid, "import_value_unreadable", kind="msgpack"):
        decode_typed("msgpack", b"\x91" * 200_000 + b"\x01")


def test_standard_types_become_plain_values() -> None:
    """A UUID and a time are text, a set is a list, and another class keeps its name."""
    assert plain(ForeignObject("uuid", "UUID", "ab12")) == "ab12"
    assert plain(ForeignObject("builtins", "set", [2, 1])) == [2, 1]
    assert plain(ForeignObject("shop", "Order", {"n": 1})) == {"type": "shop.Order", "value": {"n": 1}}


def test_nothing_is_written_beside_the_database(store: Store, tmp_path: Path) -> None:
    """Also of a database in WAL mode: neither a -wal nor a -shm file, and no changed byte."""
    file = database(tmp_path, ("1", None, {"messages": [ASKED]}))
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    before = file.read_bytes()

    import_sessions(store, file)

    assert (os.listdir(tmp_path), file.read_bytes()) == (["graph.db"], before)


def test_a_version_that_is_not_known_is_reported(store: Store, tmp_path: Path) -> None:
    """A checkpoint of a later version is not guessed at."""
    file = database(tmp_path, ("1", None, {"messages": [ASKED]}), version=9)

    (session,) = import_sessions(store, file).sessions

    assert (session.thread, session.unmapped) == (None, {"checkpoint that cannot be read": 1})


def test_tables_with_other_columns_are_refused(store: Store, tmp_path: Path) -> None:
    """The first versions of the saver had other columns."""
    file = tmp_path / "old.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE checkpoints (thread_id TEXT, thread_ts TEXT, checkpoint BLOB)")
        connection.execute("CREATE TABLE writes (thread_id TEXT)")
    connection.close()

    with pytest.raises(Unsupported) as refused:
        import_sessions(store, file)

    assert (refused.value.code, list(store.threads())) == ("import_version_unknown", [])


def graph(saver: Any) -> Any:
    """A real graph with one node that calls a tool."""
    graphs = pytest.importorskip("langgraph.graph")
    words = pytest.importorskip("langchain_core.messages")

    def work(state: Any) -> Any:
        if not isinstance(state["messages"][-1], words.HumanMessage):
            return {}
        id = f"call_{len(state['messages'])}"
        call = words.AIMessage("", tool_calls=[{"name": "look", "args": {"n": 1}, "id": id}])
        return {"messages": [call, words.ToolMessage("found", tool_call_id=id), words.AIMessage("Done.")]}

    made = graphs.StateGraph(graphs.MessagesState)
    made.add_node("work", work)
    made.add_edge(graphs.START, "work")
    return made.compile(checkpointer=saver)


def talk(saver: Any) -> None:
    """Two turns on one thread, and a branch from the first."""
    compiled = graph(saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    for text in ("One?", "Two?"):
        compiled.invoke({"messages": [("user", text)]}, config)
    early = next(
        each for each in compiled.get_state_history(config) if len(each.values.get("messages", ())) == 4
    )
    compiled.invoke({"messages": [("user", "Other?")]}, early.config)


TALKED = Counts(inputs=3, replies=6, calls=3, results=3)


def test_a_database_of_the_real_saver_is_read(store: Store, tmp_path: Path) -> None:
    """Two turns and a branch, by langgraph-checkpoint-sqlite."""
    savers = pytest.importorskip("langgraph.checkpoint.sqlite")
    with savers.SqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        talk(saver)

    import_sessions(store, tmp_path)
    again = import_sessions(store, tmp_path)

    assert (in_store(store), again.messages) == (TALKED, 0)
    assert len(store.thread("t").timelines()) == 2


def test_a_server_of_the_real_saver_is_read(store: Store, postgres: Server) -> None:
    """The same by langgraph-checkpoint-postgres, which keeps the values of channels apart."""
    savers = pytest.importorskip("langgraph.checkpoint.postgres")
    with savers.PostgresSaver.from_conn_string(postgres.url()) as saver:
        saver.setup()
        saver.delete_thread("t")
        talk(saver)

    import_sessions(store, postgres.url())
    again = import_sessions(store, postgres.url())

    assert (in_store(store), again.messages) == (TALKED, 0)


def shop(saver: Any) -> Any:
    """A graph whose state has values of several types beside its messages."""
    graphs = pytest.importorskip("langgraph.graph")

    class State(graphs.MessagesState):
        budget: int
        seen: Any

    def buy(state: Any) -> Any:
        seen = {*state.get("seen", ()), UUID(int=len(state["messages"]))}
        return {"messages": [("ai", "Bought.")], "budget": state.get("budget", 100) - 10, "seen": seen}

    made = graphs.StateGraph(State)
    made.add_node("buy", buy)
    made.add_edge(graphs.START, "buy")
    return made.compile(checkpointer=saver)


def test_a_graph_goes_on_from_an_imported_checkpoint(store: Store, tmp_path: Path) -> None:
    """Under its old thread id it has the values that it would have with its old saver, and says nothing again."""
    savers = pytest.importorskip("langgraph.checkpoint.sqlite")
    from perdure.integrations.langgraph import Saver

    config: Any = {"configurable": {"thread_id": "trip-1"}}
    with savers.SqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        for text in ("One", "Two"):
            shop(saver).invoke({"messages": [("user", text)]}, config)
        import_sessions(store, tmp_path)
        before = shop(saver).get_state(config)
        expected = shop(saver).invoke({"messages": [("user", "Three")]}, config)
    moved = shop(Saver(store))
    carried = moved.get_state(config)

    found = moved.invoke({"messages": [("user", "Three")]}, config)

    assert (carried.values, carried.next, carried.metadata) == (before.values, before.next, before.metadata)
    assert [each.content for each in found["messages"]] == [each.content for each in expected["messages"]]
    assert (found["budget"], found["seen"]) == (70, expected["seen"])
    told = [entry.text for entry in store.thread("trip-1").transcript()]
    assert told == ["One", "Bought.", "Two", "Bought.", "Three", "Bought."]
    assert Saver(store).missed_messages(config) == []
    assert [each.values["budget"] for each in moved.get_state_history(config)] == [70, 80, 80, 80]
    assert sound(store) == []


class Answer(TypedDict):
    """The state of a graph that asks."""

    answer: str


def test_an_interrupted_graph_is_resumed_after_the_import(store: Store, tmp_path: Path) -> None:
    """The writes of its tasks are carried over, those of a subgraph that waits too."""
    savers = pytest.importorskip("langgraph.checkpoint.sqlite")
    graphs, types = pytest.importorskip("langgraph.graph"), pytest.importorskip("langgraph.types")
    from perdure.integrations.langgraph import Saver

    def ask(state: Any) -> Any:
        return {"answer": types.interrupt("Sure?")}

    def compiled(saver: Any) -> Any:
        inner = graphs.StateGraph(Answer)
        inner.add_node("ask", ask)
        inner.add_edge(graphs.START, "ask")
        outer = graphs.StateGraph(Answer)
        outer.add_node("inner", inner.compile())
        outer.add_edge(graphs.START, "inner")
        return outer.compile(checkpointer=saver)

    config: Any = {"configurable": {"thread_id": "t"}}
    with savers.SqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        compiled(saver).invoke({"answer": ""}, config)
    import_sessions(store, tmp_path)

    (waiting,) = compiled(Saver(store)).get_state(config).interrupts
    found = compiled(Saver(store)).invoke(types.Command(resume="Yes"), config)

    assert (waiting.value, found) == ("Sure?", {"answer": "Yes"})


def test_a_checkpoint_that_was_not_carried_over_is_refused(store: Store, tmp_path: Path) -> None:
    """An array of numpy has no form, so nothing is carried over; older checkpoints are in no case."""
    pytest.importorskip("langgraph")
    from perdure.integrations.langgraph import Saver

    array = msgspec.msgpack.Ext(6, b"")
    file = database(
        tmp_path, ("1", None, {"messages": [ASKED]}), ("2", "1", {"messages": [ASKED], "n": array})
    )
    report = import_sessions(store, file)
    for given in ({}, {"checkpoint_id": "1"}):
        with raises(Unsupported, "checkpoint_not_imported", thread="t"):
            Saver(store).get_tuple({"configurable": {"thread_id": "t", **given}})

    assert [loss.what for loss in report.sessions[0].losses] == ["checkpoint"]


def test_a_grown_database_moves_the_checkpoint_until_the_graph_goes_on_here(
    store: Store, tmp_path: Path
) -> None:
    """After that the rest is on a timeline of its own, and the latest checkpoint stays."""
    savers = pytest.importorskip("langgraph.checkpoint.sqlite")
    from perdure.integrations.langgraph import Saver

    config: Any = {"configurable": {"thread_id": "t"}}
    budgets: list[int] = []
    told: list[list[str]] = []
    with savers.SqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        for is_moved in (False, False, True, False):
            graph_of = shop(Saver(store) if is_moved else saver)
            graph_of.invoke({"messages": [("user", "More")]}, config)
            (report,) = import_sessions(store, tmp_path).sessions
            told.append([loss.kind for loss in report.losses if loss.what == "checkpoint"])
            budgets.append(shop(Saver(store)).get_state(config).values["budget"])

    assert budgets == [90, 80, 70, 70]
    assert told == [[], [], [], ["converted"]]
    assert len(store.thread("t").timelines()) == 3  # main, the rest of the source, and the writes of tasks


def test_a_database_that_grew_by_a_fork_says_where_its_checkpoint_is(store: Store, tmp_path: Path) -> None:
    """The saver goes on from main, so its state is the old one until the new timeline is made main."""
    savers = pytest.importorskip("langgraph.checkpoint.sqlite")
    from perdure.integrations.langgraph import Saver

    config: Any = {"configurable": {"thread_id": "t"}}
    with savers.SqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        compiled = shop(saver)
        for text in ("One", "Two"):
            compiled.invoke({"messages": [("user", text)]}, config)
        (first,) = import_sessions(store, tmp_path).sessions
        early = next(each for each in compiled.get_state_history(config) if each.values.get("budget") == 90)
        compiled.invoke({"messages": [("user", "Other")]}, early.config)
        (second,) = import_sessions(store, tmp_path).sessions
    state = shop(Saver(store))
    before = [each.content for each in state.get_state(config).values["messages"]]

    (loss,) = [each for each in second.losses if each.what == "checkpoint"]
    store.thread("t").promote(second.timelines[0])

    assert [each for each in first.losses if each.what == "checkpoint"] == []  # control: main has it
    assert (loss.kind, second.timelines[0] in loss.why) == ("converted", True)
    assert (first.current, second.current) == (None, second.timelines[0])
    after = [each.content for each in shop(Saver(store)).get_state(config).values["messages"]]
    assert ("Other" in before, "Other" in after) == (False, True)


def paying(*, is_cut_off: bool = False, together: int = 1, approval: str = "tool") -> tuple[Any, list[int]]:
    """A function that compiles a graph whose tool pays once a person agrees, and what was paid.

    The tool asks a person, a node before it does, or nobody does; `is_cut_off` raises after a payment.
    """
    graphs, types = pytest.importorskip("langgraph.graph"), pytest.importorskip("langgraph.types")
    messages, prebuilt = (
        pytest.importorskip("langchain_core.messages"),
        pytest.importorskip("langgraph.prebuilt"),
    )
    paid: list[int] = []

    def pay(euro: int) -> str:
        """Pay."""
        if approval == "tool" and types.interrupt(f"Pay {euro}?") != "yes":
            return "denied"
        paid.append(euro)
        if is_cut_off:
            raise ConnectionError
        return "paid"

    def model(state: Any) -> Any:
        if state["messages"][-1].type == "tool":
            return {"messages": [messages.AIMessage("Done.")]}
        called = [{"name": "pay", "args": {"euro": n}, "id": f"call-{n}"} for n in range(together)]
        return {"messages": [messages.AIMessage("", tool_calls=called)]}

    def ask(state: Any) -> Any:
        if approval == "node":
            types.interrupt("Pay?")
        return {}

    def compiled(saver: Any, **hooks: Any) -> Any:
        graph = graphs.StateGraph(graphs.MessagesState)
        graph.add_node("model", model)
        graph.add_node("ask", ask)
        graph.add_node("tools", prebuilt.ToolNode([pay], handle_tool_errors=False, **hooks))
        graph.add_edge(graphs.START, "model")
        graph.add_conditional_edges(
            "model", prebuilt.tools_condition, {"tools": "ask", "__end__": graphs.END}
        )
        graph.add_edge("ask", "tools")
        graph.add_edge("tools", "model")
        return graph.compile(checkpointer=saver)

    return compiled, paid


def pay_here(store: Store, compiled: Any) -> list[str]:
    """Go on with the imported graph and a guard; return what its tools answered."""
    types = pytest.importorskip("langgraph.types")
    from perdure.integrations.langgraph import Saver, ToolGuard

    guard = ToolGuard(store, {"pay": "financial"})
    app, config = (
        compiled(Saver(store), wrap_tool_call=guard.wrap_tool_call),
        {"configurable": {"thread_id": "t"}},
    )
    found = app.invoke(types.Command(resume="yes"), config, durability="sync")
    return [each.status for each in found["messages"] if each.type == "tool"]


@pytest.mark.parametrize("approval", ["tool", "node"])
def test_an_imported_call_that_waits_at_an_interrupt_is_made_once(
    store: Store, tmp_path: Path, approval: str
) -> None:
    """The checkpoint shows that the tool has not run, so the guard settles the call and makes the approved one."""
    savers = pytest.importorskip("langgraph.checkpoint.sqlite")
    compiled, paid = paying(approval=approval)
    config: Any = {"configurable": {"thread_id": "t"}}
    with savers.SqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        compiled(saver).invoke({"messages": [("user", "Pay")]}, config)
    import_sessions(store, tmp_path)

    assert pay_here(store, compiled) == ["success"]

    states = [(call.origin, call.state, call.outcome) for call in store.thread("t").calls()]
    assert paid == [0]
    assert sorted(states, key=str) == [("call", "succeeded", None), ("import", "resolved", "not_done")]
    assert sound(store) == ["t: call resolved"]


def test_an_imported_call_that_may_have_been_made_is_not_made_again(store: Store, tmp_path: Path) -> None:
    """It was resumed and cut off in the source, or is one of two that one task makes."""
    savers, types = pytest.importorskip("langgraph.checkpoint.sqlite"), pytest.importorskip("langgraph.types")
    config: Any = {"configurable": {"thread_id": "t"}}
    told: list[tuple[list[int], list[str]]] = []
    for number, (approval, together) in enumerate((("tool", 1), ("node", 1), ("none", 1), ("tool", 2))):
        cut_off, before = paying(is_cut_off=True, approval=approval, together=together)
        file = tmp_path / f"{number}.db"
        with savers.SqliteSaver.from_conn_string(str(file)) as saver, suppress(ConnectionError):
            cut_off(saver).invoke({"messages": [("user", "Pay")]}, config)
            if approval != "none" and together == 1:
                cut_off(saver).invoke(types.Command(resume="yes"), config)
        with perdure.open(tmp_path / f"store-{number}.db") as fresh:
            import_sessions(fresh, file)
            compiled, paid = paying(approval=approval, together=together)
            answers = pay_here(fresh, compiled)
            told.append(([*before, *paid], answers))

    assert told == [([0], ["error"])] * 3 + [([], ["error", "error"])]


def test_a_result_without_a_guard_settles_the_imported_call(store: Store, tmp_path: Path) -> None:
    """The graph goes on without a guard, and the ledger has what its tool returned; before, the outcome is unknown."""
    savers, types = pytest.importorskip("langgraph.checkpoint.sqlite"), pytest.importorskip("langgraph.types")
    from perdure.integrations.langgraph import Saver

    compiled, _ = paying()
    config: Any = {"configurable": {"thread_id": "t"}}
    with savers.SqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        compiled(saver).invoke({"messages": [("user", "Pay")]}, config)
    import_sessions(store, tmp_path)
    (before,) = store.thread("t").calls()
    compiled(Saver(store)).invoke(types.Command(resume="yes"), config)

    (after,) = store.thread("t").calls()
    assert (before.state, after.state, after.status) == ("unknown", "succeeded", "success")
    assert sound(store) == []


def test_a_result_of_the_source_contradicts_that_a_call_was_not_done(store: Store, tmp_path: Path) -> None:
    """The graph went on in the old database too, and paid there: the next import keeps its result as evidence."""
    savers, types = pytest.importorskip("langgraph.checkpoint.sqlite"), pytest.importorskip("langgraph.types")
    compiled, paid = paying()
    config: Any = {"configurable": {"thread_id": "t"}}
    with savers.SqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        compiled(saver).invoke({"messages": [("user", "Pay")]}, config)
        import_sessions(store, tmp_path)
        pay_here(store, compiled)
        compiled(saver).invoke(types.Command(resume="yes"), config)
    import_sessions(store, tmp_path)

    (imported,) = [call for call in store.thread("t").calls() if call.origin == "import"]
    assert paid == [0, 0]  # twice, because both graphs went on
    assert (imported.outcome, imported.evidence is not None) == ("not_done", True)


def test_a_call_that_waits_in_a_task_of_its_own_is_made_beside_another(store: Store, tmp_path: Path) -> None:
    """`create_agent` sends each call of a message to a task: the one that is done is not made again, the other is."""
    agents = pytest.importorskip("langchain.agents")
    savers, types = pytest.importorskip("langgraph.checkpoint.sqlite"), pytest.importorskip("langgraph.types")
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    from perdure.integrations.langgraph import Saver, ToolGuard

    made: list[str] = []

    class Model(GenericFakeChatModel):
        """A model that takes tools."""

        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

    def order(euro: int) -> str:
        """Order."""
        made.append(f"order {euro}")
        return "ordered"

    def pay(euro: int) -> str:
        """Pay."""
        made.append(f"pay {euro}: {types.interrupt('Pay?')}")
        return "paid"

    def compiled(saver: Any, message: AIMessage, *guards: Any) -> Any:
        model = Model(messages=iter([message]))
        return agents.create_agent(model, [order, pay], checkpointer=saver, middleware=guards)

    called = [{"name": name, "args": {"euro": 5}, "id": name} for name in ("order", "pay")]
    config: Any = {"configurable": {"thread_id": "t"}}
    with savers.SqliteSaver.from_conn_string(str(tmp_path / "graph.db")) as saver:
        compiled(saver, AIMessage("", tool_calls=called)).invoke({"messages": [("user", "Pay")]}, config)
    import_sessions(store, tmp_path)
    app = compiled(Saver(store), AIMessage("Done."), ToolGuard(store).middleware())
    app.invoke(types.Command(resume="yes"), config, durability="sync")

    states = [(call.tool, call.origin, call.state) for call in store.thread("t").calls()]
    assert made == ["order 5", "pay 5: yes"]
    assert sorted(states, key=str) == [
        ("order", "import", "succeeded"),
        ("pay", "call", "succeeded"),
        ("pay", "import", "resolved"),
    ]
