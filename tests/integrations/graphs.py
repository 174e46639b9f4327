"""Small graphs of LangGraph that the tests run, and writers that meet on one of their threads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

__all__ = ["Met", "chat", "config", "meet", "said", "say"]


def config(thread_id: str = "t", **more: Any) -> Any:
    """The config of a thread."""
    return {"configurable": {"thread_id": thread_id, **more}}


def chat(ran: Callable[[str], None] = lambda _: None, *, step: float = 0.0) -> StateGraph[Any]:
    """A graph that answers in two steps; `ran` is told each input that the first step sees."""

    def answer(state: Any) -> Any:
        ran(state["messages"][-1].content)
        time.sleep(step)
        return {"messages": [AIMessage(f"re: {state['messages'][-1].content}")]}

    def finish(state: Any) -> Any:
        return {"messages": [AIMessage("done")]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_node("finish", finish)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", "finish")
    return graph


def say(app: Any, text: str, thread_id: str = "t", **options: Any) -> None:
    """Give the graph one input."""
    app.invoke({"messages": [HumanMessage(text)]}, config(thread_id), **options)


def said(app: Any, thread_id: str = "t") -> list[str]:
    """The texts of the latest state."""
    return [each.content for each in app.get_state(config(thread_id)).values.get("messages", [])]


class Met(NamedTuple):
    """What came of writers that met."""

    acknowledged: list[str]
    missing: list[str]  # acknowledged, but not in the latest state
    errors: Counter[str]
    began: Counter[str]  # how often the first step ran for an input


def meet(apps: Sequence[Any], graph_runs: Counter[str], *, turns: int, durability: str, retry: bool) -> Met:
    """Let one writer for each app say `turns` things on the same thread at once."""
    acknowledged: list[str] = []
    errors: Counter[str] = Counter()
    lock = threading.Lock()

    def write(number: int) -> None:
        for turn in range(turns):
            text = f"{number}-{turn}"
            while True:
                try:
                    say(apps[number], text, durability=durability)
                except Exception as error:
                    with lock:
                        errors[str(getattr(error, "code", type(error).__name__))] += 1
                    if not retry:
                        break
                    time.sleep(0.001)
                else:
                    acknowledged.append(text)
                    break

    writers = [threading.Thread(target=write, args=(number,)) for number in range(len(apps))]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    latest = set(said(apps[0]))
    return Met(acknowledged, [each for each in acknowledged if each not in latest], errors, graph_runs)
