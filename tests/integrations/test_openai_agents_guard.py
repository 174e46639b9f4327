"""The guard of function tools: an effect happens once, whatever is killed, raised or asked again."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents")

from agents import (
    Agent,
    FunctionTool,
    Runner,
    ToolOutputText,
    UserError,
    WebSearchTool,
    function_tool,
    set_tracing_disabled,
)
from agents.exceptions import ModelBehaviorError
from agents.testing import ScriptedModel, assistant_message, function_call

import perdure
from perdure.integrations.openai_agents import Session, ToolGuard
from tests.forked import own

set_tracing_disabled(True)  # nothing is sent to OpenAI

PAID: list[int] = []


@function_tool
def pay(euro: int) -> str:
    """Pay."""
    PAID.append(euro)
    if euro < 0:
        raise ConnectionError("reset")
    return f"paid {euro}"


@function_tool
async def bill(euro: int) -> ToolOutputText:
    """Send a bill."""
    PAID.append(euro)
    return ToolOutputText(text=f"{{{euro}}}")


@function_tool(failure_error_function=None)
def pay_or_raise(euro: int) -> str:
    """Pay, or fail the run."""
    PAID.append(euro)
    raise ConnectionError("reset")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[perdure.Store]:
    """A store on disk, and no payment."""
    PAID.clear()
    with perdure.open(tmp_path / "agents.db") as opened:
        yield opened


def ask(
    store: perdure.Store, *calls: Any, tools: list[Any] | None = None, effect: Any = "financial"
) -> list[str]:
    """Let a model ask for calls, each in a run of its own; return the outputs that the session has at the end."""
    session = Session(store.thread("t", agent="pays"))
    guard = ToolGuard(session, dict.fromkeys(("pay", "bill", "pay_or_raise"), effect))
    model = ScriptedModel()
    agent = Agent(name="pays", model=model, tools=guard.wrap(tools or [pay, bill]))

    async def main() -> list[str]:
        for call in calls:
            model.enqueue([call])
            model.enqueue([assistant_message("ok")])
            await Runner.run(agent, "go", session=session)
        items: list[Any] = list(await session.get_items())
        return [str(each["output"]) for each in items if each.get("type") == "function_call_output"]

    return asyncio.run(main())


def states(store: perdure.Store) -> list[str]:
    """The states of the calls in the ledger."""
    return sorted(call.state for call in store.thread("t").calls())


def test_a_call_goes_through_the_ledger_of_its_conversation(store: perdure.Store) -> None:
    """Its result reaches the model unchanged, and the thread has the call."""
    assert ask(store, function_call("pay", {"euro": 5}, call_id="c1")) == ["paid 5"]

    (call,) = store.thread("t").calls()
    assert (call.tool, call.state, call.effect) == ("pay", "succeeded", "financial")
    assert store.verify().ok


@pytest.mark.parametrize(
    ("names", "paid"), [(("ann", "bob"), [5, 5]), (("ann", "ann"), [5]), (("", ""), [5])]
)
def test_conversations_that_share_a_thread_are_told_apart_by_name(
    store: perdure.Store, names: tuple[str, str], paid: list[int]
) -> None:
    """A model may use the same call id in two of them; under one name, the control, it is the same call."""
    thread = store.thread("t", agent="pays")
    for name in names:
        guard = ToolGuard(thread, {"pay": "financial"}, conversation=name, repeat_guard="allow")
        model = ScriptedModel()
        agent = Agent(name="pays", model=model, tools=guard.wrap([pay]))
        model.enqueue([function_call("pay", {"euro": 5}, call_id="call_0")])
        model.enqueue([assistant_message("ok")])
        asyncio.run(Runner.run(agent, "go"))

    assert paid == PAID


def test_the_same_call_again_is_answered_from_the_ledger(store: perdure.Store) -> None:
    """As it was the first time, be it a text or one of the SDK's outputs."""
    again = [function_call(tool, {"euro": 5}, call_id=tool) for tool in ("pay", "pay", "bill", "bill")]
    first, second, third, fourth = ask(store, *again)

    assert (first, third) == (second, fourth)
    assert PAID == [5, 5]


