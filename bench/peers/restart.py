"""What each library does about a payment that was being made when its process was killed, and about two writers.

    python -m bench.peers.restart

The payment: a process is killed (SIGKILL) once the bank has the money and before the bank has answered.
Then it is started again: with the same id, thread, workflow or session.  The payments at the bank are counted.

The writers: two read the same state, and each adds one item to a list and writes it back.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict, cast

_BANK, _SECONDS_MAX = "bank.txt", 60


def _pay(directory: Path, *, slow: bool) -> str:
    with (directory / _BANK).open("a") as bank:
        bank.write("landlord 900\n")
        bank.flush()
        os.fsync(bank.fileno())
    if slow:
        time.sleep(3_600)
    return "paid"


# ---- the payment


def _perdure(directory: Path, slow: bool) -> str:
    import perdure
    from perdure.testing import Script, say, use

    @perdure.tool(effect="financial")
    def pay() -> str:
        """Pay the rent."""
        return _pay(directory, slow=slow)

    clerk = perdure.Agent("clerk", backend=Script(use("pay"), say("Paid.")), tools=[pay])
    with perdure.open(directory / "perdure.db") as store:
        thread = store.thread("rent", agent=clerk)
        thread.run("Pay the rent", id="rent-may")
        (call,) = thread.calls()
        return f"the ledger says that the outcome is {call.state}"


class _State(TypedDict):
    said: str


def _langgraph(directory: Path, slow: bool) -> str:
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(_State)
    graph.add_node("model", lambda _: {"said": "pay"})
    graph.add_node("tool", lambda _: {"said": _pay(directory, slow=slow)})
    graph.add_edge(START, "model")
    graph.add_edge("model", "tool")
    graph.add_edge("tool", END)
    with sqlite3.connect(directory / "langgraph.db", check_same_thread=False) as db:
        compiled: Any = graph.compile(checkpointer=SqliteSaver(db))
        config = {"configurable": {"thread_id": "rent"}}
        compiled.invoke({"said": "Pay the rent"} if slow else None, config, durability="sync")
        return f"the graph ended with {compiled.get_state(config).values}"


def _dbos(directory: Path, slow: bool) -> str:
    from dbos import DBOS, SetWorkflowID

    url = f"sqlite:///{directory / 'dbos.db'}"
    DBOS(
        config={"name": "rent", "system_database_url": url, "application_version": "1", "log_level": "ERROR"}
    )

    @DBOS.step()
    def pay() -> str:
        return _pay(directory, slow=slow)

    @DBOS.workflow()
    def rent() -> str:
        return pay()

    DBOS.launch()
    if slow:
        with SetWorkflowID("rent-may"):
            return rent()
    handle: Any = DBOS.retrieve_workflow("rent-may")
    return f"the workflow ended with {handle.get_result()!r}"


def _openai_agents(directory: Path, slow: bool) -> str:
    from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool
    from agents.tracing import set_tracing_disabled
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class Scripted(Model):
        async def get_response(
            self, system_instructions: Any, input: Any, *_: Any, **__: Any
        ) -> ModelResponse:
            paid = not isinstance(input, str) and any(
                each.get("type") == "function_call_output" for each in input
            )
            words = ResponseOutputText(type="output_text", text="Paid.", annotations=[])
            said = ResponseOutputMessage(
                id="m1", role="assistant", status="completed", type="message", content=[words]
            )
            call = ResponseFunctionToolCall(call_id="c1", name="pay", arguments="{}", type="function_call")
            return ModelResponse(output=[said if paid else call], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    @function_tool
    def pay() -> str:
        """Pay the rent."""
        return _pay(directory, slow=slow)

    set_tracing_disabled(True)
    session = SQLiteSession("rent", directory / "session.db")
    agent = Agent(name="clerk", model=Scripted(), tools=[pay])
    result = asyncio.run(Runner.run(agent, "Pay the rent", session=session))
    return f"the run ended with {result.final_output!r}"


# ---- the two writers


def _perdure_writers(directory: Path) -> str:
    import perdure

    with perdure.open(directory / "perdure.db") as store:
        thread = store.thread("list", agent="shopper")
        thread.put("/list.json", ["milk"])
        try:
            with thread.change("ann") as ann:
                ann.put("/list.json", [*cast("list[str]", ann.get("/list.json")), "eggs"])
                with thread.change("ben") as ben:
                    ben.put("/list.json", [*cast("list[str]", ben.get("/list.json")), "bread"])
        except perdure.errors.StaleHead:
            return f"the second is refused; the list is {thread.get('/list.json')}"
        return f"both are accepted; the list is {thread.get('/list.json')}"


def _langgraph_writers(directory: Path) -> str:
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(dict)
    graph.add_node("note", lambda state: state)
    graph.add_edge(START, "note")
    graph.add_edge("note", END)
    with sqlite3.connect(directory / "langgraph.db", check_same_thread=False) as db:
        compiled: Any = graph.compile(checkpointer=SqliteSaver(db))
        config: Any = {"configurable": {"thread_id": "list"}}
        compiled.invoke({"list": ["milk"]}, config)
        read = compiled.get_state(config)
        for item in ("eggs", "bread"):
            compiled.update_state(read.config, {"list": [*read.values["list"], item]})
        return f"both are accepted; the list is {compiled.get_state(config).values['list']}"


_PAYMENTS: dict[str, Callable[[Path, bool], str]] = {
    "Perdure": _perdure,
    "LangGraph SqliteSaver": _langgraph,
    "DBOS": _dbos,
    "OpenAI Agents SQLiteSession": _openai_agents,
}
_WRITERS: dict[str, Callable[[Path], str]] = {
    "Perdure": _perdure_writers,
    "LangGraph SqliteSaver": _langgraph_writers,
}


def _child(name: str, directory: Path, *, slow: bool) -> subprocess.Popen[str]:
    arguments = [
        sys.executable,
        "-m",
        "bench.peers.restart",
        name,
        str(directory),
        "slow" if slow else "again",
    ]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _payments(name: str) -> str:
    """Kill the library in mid-payment, start it again, and count."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        first = _child(name, directory, slow=True)
        end = time.monotonic() + _SECONDS_MAX
        while not (directory / _BANK).exists() and first.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.2)
        first.send_signal(signal.SIGKILL)
        _, problem = first.communicate()
        if not (directory / _BANK).exists():
            return f"skipped: {problem.strip().splitlines()[-1:]}"
        said, _ = _child(name, directory, slow=False).communicate(timeout=_SECONDS_MAX)
        paid = len((directory / _BANK).read_text().splitlines())
        return f"{paid} payment{'s' if paid > 1 else ''}; {(said.strip().splitlines() or ['no answer'])[-1]}"


def main(arguments: list[str]) -> None:
    if arguments:
        name, directory, how = arguments
        print(_PAYMENTS[name](Path(directory), how == "slow"))
        return
    for name in _PAYMENTS:
        print(f"killed while it pays, then started again: {name}: {_payments(name)}", flush=True)
    for name, write in _WRITERS.items():
        with tempfile.TemporaryDirectory() as directory:
            print(f"two writers that read the same state: {name}: {write(Path(directory))}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
