"""Perdure's saver in a graph of LangGraph, beside LangGraph's own SQLite saver: one conversation with a list of messages.

Both have the same history; the last turns are taken by turns, and only they are timed.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import perdure
from bench.ground import Ground, take_turns
from bench.table import Result, Skipped

_TEXT = "a question of some length, " * 90
_CONFIG: Any = {"configurable": {"thread_id": "t"}}


def measure(ground: Ground) -> Iterable[Result | Skipped]:
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver

        from perdure.integrations.langgraph import Saver
    except ImportError as error:
        yield Skipped(
            measure="a saver of LangGraph", why=f"{error}; install it with `pip install --group bench`"
        )
        return
    sizes, directory = ground.sizes, ground.fresh()
    turns = 10 * sizes.peer_turns
    ground.tell(f"savers: {turns} turns each")
    with (
        perdure.open(directory / "ours.db") as store,
        closing(sqlite3.connect(directory / "theirs.db", check_same_thread=False)) as database,
    ):
        ours, theirs = _conversation(Saver(store)), _conversation(SqliteSaver(database))
        for number in range(turns - sizes.peer_turns):
            ours(number)
            theirs(number)
        our_times, their_times = take_turns([ours, theirs], range(sizes.peer_turns))
    our_bytes, their_bytes = _bytes(directory / "ours.db"), _bytes(directory / "theirs.db")
    put_times = {
        name: _one_put(directory / name, 3 * turns, is_step=name == "step") for name in ("put", "step")
    }
    ground.drop(directory)
    last = f"the last {sizes.peer_turns} of {turns} turns of a graph"
    about: dict[str, Any] = {"baseline_is": "LangGraph SqliteSaver"}
    is_judged = turns >= 1_000  # the bars are for a long conversation
    rate = [len(each.wall) / each.total for each in (our_times, their_times)]
    yield Result(
        measure=last,
        ours=rate[0],
        baseline=rate[1],
        unit="turns/s",
        bound="at least" if is_judged else None,
        bar=10 if is_judged else None,
        **about,
    )
    cpu = [1e3 * sum(each.cpu) / len(each.cpu) for each in (our_times, their_times)]
    yield Result(measure=f"{last}, CPU of one", ours=cpu[0], baseline=cpu[1], unit="ms", **about)
    yield Result(
        measure=f"bytes of {turns} turns of a graph",
        ours=our_bytes,
        baseline=their_bytes,
        unit="bytes",
        bound="at most" if is_judged else None,
        bar=0.01 if is_judged else None,
        **about,
    )
    for name, (one_put, one_change) in put_times.items():
        inside = " inside a run" if name == "step" else ""
        yield Result(
            measure=f"one put{inside} after {3 * turns} messages, CPU",
            ours=one_put,
            baseline=one_change,
            baseline_is="`thread.change` that appends the same",
            unit="ms",
            bound="at most" if is_judged else None,
            bar=2 if is_judged else None,
        )


def _conversation(saver: Any) -> Callable[[int], object]:
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph import START, MessagesState, StateGraph

    graph: Any = StateGraph(MessagesState)
    graph.add_node("answer", lambda _: {"messages": [AIMessage(f"re: {_TEXT}")]})
    graph.add_node("finish", lambda _: {"messages": [AIMessage("done")]})
    graph.add_edge(START, "answer")
    graph.add_edge("answer", "finish")
    app = graph.compile(checkpointer=saver)
    return lambda number: app.invoke({"messages": [HumanMessage(f"{number}: {_TEXT}")]}, _CONFIG)


def _one_put(directory: Path, messages: int, *, is_step: bool) -> tuple[float, float]:
    """The processor time of a put with one new message, and of a change that says and appends the same, in ms.

    `is_step`: the run goes on after each put; else each put ends a run, and looks whether any message was altered.
    """
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.base import empty_checkpoint

    from perdure.integrations.langgraph import Saver
    from perdure.model.message import Message, Text

    directory.mkdir()
    with perdure.open(directory / "puts.db") as store:
        saver, thread = Saver(store), store.thread("plain", agent="bench")
        said: list[Any] = [AIMessage(f"{number} {_TEXT}", id=f"m{number}") for number in range(messages)]
        thread.put("/list.json", [{"content": each.content} for each in said])
        below = _CONFIG

        def put(number: int) -> None:
            nonlocal below
            said.append(AIMessage(f"{number} {_TEXT}", id=f"n{number}"))
            checkpoint: Any = {
                **empty_checkpoint(),
                "id": f"{number:08}",
                "channel_values": {"messages": list(said)} | ({"branch:to:next": None} if is_step else {}),
            }
            checkpoint["channel_versions"] = {"messages": f"{number:08}"}
            given: Any = {"configurable": {"checkpoint_ns": "", **below["configurable"]}}
            begin = time.process_time()
            below = saver.put(given, checkpoint, {"source": "loop", "step": number, "parents": {}}, {})
            times[0].append(time.process_time() - begin)

        def change(number: int) -> None:
            begin = time.process_time()
            with thread.change("more") as block:
                id = block.add(Message("assistant", (Text(f"{number} {_TEXT}"),)))
                block.append("/list.json", {"content": f"{number} {_TEXT}", "said": id})
            times[1].append(time.process_time() - begin)

        times: tuple[list[float], list[float]] = [], []
        for number in range(101):
            put(number)
            change(number)
    ours, theirs = (1e3 * sorted(each[1:])[len(each) // 2] for each in times)
    return ours, theirs


def _bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.glob(path.name + "*"))