def test_equal_calls_of_one_answer_are_each_made_once(store: perdure.Store) -> None:
    """The SDK makes them at once."""

    @function_tool
    async def pay(euro: int) -> str:
        """Pay."""
        await asyncio.sleep(0.05)
        PAID.append(euro)
        return f"paid {euro}"

    session = Session(store.thread("t", agent="pays"))
    both = [function_call("pay", {"euro": 5}, call_id=id) for id in ("c1", "c2")]
    tools = ToolGuard(session, {"pay": "financial"}).wrap([pay])
    agent = Agent(name="pays", model=ScriptedModel([both, [assistant_message("ok")]]), tools=tools)
    asyncio.run(Runner.run(agent, "pay twice", session=session))

    assert PAID == [5, 5]
    assert states(store) == ["succeeded", "succeeded"]


def test_an_error_is_unknown_and_told_and_the_same_call_under_a_new_id_is_stopped(
    store: perdure.Store,
) -> None:
    """The SDK makes its message of the error; nobody knows whether the payment was made."""
    outputs = ask(
        store,
        function_call("pay", {"euro": -1}, call_id="c1"),
        function_call("pay", {"euro": -1}, call_id="c2"),
    )
    assert PAID == [-1]
    assert "is unknown" in outputs[0]
    assert "unknown" in outputs[1]
    assert states(store) == ["denied", "unknown"]


@pytest.mark.parametrize(("is_lost", "paid"), [(True, [5]), (False, [5, 5])])
def test_a_payment_that_the_session_never_got_is_not_made_again(
    store: perdure.Store, is_lost: bool, paid: list[int]
) -> None:
    """A run that fails leaves the result in the ledger alone; if the session has it, the control, the model may want another."""

    class FailingSession(Session):
        """A session that stores what the user says, and then fails."""

        async def add_items(self, items: Any) -> None:
            if is_lost and await self.get_items():
                raise ConnectionError("reset")
            await super().add_items(items)

    session = FailingSession(store.thread("t", agent="pays"))
    model = ScriptedModel([[function_call("pay", {"euro": 5}, call_id="c1")], [assistant_message("ok")]])
    agent = Agent(name="pays", model=model, tools=ToolGuard(session, {"pay": "financial"}).wrap([pay]))
    with contextlib.suppress(ConnectionError):
        asyncio.run(Runner.run(agent, "pay", session=session))
    outputs = ask(store, function_call("pay", {"euro": 5}, call_id="c2"))

    assert paid == PAID
    assert ("not in this conversation" in outputs[-1]) == is_lost
    assert store.verify().ok


def test_an_agent_that_is_a_tool_pays_again_in_the_next_turn(store: perdure.Store) -> None:
    """Its own calls are never in the session, and are not lost for that."""
    session = Session(store.thread("t", agent="pays"))
    guard, model = ToolGuard(session, {"pay": "financial"}), ScriptedModel()
    inner = Agent(name="inner", model=model, tools=guard.wrap([pay])).as_tool("pay_by_agent", "Pay.")
    outer = Agent(name="outer", model=model, tools=[inner])
    for number in (1, 2):
        model.enqueue([function_call("pay_by_agent", {"input": "five"}, call_id=f"outer{number}")])
        model.enqueue([function_call("pay", {"euro": 5}, call_id=f"inner{number}")])
        model.enqueue([assistant_message("ok")])
        model.enqueue([assistant_message("ok")])
        asyncio.run(Runner.run(outer, f"pay {number}", session=session))

    assert PAID == [5, 5]


def test_an_error_that_fails_the_run_still_does(store: perdure.Store) -> None:
    """A tool without a handler of errors."""
    with pytest.raises(UserError) as failed:
        ask(store, function_call("pay_or_raise", {"euro": 5}, call_id="c1"), tools=[pay_or_raise])
    assert isinstance(failed.value.__cause__, ConnectionError)
    assert states(store) == ["unknown"]


