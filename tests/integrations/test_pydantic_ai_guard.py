"""The guard of pydantic-ai's tools: an effect happens once, whatever is killed, repeated or asked again."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai.conversation_store")

from pydantic_ai import Agent, ModelRetry, Tool, ToolReturn
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

import perdure
from perdure.integrations.pydantic_ai import Conversations, ToolGuard
from perdure.model.effect import Effect
from tests.forked import own

PAID: list[int] = []


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    """Begin with no payment."""
    PAID.clear()


def pay(euro: int) -> str:
    """Pay."""
    PAID.append(euro)
    if euro < 0:
        raise ConnectionError("reset")
    return f"paid {euro}"


def asking(*amounts: int, times: int = 1) -> FunctionModel:
    """A model that asks for payments, each under a new id, `times` times one after the other, and then says what it was told."""

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        own = [each for each in messages if each.run_id == messages[-1].run_id]
        results = [part for each in own for part in each.parts if isinstance(part, ToolReturnPart)]
        if len(results) < len(amounts) * times:
            return ModelResponse([ToolCallPart("pay", {"euro": each}) for each in amounts])
        return ModelResponse([TextPart(" | ".join(f"{each.outcome}: {each.content}" for each in results))])

    return FunctionModel(reply)


def ask(
    store: perdure.Store, model: FunctionModel, text: str = "pay", tool: Any = pay, **options: Any
) -> str:
    """Run an agent with a guarded tool once, on a conversation that is not saved; return what the model was told."""
    guard = ToolGuard(store, {"pay": "financial"}, **options)
    agent = Agent(model, tools=[Tool(tool, name="pay")], capabilities=[guard])
    return asyncio.run(agent.run(text, conversation_id="t")).output


@pytest.mark.parametrize(("ids", "told"), [(["ann", "bob", "ann"], "aba"), ([None, None, None], "abc")])
def test_conversations_that_share_a_thread_do_not_share_results(
    tmp_path: Path, ids: list[str | None], told: str
) -> None:
    """The same words make another call in another conversation, and a run without one is a conversation of its own."""
    letters = iter("abc")

    def read() -> str:
        return next(letters)

    with perdure.open(tmp_path / "agents.db") as store:
        guard = ToolGuard(store, {"read": "read_only"}, thread="payments")
        agent = Agent(TestModel(), tools=[read], capabilities=[guard])
        found = [asyncio.run(agent.run("Read it", conversation_id=id)).output for id in ids]

        assert found == [f'{{"read":"{letter}"}}' for letter in told]


def test_a_fork_does_not_pay_again_and_reads_again(tmp_path: Path) -> None:
    """It is another conversation on a timeline of the same thread: its payment may be a repetition."""
    with perdure.open(tmp_path / "agents.db") as store:
        conversations = Conversations(store)
        greeting = Agent(TestModel(custom_output_text="Hello!"))
        effects: tuple[tuple[Effect, int], ...] = (("financial", 1), ("read_only", 2))
        for effect, paid in effects:
            PAID.clear()
            agent = Agent(asking(5), tools=[pay], capabilities=[ToolGuard(store, {"pay": effect})])

            async def main(id: str, agent: Any = agent) -> None:
                await conversations.save(await greeting.run("Hello", conversation_id=id))
                await conversations.save(await agent.run("pay", conversation=await conversations.load(id)))
                await conversations.fork(id, at=2, new_conversation_id=f"{id}-fork")
                await agent.run("pay", conversation=await conversations.load(f"{id}-fork"))

            asyncio.run(main(effect))
            assert len(PAID) == paid


def states(store: perdure.Store) -> list[str]:
    """The states of the calls in the ledger."""
    return sorted(call.state for call in store.thread("t").calls())


def test_a_call_goes_through_the_ledger_of_its_conversation(tmp_path: Path) -> None:
    """Its result reaches the model unchanged, and the ledger has the call."""
    with perdure.open(tmp_path / "agents.db") as store:
        assert ask(store, asking(5)) == "success: paid 5"
        (call,) = store.thread("t").calls()

        assert (call.tool, call.state, call.effect) == ("pay", "succeeded", "financial")
        assert store.verify().ok


def test_a_run_that_was_not_saved_and_is_made_again_is_answered_from_the_ledger(tmp_path: Path) -> None:
    """The model asks under a new id; another input is another call."""
    with perdure.open(tmp_path / "agents.db") as store:
        assert [ask(store, asking(5)) for _ in range(2)] == ["success: paid 5"] * 2
        assert PAID == [5]
        ask(store, asking(5), "pay once more")

        assert PAID == [5, 5]


def test_equal_calls_of_one_run_are_several_calls(tmp_path: Path) -> None:
    """Side by side and one after the other, and none of them again."""
    with perdure.open(tmp_path / "agents.db") as store:
        first = ask(store, asking(5, 5, times=2))
        again = ask(store, asking(5, 5, times=2))

        assert first == again == " | ".join(["success: paid 5"] * 4)
        assert PAID == [5] * 4


def test_a_turn_that_was_saved_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    """The same words later in the conversation are another wish."""
    with perdure.open(tmp_path / "agents.db") as store:
        conversations = Conversations(store)
        agent = Agent(asking(5), tools=[pay], capabilities=[ToolGuard(store)])
        saved: Any = None

        async def turn() -> None:
            nonlocal saved
            saved = await conversations.load("t")
            options: dict[str, Any] = {"conversation": saved} if saved else {"conversation_id": "t"}
            await conversations.save(await agent.run("pay", **options))

        for _ in range(2):
            asyncio.run(turn())

        assert PAID == [5, 5]
        roles = [entry.role for entry in store.thread("t").transcript()]
        assert roles == ["user", "assistant", "tool", "assistant"] * 2


def test_a_history_that_is_cut_does_not_make_two_turns_one(tmp_path: Path) -> None:
    """With the last messages only, each turn has as many before it; made again unsaved, the control, a turn pays nothing."""
    with perdure.open(tmp_path / "agents.db") as store:
        agent = Agent(asking(5), tools=[pay], capabilities=[ToolGuard(store)])
        messages: list[ModelMessage] = []
        for _ in range(4):
            run = asyncio.run(agent.run("pay again", conversation_id="t", message_history=messages[-4:]))
            asyncio.run(agent.run("pay again", conversation_id="t", message_history=messages[-4:]))
            messages = run.all_messages()

        assert PAID == [5] * 4


def test_messages_that_are_cut_during_a_run_do_not_make_two_calls_one(tmp_path: Path) -> None:
    """The guard counts the equal calls of a run, whatever of them the model is still shown; again, it makes none of them."""

    def last_three(messages: list[ModelMessage]) -> list[ModelMessage]:
        return messages[-3:]

    with perdure.open(tmp_path / "agents.db") as store:
        guard = ToolGuard(store)
        for _ in range(2):
            left = iter(range(4))

            def reply(messages: list[ModelMessage], info: AgentInfo, left: Any = left) -> ModelResponse:
                is_over = next(left, None) is None
                return ModelResponse([TextPart("ok") if is_over else ToolCallPart("pay", {"euro": 5})])

            capabilities = [guard, ProcessHistory(last_three)]
            agent = Agent(FunctionModel(reply), tools=[pay], capabilities=capabilities)
            asyncio.run(agent.run("pay four times", conversation_id="t"))

        assert PAID == [5] * 4


def test_an_error_leaves_the_outcome_unknown_and_the_same_call_is_stopped(tmp_path: Path) -> None:
    """At the same place and at another one: nobody knows whether the payment was made."""
    with perdure.open(tmp_path / "agents.db") as store:
        with pytest.raises(ConnectionError):
            ask(store, asking(-1))
        told = [ask(store, asking(-1)), ask(store, asking(-1), "again")]

        assert PAID == [-1]
        assert all(each.startswith("failed: ") for each in told)
        assert "unknown" in states(store)


def test_a_tool_that_asks_for_another_try_has_done_nothing(tmp_path: Path) -> None:
    """`ModelRetry` reaches the model, and the next try is made."""
    tries: list[int] = []

    def pay_later(euro: int) -> str:
        tries.append(euro)
        if len(tries) == 1:
            raise ModelRetry("try again")
        return f"paid {euro}"

    with perdure.open(tmp_path / "agents.db") as store:
        told = ask(store, asking(5, times=2), tool=pay_later)

        assert tries == [5, 5]
        assert told.endswith("success: paid 5")


def test_a_rich_result_comes_back_from_the_ledger(tmp_path: Path) -> None:
    """With what the tool said to the user and the program."""

    def rich(euro: int) -> Any:
        PAID.append(euro)
        return ToolReturn(return_value={"euro": euro}, content="see the receipt", metadata={"id": 7})

    with perdure.open(tmp_path / "agents.db") as store:
        assert ask(store, asking(5), tool=rich) == ask(store, asking(5), tool=rich) == "success: {'euro': 5}"
        assert PAID == [5]


def test_a_result_that_cannot_be_stored_whole_is_a_result(tmp_path: Path) -> None:
    """The tool has paid; what the model is told is stored without the program's own object."""

    def rich(euro: int) -> Any:
        PAID.append(euro)
        return ToolReturn(return_value={"euro": euro}, metadata={"handle": object()})

    with perdure.open(tmp_path / "agents.db") as store:
        assert [ask(store, asking(5), tool=rich) for _ in range(2)] == ["success: {'euro': 5}"] * 2
        assert PAID == [5]
        assert states(store) == ["succeeded"]


