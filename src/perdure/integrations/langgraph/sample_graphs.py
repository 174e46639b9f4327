"""Small graphs of LangGraph for `perdure demo --with langgraph`: one that pays, and one that chats.

Their models are scripted.  `plain_saver` gives one of LangGraph's own savers, to compare with.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import (  # pyright: ignore[reportMissingTypeStubs]
    END,
    START,
    MessagesState,
    StateGraph,
)
from langgraph.prebuilt import ToolNode

from perdure.errors import Conflict
from perdure.integrations.langgraph.saver import Saver
from perdure.integrations.langgraph.tool_guard import ToolGuard
from perdure.store.store import Store

__all__ = ["RaceOutcome", "chat_turns", "has_sqlite_saver", "pay_or_resume", "plain_saver", "race"]

_WAIT_SECONDS = 600


def has_sqlite_saver() -> bool:
    """True if LangGraph's saver for SQLite is installed."""
    try:
        import langgraph.checkpoint.sqlite  # noqa: F401  # pyright: ignore[reportMissingImports, reportUnusedImport]
    except ImportError:
        return False
    return True


@contextmanager
def plain_saver(file: Path) -> Generator[Any]:
    """Give LangGraph's saver for SQLite on a file, or its saver in memory where that one is not installed."""
    if not has_sqlite_saver():
        yield InMemorySaver()
        return
    from langgraph.checkpoint.sqlite import SqliteSaver

    with closing(sqlite3.connect(file, check_same_thread=False)) as connection:
        yield SqliteSaver(connection)


def pay_or_resume(
    store: Store, thread_id: str, pay: Callable[[str, int], str], words: str | None, *, is_guarded: bool
) -> str:
    """Let a graph pay the landlord 900 and return what it says; with `words` None it goes on after a kill.

    Every step is durable before the next (`durability="sync"`).  With `is_guarded` the tool goes through the ledger.
    """
    guard = ToolGuard(store, {"pay": "financial"}) if is_guarded else None
    tool = StructuredTool.from_function(pay, name="pay", description="Pay a person.")
    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", _next_message)
    graph.add_node("tools", ToolNode([tool], wrap_tool_call=guard.wrap_tool_call if guard else None))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", _is_asking, {True: "tools", False: END})
    graph.add_edge("tools", "model")
    given = None if words is None else {"messages": [HumanMessage(words)]}
    ended = graph.compile(checkpointer=Saver(store)).invoke(given, _config(thread_id), durability="sync")
    return str(ended["messages"][-1].content)


def _next_message(state: MessagesState) -> dict[str, Any]:
    last = state["messages"][-1]
    if last.type == "tool":
        return {"messages": [AIMessage(f"The tool says: {_text(last)}")]}
    call = {"name": "pay", "args": {"to": "landlord", "amount": 900}, "id": "pay-1"}
    return {"messages": [AIMessage("", id="asks", tool_calls=[cast("Any", call)])]}


def _is_asking(state: MessagesState) -> bool:
    return bool(getattr(state["messages"][-1], "tool_calls", None))


class RaceOutcome(NamedTuple):
    """What came of two runs on one thread."""

    acknowledged: list[str]  # the inputs whose runs reported success
    refused: str | None  # the code of the error that the second run got; None: none
    latest: list[str]  # the inputs in the latest state


def race(saver: Any, thread_id: str) -> RaceOutcome:
    """Begin a second run while the first one is in its node; a run that is refused is made again afterwards."""
    entered, released = threading.Event(), threading.Event()
    acknowledged: list[str] = []

    def answer(state: MessagesState) -> dict[str, Any]:
        if _text(state["messages"][-1]) == "first":
            entered.set()
            released.wait(_WAIT_SECONDS)
        return {"messages": [AIMessage("noted")]}

    graph = _chat(saver, answer)

    def invoke(text: str) -> None:
        graph.invoke({"messages": [HumanMessage(text)]}, _config(thread_id))
        acknowledged.append(text)

    invoke("before")
    first = threading.Thread(target=invoke, args=("first",))
    first.start()
    entered.wait(_WAIT_SECONDS)
    refused: str | None = None
    try:
        invoke("second")
    except Conflict as conflict:  # Busy is one
        refused = conflict.code
    released.set()
    first.join()
    if refused is not None:
        invoke("second")
    return RaceOutcome(acknowledged, refused, _inputs(graph, thread_id))


def chat_turns(saver: Any, thread_id: str, turns: int, *, text: str) -> list[str]:
    """Give a graph so many inputs that begin with a number, and return those that its latest state has."""
    graph = _chat(saver, lambda _: {"messages": [AIMessage(text)]})
    for number in range(turns):
        graph.invoke({"messages": [HumanMessage(f"{number} {text}")]}, _config(thread_id))
    return [each.partition(" ")[0] for each in _inputs(graph, thread_id)]


def _chat(saver: Any, answer: Callable[[MessagesState], dict[str, Any]]) -> Any:
    graph: Any = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


def _inputs(graph: Any, thread_id: str) -> list[str]:
    messages = graph.get_state(_config(thread_id)).values["messages"]
    return [_text(each) for each in messages if each.type == "human"]


def _text(message: Any) -> str:
    return str(message.content)


def _config(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}
