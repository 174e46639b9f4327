"""The processor time of one run with one tool, beside LangGraph without a checkpointer on the same words.

Both have a model that answers at once: it asks for a tool, the tool returns 2 KB, and the model says the last words.
Ours is durable and goes on in one thread; LangGraph keeps nothing and is shown nothing but the new message.
"""

from __future__ import annotations

from collections.abc import Iterable

from bench.agents import Running
from bench.ground import Ground, Times, median, take_turns
from bench.table import Result, Skipped
from bench.workload import make_turns

_NAME = "one run with one tool, CPU, user and system"
_FIRST = 5  # runs that are not counted: modules are imported, caches filled


def measure(ground: Ground) -> Iterable[Result | Skipped]:
    turns = make_turns(ground.sizes.one_tool_runs + _FIRST, keys=ground.sizes.keys)
    directory = ground.fresh()
    running = Running(directory, with_state=False)
    try:
        from bench.peers.langgraph_agent import Graph
    except ImportError as error:
        (ours,) = take_turns([running.turn], turns)
        yield _result(ours)
        why = f"{error}; install it with `pip install --group bench`"
        yield Skipped(measure="the same beside LangGraph without a checkpointer", why=why)
    else:
        ours, peer = take_turns([running.turn, Graph().turn], turns)
        yield _result(ours)
        yield Result(
            measure="the same beside LangGraph without a checkpointer",
            ours=_cpu(ours),
            baseline=_cpu(peer),
            baseline_is=Graph.name,
            unit="ms",
            bound="at most",
            bar=0.5,
        )
    running.close()
    ground.drop(directory)


def _result(ours: Times) -> Result:
    return Result(measure=_NAME, ours=_cpu(ours), unit="ms", bound="at most", bar=2.5)


def _cpu(times: Times) -> float:
    return 1e3 * median(times.cpu[_FIRST:])
