"""LangGraph with its SqliteSaver, or its PostgresSaver: a real graph of four steps, checkpointed after each.

Messages and state are channels of the graph; a turn is one `invoke`, with four supersteps.
Durability is SQLite's default, FULL, which is as good as the baseline's EXTRA where there is a write-ahead log.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from bench.workload import STEPS, Turn

__all__ = ["open_peer"]


def _append(old: list[str], new: list[str]) -> list[str]:
    return [*old, *new]


def _update(old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    return {**old, **new}


class _State(TypedDict):
    messages: Annotated[list[str], _append]
    state: Annotated[dict[str, str], _update]


class _LangGraph:
    def __init__(self, name: str, saver: Any, close: Callable[[], object], path: Path = Path()) -> None:
        self.name, self.path, self._close = name, path, close
        saver.setup()
        graph = StateGraph(_State)
        for at in range(STEPS):
            graph.add_node(f"step{at}", self._step(at))
            graph.add_edge(START if at == 0 else f"step{at - 1}", f"step{at}")
        graph.add_edge(f"step{STEPS - 1}", END)
        self._graph: Any = graph.compile(checkpointer=saver)
        self._turn: Turn | None = None

    def turn(self, turn: Turn) -> None:
        self._turn = turn
        config = {"configurable": {"thread_id": "t"}}
        self._graph.invoke({"messages": [], "state": {}}, config, durability="sync")

    def close(self) -> None:
        self._close()

    def _step(self, at: int) -> Any:
        def step(_: _State) -> dict[str, Any]:
            assert self._turn is not None
            said = self._turn.steps[at]
            state = {} if said.key is None else {said.key: said.document}
            return {"messages": [said.body], "state": state}

        return step


def open_peer(directory: Path) -> _LangGraph:
    """A graph on a new database."""
    path = directory / "langgraph.db"
    database = sqlite3.connect(path, check_same_thread=False)
    return _LangGraph("LangGraph SqliteSaver", SqliteSaver(database), database.close, path)


def open_on_server(url: str) -> _LangGraph:
    """A graph on a database of a server, over one connection of its own."""
    from langgraph.checkpoint.postgres import PostgresSaver

    entered = ExitStack()
    saver = entered.enter_context(PostgresSaver.from_conn_string(url))
    return _LangGraph("LangGraph PostgresSaver", saver, entered.close)