def test_arguments_that_the_tool_refuses_have_no_effect(store: perdure.Store) -> None:
    """The model is told by the SDK, and may ask again at once."""
    wrong = function_call("pay", {"euro": "many"}, call_id="c1")
    outputs = ask(store, wrong, wrong, function_call("pay", "{broken", call_id="c2"))

    assert PAID == []
    assert len(outputs) == 3
    assert set(states(store)) == {"failed"}


def test_a_tool_that_raises_the_sdks_own_error_after_its_effect_is_unknown(store: perdure.Store) -> None:
    """The guard tells it from refused arguments: code of the tool was entered."""

    @function_tool(name_override="pay")
    def pays_and_blames(euro: int) -> str:
        """Pay, and blame the model."""
        PAID.append(euro)
        raise ModelBehaviorError("wrong")

    ask(store, function_call("pay", {"euro": 5}, call_id="c1"), tools=[pays_and_blames])
    assert states(store) == ["unknown"]


def test_a_tool_that_is_too_slow_is_unknown(store: perdure.Store) -> None:
    """The SDK stops waiting for it."""

    @function_tool(name_override="pay", timeout=0.2)
    async def slow(euro: int) -> str:
        """Pay slowly."""
        PAID.append(euro)
        await asyncio.sleep(60)
        return "paid"

    ask(store, function_call("pay", {"euro": 5}, call_id="c1"), tools=[slow])
    assert PAID == [5]
    assert states(store) == ["unknown"]


def test_what_only_reads_is_called_each_time_and_costs_at_most_one_write(store: perdure.Store) -> None:
    """An effect costs two."""

    def moved(effect: Any, id: str) -> int:
        thread = store.thread("t", agent="pays")
        before = len(thread.moves())
        ask(store, function_call("pay", {"euro": 5}, call_id=id), effect=effect)
        return len(thread.moves()) - before

    reading = moved("read_only", "c1")
    assert moved("read_only", "c2") == reading
    assert PAID == [5, 5]


def test_the_given_tool_is_not_changed_and_others_are_left_alone(store: perdure.Store) -> None:
    """A tool of OpenAI's servers passes through."""
    before, search = pay.on_invoke_tool, WebSearchTool()
    guarded, same = ToolGuard(store.thread("t", agent="pays")).wrap([pay, search])

    assert isinstance(guarded, FunctionTool)
    assert guarded is not pay
    assert pay.on_invoke_tool is before
    assert guarded.params_json_schema == pay.params_json_schema
    assert same is search


KILLED = """
import asyncio, os, signal, sys
import perdure
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call
from perdure.integrations.openai_agents import Session, ToolGuard
path, effects, how, call = sys.argv[1:5]
set_tracing_disabled(True)
@function_tool
def pay(euro: int) -> str:
    "Pay."
    with open(effects, "a") as file:
        file.write("paid\\n"); file.flush(); os.fsync(file.fileno())
    if len(open(effects).readlines()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"
with perdure.open(path) as store:
    session = Session(store.thread("t", agent="pays"))
    tools = ToolGuard(session, {"pay": "financial"}).wrap([pay]) if how == "guarded" else [pay]
    model = ScriptedModel()
    model.enqueue([function_call("pay", {"euro": 5}, call_id=call)])
    model.enqueue([assistant_message("ok")])
    asyncio.run(Runner.run(Agent(name="pays", model=model, tools=tools), "Pay five", session=session))
    print(model.calls[-1].input[-1]["output"])
    print(sorted(call.state for call in store.thread("t").calls()))
"""


@pytest.mark.parametrize(("how", "paid"), [("guarded", 1), ("unguarded", 2)])
def test_a_kill_after_the_effect_and_another_ask(tmp_path: Path, how: str, paid: int) -> None:
    """Under a new id: the effect happens once and the model is told that its outcome is unknown; unguarded, twice."""
    effects = tmp_path / "effects"
    command = ["-c", KILLED, str(tmp_path / "a.db"), str(effects), how]
    killed = own().run([*command, "c1"])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = own().run([*command, "c2"], check=True)

    assert effects.read_text().count("paid") == paid
    assert ("is unknown" in again.stdout) == (how == "guarded")
    assert ("'unknown'" in again.stdout) == (how == "guarded")