KILLED = """
import os, signal, sys
import perdure
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from perdure.integrations.guard import GuardedCall
from perdure.integrations.pydantic_ai import ToolGuard, tool_guard
path, effects, how = sys.argv[1:4]
def pay(euro: int) -> str:
    "Pay."
    with open(effects, "a") as file:
        file.write("paid\\n"); file.flush(); os.fsync(file.fileno())
    if len(open(effects).readlines()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"
def reply(messages, info):
    told = [part for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
    return ModelResponse([TextPart(str(told[0].content))] if told else [ToolCallPart("pay", {"euro": 5})])
with perdure.open(path) as store:
    guard = [] if how == "unguarded" else [ToolGuard(store, repeat_guard="allow" if how == "by id" else "deny")]
    if how == "by id":
        tool_guard._guarded = lambda ctx, call, tool, args, number: GuardedCall(
            id=call.tool_call_id, tool=call.tool_name, arguments=args)
    agent = Agent(FunctionModel(reply), tools=[pay], capabilities=guard)
    print(agent.run_sync("pay", conversation_id="t").output)
    print(sorted(call.state for call in store.thread("t", agent="pydantic-ai").calls()))
"""


@pytest.mark.parametrize(("how", "paid"), [("guarded", 1), ("unguarded", 2), ("by id", 2)])
def test_a_kill_after_the_effect_and_the_same_question(tmp_path: Path, how: str, paid: int) -> None:
    """The effect happens once and the model is told; without the guard, or by the id of the call alone, it is repeated."""
    effects = tmp_path / "effects"
    command = ["-c", KILLED, str(tmp_path / "a.db"), str(effects), how]
    killed = own().run(command)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    asked = own().run(command, check=True)

    assert effects.read_text().count("paid") == paid
    if how == "guarded":
        assert "unknown" in asked.stdout.splitlines()[0]
        assert asked.stdout.splitlines()[-1] == "['unknown']"
