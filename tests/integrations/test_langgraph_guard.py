"""The guard of LangGraph's tools: an effect happens once, whatever is killed, repeated or forked."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import operator
import signal
import threading
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypedDict

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langchain.agents")

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel, Field, field_validator

import perdure
from perdure.errors import Conflict, Held, Invalid
from perdure.integrations.langgraph import Saver, ToolGuard
from tests.coded import raises
from tests.forked import own
from tests.integrations.graphs import config

PAID: list[int] = []


@tool
def pay(euro: int) -> str:
    """Pay."""
    PAID.append(euro)
    if euro < 0:
        raise ConnectionError("reset")
    return f"paid {euro}"


class ReceiptState(MessagesState):
    """A state with a value of the program's own class."""

    receipt: Any


class PlainState(TypedDict):
    """A state whose reducer gives messages no ids."""

    messages: Annotated[list[Any], operator.add]


class Receipt:
    """A class of the program."""


@dataclasses.dataclass
class Invoice:
    """A class of the program that can be stored where it is declared."""

    euro: int


@tool(response_format="content_and_artifact")
def buy(euro: int) -> Any:
    """Buy."""
    PAID.append(euro)
    return f"bought for {euro}", Receipt() if euro < 0 else Invoice(euro)


@tool
def order(euro: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
    """Order."""
    PAID.append(euro)
    message = ToolMessage(f"ordered for {euro}", tool_call_id=tool_call_id)
    return Command(update={"messages": [message], "receipt": Receipt()})


def answer_twice(store: perdure.Store, name: str, euro: int, **options: Any) -> list[Any]:
    """Let a graph without a saver ask for the same call twice; return the two answers."""
    asked = AIMessage("", id="m1", tool_calls=[{"name": name, "args": {"euro": euro}, "id": "c1"}])
    guard = ToolGuard(store, **options)
    hooks: dict[str, Any] = {"wrap_tool_call": guard.wrap_tool_call, "awrap_tool_call": guard.awrap_tool_call}
    built: Any = StateGraph(ReceiptState)
    built.add_node("tools", ToolNode([buy, order], **hooks))
    built.add_edge(START, "tools")
    given, app = {"messages": [asked]}, built.compile()
    return [app.invoke(given, config()), asyncio.run(app.ainvoke(given, config()))]


@tool
def send(euro: int, cent: int = 0) -> str:
    """Send money over a line that breaks."""
    PAID.append(euro)
    raise ConnectionError("reset")


def test_a_default_that_is_given_makes_no_other_call(tmp_path: Path) -> None:
    """After an unknown outcome the model writes out what it had left to the tool: the money is not sent again."""

    def asked(number: int, **arguments: int) -> dict[str, Any]:
        called = {"name": "send", "args": arguments, "id": f"c{number}"}
        return {"messages": [AIMessage("", id=f"m{number}", tool_calls=[called])]}

    with perdure.open(tmp_path / "agents.db") as store:
        built: Any = StateGraph(MessagesState)
        built.add_node("tools", ToolNode([send], wrap_tool_call=ToolGuard(store).wrap_tool_call))
        built.add_edge(START, "tools")
        app = built.compile()
        with pytest.raises(ConnectionError):
            app.invoke(asked(1, euro=5), config())
        app.invoke(asked(2, euro=5, cent=0), config())

        assert [call.state for call in store.thread("t").calls()] == ["unknown", "denied"]
        assert PAID == [5]


@pytest.mark.parametrize("name", ["buy", "order"])
def test_an_artifact_that_cannot_be_stored_is_no_unknown_outcome(tmp_path: Path, name: str) -> None:
    """The tool has paid and the graph gets its answer; asked for again, the guard gives the words of it."""
    with perdure.open(tmp_path / "agents.db") as store:
        first, again = answer_twice(store, name, -5)
        (call,) = store.thread("t").calls()

        assert PAID == [-5]
        assert call.state == "succeeded"
        assert isinstance(first["messages"][-1].artifact or first["receipt"], Receipt)
        assert again["messages"][-1].content == first["messages"][-1].content


@pytest.mark.parametrize(("types", "artifact"), [([Invoice], Invoice(5)), ([], None)])
def test_an_artifact_of_a_declared_class_comes_back_from_the_ledger(
    tmp_path: Path, types: list[Any], artifact: Any
) -> None:
    """Declared with `types`; without a declaration, the control, only the words come back."""
    with perdure.open(tmp_path / "agents.db") as store:
        first, again = answer_twice(store, "buy", 5, types=types)

        assert first["messages"][-1].artifact == Invoice(5)
        assert again["messages"][-1].artifact == artifact
        assert PAID == [5]


def test_the_guard_knows_the_classes_of_the_graphs_saver(tmp_path: Path) -> None:
    """What can be a part of a checkpoint can be a part of a result."""
    asked = AIMessage("", id="m1", tool_calls=[{"name": "buy", "args": {"euro": 5}, "id": "c1"}])
    with perdure.open(tmp_path / "agents.db") as store:
        built: Any = StateGraph(MessagesState)
        built.add_node("tools", ToolNode([buy], wrap_tool_call=ToolGuard(store).wrap_tool_call))
        built.add_edge(START, "tools")
        app = built.compile(checkpointer=Saver(store, types=[Invoice]))
        for _ in range(2):
            found = app.invoke({"messages": [asked]}, config(), durability="sync")

            assert found["messages"][-1].artifact == Invoice(5)
        assert PAID == [5]


def ask(euro: int, id: str, message: str | None) -> AIMessage:
    """A message that asks for a payment."""
    return AIMessage("", id=message, tool_calls=[{"name": "pay", "args": {"euro": euro}, "id": id}])


def graph(
    store: perdure.Store,
    *messages: AIMessage,
    guard: ToolGuard | None = None,
    state: Any = MessagesState,
    saver: Any = None,
) -> Any:
    """A graph whose model says these messages, one for each input, and whose tools run."""
    said = iter(messages)
    guarded = guard or ToolGuard(store, {"pay": "financial"})
    built: Any = StateGraph(state)
    built.add_node("model", lambda _: {"messages": [next(said)]})
    node = ToolNode(
        [pay, pay_if_allowed], wrap_tool_call=guarded.wrap_tool_call, awrap_tool_call=guarded.awrap_tool_call
    )
    built.add_node("tools", node)
    built.add_edge(START, "model")
    built.add_edge("model", "tools")
    return built.compile(checkpointer=saver or Saver(store))


def answers(app: Any) -> list[tuple[str, str]]:
    """The results that the model is shown."""
    messages = app.get_state(config()).values["messages"]
    return [(each.status, str(each.content)) for each in messages if each.type == "tool"]


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    """Begin with no payment."""
    PAID.clear()


def test_a_call_goes_through_the_ledger_of_its_conversation(tmp_path: Path) -> None:
    """Its result reaches the graph unchanged, and the thread has the call and the transcript."""
    with perdure.open(tmp_path / "agents.db") as store:
        app = graph(store, ask(5, "c1", "m1"))
        app.invoke({"messages": [HumanMessage("pay")]}, config(), durability="sync")
        (call,) = store.thread("t").calls()

        assert answers(app) == [("success", "paid 5")]
        assert (call.tool, call.state, call.effect) == ("pay", "succeeded", "financial")
        assert [entry.role for entry in store.thread("t").transcript()] == ["user", "assistant", "tool"]
        assert store.verify().ok


def test_the_awaited_hook_is_the_same(tmp_path: Path) -> None:
    """Once, and from the ledger the second time."""
    with perdure.open(tmp_path / "agents.db") as store:
        app = graph(store, ask(5, "c1", "m1"), ask(5, "c1", "m1"))

        async def main() -> None:
            for _ in range(2):
                await app.ainvoke({"messages": [HumanMessage("pay")]}, config(), durability="sync")

        asyncio.run(main())
        assert PAID == [5]


@pytest.mark.parametrize("is_awaited", [False, True])
def test_equal_calls_of_one_answer_are_each_made_once(tmp_path: Path, is_awaited: bool) -> None:
    """LangGraph makes them at once; going on from before them makes none again."""
    asked = AIMessage(
        "", id="m1", tool_calls=[*ask(5, "c1", "m1").tool_calls, *ask(5, "c2", "m1").tool_calls]
    )
    with perdure.open(tmp_path / "agents.db") as store:
        app = graph(store, asked)

        def give(what: Any, where: Any) -> None:
            if is_awaited:
                asyncio.run(app.ainvoke(what, where, durability="sync"))
            else:
                app.invoke(what, where, durability="sync")

        give({"messages": [HumanMessage("pay twice")]}, config())
        give(None, next(each.config for each in app.get_state_history(config()) if each.next == ("tools",)))

        assert PAID == [5, 5]
        assert answers(app) == [("success", "paid 5")] * 2


@pytest.mark.parametrize(("second", "paid"), [(5, []), (7, [5, 7])])
def test_equal_calls_of_one_answer_under_one_id_are_refused(
    tmp_path: Path, second: int, paid: list[int]
) -> None:
    """The result of one would be given for both; other arguments make it another call."""
    asked = [*ask(5, "c1", "m1").tool_calls, *ask(second, "c1", "m1").tool_calls]
    with perdure.open(tmp_path / "agents.db") as store:
        app = graph(store, AIMessage("", id="m1", tool_calls=asked))
        app.invoke({"messages": [HumanMessage("pay twice")]}, config(), durability="sync")

        assert sorted(PAID) == paid
        assert [status for status, _ in answers(app)] == ["success" if paid else "error"] * 2


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_graph_that_is_resumed_twice_at_once_gets_the_result(tmp_path: Path, is_awaited: bool) -> None:
    """Whichever run is stored: told that nothing was done, its model would ask for the payment again."""
    asked = AIMessage("", id="m1", tool_calls=[{"name": "pay_if_allowed", "args": {"euro": 5}, "id": "c1"}])
    with perdure.open(tmp_path / "agents.db") as store:
        app = graph(store, asked)
        app.invoke({"messages": [HumanMessage("pay")]}, config(), durability="sync")

        def resume() -> None:
            with contextlib.suppress(Conflict):  # the other run was faster
                if is_awaited:
                    asyncio.run(app.ainvoke(Command(resume="yes"), config(), durability="sync"))
                else:
                    app.invoke(Command(resume="yes"), config(), durability="sync")

        both = [threading.Thread(target=resume) for _ in range(2)]
        for each in both:
            each.start()
        for each in both:
            each.join()

        assert PAID == [5]
        assert answers(app) == [("success", "yes: paid 5")]


def test_an_error_is_told_and_the_same_call_under_a_new_id_is_stopped(tmp_path: Path) -> None:
    """Nobody knows whether the payment was made."""
    with perdure.open(tmp_path / "agents.db") as store:
        app = graph(store, ask(-1, "c1", "m1"), ask(-1, "c2", "m2"))
        with pytest.raises(ConnectionError):
            app.invoke({"messages": [HumanMessage("pay")]}, config(), durability="sync")
        app.invoke({"messages": [HumanMessage("again")]}, config(), durability="sync")

        assert PAID == [-1]
        assert [status for status, _ in answers(app)] == ["error"]
        assert {call.state for call in store.thread("t").calls()} == {"unknown", "denied"}


def test_arguments_that_the_tool_refuses_are_no_call(tmp_path: Path) -> None:
    """LangGraph tells the model; the ledger has nothing."""
    with perdure.open(tmp_path / "agents.db") as store:
        wrong = AIMessage("", tool_calls=[{"name": "pay", "args": {"euro": "many"}, "id": "c"}])
        other = AIMessage("", tool_calls=[{"name": "no_such_tool", "args": {}, "id": "d"}])
        app = graph(store, wrong, other)
        for text in ("one", "two"):
            app.invoke({"messages": [HumanMessage(text)]}, config(), durability="sync")

        assert [status for status, _ in answers(app)] == ["error", "error"]
        assert store.thread("t").calls() == []


class Amount(BaseModel):
    """Arguments that the tool's own schema reads, and the schema that the model is shown refuses."""

    euro: int = Field(alias="amount")

    @field_validator("euro", mode="before")
    @classmethod
    def number_of(cls, given: Any) -> Any:
        """Accept an amount with its currency."""
        return str(given).partition(" ")[0]


@tool(args_schema=Amount)
def transfer(euro: int, state: Annotated[Any, InjectedState]) -> str:
    """Transfer."""
    PAID.append(euro)
    return f"transferred {euro}"


class Deposit(BaseTool):
    """A tool without a schema: it is called with whatever it is given."""

    name: str = "deposit"
    description: str = "Deposit."

    def _run(self, euro: int) -> str:
        PAID.append(euro)
        return f"deposited {euro}"


@pytest.mark.parametrize(
    ("name", "arguments", "paid"),
    [
        ("transfer", {"amount": "5 EUR"}, 1),
        ("transfer", {"amount": "much"}, 0),
        ("deposit", {"euro": "five"}, 1),
    ],
)
def test_a_tool_that_runs_is_in_the_ledger_whatever_its_schema(
    tmp_path: Path, name: str, arguments: dict[str, Any], paid: int
) -> None:
    """The tool's own schema decides whether it runs, not the one that the model is shown; a refusal is no call."""
    asked = AIMessage("", id="m1", tool_calls=[{"name": name, "args": arguments, "id": "c1"}])
    with perdure.open(tmp_path / "agents.db") as store:
        built: Any = StateGraph(MessagesState)
        built.add_node(
            "tools", ToolNode([transfer, Deposit()], wrap_tool_call=ToolGuard(store).wrap_tool_call)
        )
        built.add_edge(START, "tools")
        for _ in range(2):
            built.compile().invoke({"messages": [asked]}, config())

        assert len(PAID) == paid
        states = [call.state for thread in store.threads() for call in thread.calls()]
        assert states == ["succeeded"] * paid


def test_a_call_that_was_made_on_another_branch_is_not_made_again(tmp_path: Path) -> None:
    """Going on from before the payment, the model asks for the same payment; the branch is durable before the tool runs."""
    with perdure.open(tmp_path / "agents.db") as store:
        app = graph(store, ask(5, "c1", "m1"), ask(5, "c9", "m9"))
        app.invoke({"messages": [HumanMessage("pay")]}, config(), durability="sync")
        first = list(app.get_state_history(config()))[-1]
        app.invoke({"messages": [HumanMessage("pay")]}, first.config, durability="sync")

        assert PAID == [5]


def test_a_run_that_lost_a_race_does_not_pay_what_the_winner_paid(tmp_path: Path) -> None:
    """Its model sees nothing of the other payment; what it pays itself is in the ledger of its branch."""

    class RacingSaver(Saver):
        """Lets another run finish between the reading and the writing of this one."""

        others: ClassVar[list[Any]] = []

        def get_tuple(self, config: Any) -> Any:
            found = super().get_tuple(config)
            if self.others:
                self.others.pop()()
            return found

    with perdure.open(tmp_path / "agents.db") as store:
        saver = RacingSaver(store, on_conflict="branch")
        app = graph(store, ask(5, "c1", "m1"), ask(5, "c2", "m2"), saver=saver)

        def run() -> Any:
            return app.invoke({"messages": [HumanMessage("pay")]}, config(), durability="sync")

        saver.others.append(run)
        lost = run()

        assert PAID == [5]
        assert [each.status for each in lost["messages"] if each.type == "tool"] == ["error"]
        assert sorted(call.state for call in store.thread("t").calls()) == ["denied", "succeeded"]
        assert answers(app) == [("success", "paid 5")]
        assert store.verify().ok


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_copy_does_not_pay_what_its_original_goes_on_to_pay(tmp_path: Path, is_awaited: bool) -> None:
    """Until a person releases the thread; a new input to the copy is new work."""

    def go_on(app: Any, given: Any = None) -> None:
        if is_awaited:
            asyncio.run(app.ainvoke(given, config(), durability="sync"))
        else:
            app.invoke(given, config(), durability="sync")

    with perdure.open(tmp_path / "a.db") as store, perdure.open(tmp_path / "b.db") as other:
        original, copy = graph(store, ask(5, "c1", "m1")), graph(other, ask(7, "c2", "m2"))
        original.interrupt_before_nodes = ["tools"]
        go_on(original, {"messages": [HumanMessage("pay")]})
        store.copy_to(other)
        go_on(original)
        with raises(Held, "held", thread="t"):
            go_on(copy)
        assert PAID == [5]

        go_on(copy, {"messages": [HumanMessage("pay seven")]})
        assert PAID == [5, 7]


def test_a_copy_that_was_released_goes_on(tmp_path: Path) -> None:
    """The control: a person has decided that the original does not."""
    with perdure.open(tmp_path / "a.db") as store, perdure.open(tmp_path / "b.db") as other:
        original, copy = graph(store, ask(5, "c1", "m1")), graph(other)
        original.interrupt_before_nodes = ["tools"]
        original.invoke({"messages": [HumanMessage("pay")]}, config(), durability="sync")
        store.copy_to(other)
        other.release("t", by="ann")
        copy.invoke(None, config(), durability="sync")

        assert PAID == [5]
        assert answers(copy) == [("success", "paid 5")]


@pytest.mark.parametrize("message", ["m1", None])
def test_conversations_that_share_a_thread_do_not_share_results(tmp_path: Path, message: str | None) -> None:
    """Whatever ids their models give, and with messages that have none; asked for again, each is answered from the ledger."""
    with perdure.open(tmp_path / "agents.db") as store:
        guard = ToolGuard(store, {"pay": "financial"}, thread="payments")
        app = graph(store, *[ask(5, "call_1", message)] * 3, guard=guard, state=PlainState)
        for name in ("ann", "bob", "cy"):
            app.invoke({"messages": [HumanMessage("pay")]}, config(name), durability="sync")
            before = next(each for each in app.get_state_history(config(name)) if each.next == ("tools",))
            app.invoke(None, before.config, durability="sync")

        assert PAID == [5, 5, 5]
        assert store.verify().ok


def test_a_call_id_that_a_model_uses_in_each_turn_is_another_call(tmp_path: Path) -> None:
    """Also if its messages have no ids: a job that polls gets what is there now."""
    with perdure.open(tmp_path / "agents.db") as store:
        guard = ToolGuard(store, {"pay": "read_only"})
        app = graph(store, *[ask(5, "call_1", None)] * 3, guard=guard, state=PlainState)
        for _ in range(3):
            app.invoke({"messages": [HumanMessage("poll")]}, config(), durability="sync")

        assert PAID == [5, 5, 5]


class ChatState(TypedDict):
    """A state whose messages have another name."""

    chat: Annotated[list[Any], add_messages]


class ChatModel(BaseModel):
    """The same as a model."""

    chat: Annotated[list[Any], add_messages] = []


@pytest.mark.parametrize("state", [ChatState, ChatModel])
@pytest.mark.parametrize("is_sent", [False, True])
def test_a_call_id_in_each_turn_is_another_call_wherever_its_message_is(
    tmp_path: Path, state: Any, is_sent: bool
) -> None:
    """Under another name in the state, or sent to the tools without it; a step that is made again pays nothing."""
    with perdure.open(tmp_path / "agents.db") as store:
        said = iter([ask(5, "call_1", f"m{number}") for number in range(3)])
        built: Any = StateGraph(state)
        built.add_node("model", lambda _: {"chat": [next(said)]})
        node = ToolNode([pay], messages_key="chat", wrap_tool_call=ToolGuard(store).wrap_tool_call)
        built.add_node("tools", node)
        built.add_edge(START, "model")

        def sent(given: Any) -> Any:
            messages = given["chat"] if isinstance(given, dict) else given.chat
            return [Send("tools", messages[-1].tool_calls)] if is_sent else "tools"

        built.add_conditional_edges("model", sent, ["tools"])
        app = built.compile(checkpointer=Saver(store))
        for _ in range(3):
            app.invoke({"chat": [HumanMessage("pay again")]}, config(), durability="sync")
        before = next(each for each in app.get_state_history(config()) if each.next == ("tools",))
        app.invoke(None, before.config, durability="sync")

        assert PAID == [5, 5, 5]


PAUSES = "may I?"


@tool
def pay_if_allowed(euro: int) -> str:
    """Pay once a person agrees."""
    answer = interrupt(PAUSES)
    PAID.append(euro)
    return f"{answer}: paid {euro}"


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_tool_that_asks_a_person_runs_once_it_is_allowed(tmp_path: Path, is_awaited: bool) -> None:
    """The pause is no unknown outcome: the graph stops, and the call is made when it goes on."""
    asked = AIMessage("", id="m1", tool_calls=[{"name": "pay_if_allowed", "args": {"euro": 5}, "id": "c1"}])
    with perdure.open(tmp_path / "agents.db") as store:
        app = graph(store, asked)

        def give(what: Any) -> Any:
            if is_awaited:
                return asyncio.run(app.ainvoke(what, config(), durability="sync"))
            return app.invoke(what, config(), durability="sync")

        paused = give({"messages": [HumanMessage("pay")]})
        assert [each.value for each in paused["__interrupt__"]] == [PAUSES]
        assert PAID == []
        give(Command(resume="yes"))

        assert PAID == [5]
        assert answers(app) == [("success", "yes: paid 5")]


@pytest.mark.parametrize("durability", [None, "async", "exit"])
@pytest.mark.parametrize("is_awaited", [False, True])
def test_an_effect_needs_a_message_that_is_durable(tmp_path: Path, durability: Any, is_awaited: bool) -> None:
    """Else a crash could make the model ask again under a new id; what only reads is called."""
    with perdure.open(tmp_path / "agents.db") as store:
        app, given = graph(store, ask(5, "c1", "m1")), {"messages": [HumanMessage("pay")]}
        with raises(Invalid, "durability_not_sync", tool="pay", durability=durability or "async"):
            if is_awaited:
                asyncio.run(app.ainvoke(given, config(), durability=durability))
            else:
                app.invoke(given, config(), durability=durability)
        assert PAID == []

        reading = graph(store, ask(5, "c1", "m1"), guard=ToolGuard(store, {"pay": "read_only"}))
        reading.invoke(given, config("other"), durability=durability)
        assert PAID == [5]


def test_an_effect_needs_a_durable_message_with_any_saver(tmp_path: Path) -> None:
    """After a crash their graphs go on too; a graph whose checkpoints end with the process does not, which is the control."""
    given = {"messages": [HumanMessage("pay")]}
    with (
        perdure.open(tmp_path / "agents.db") as store,
        SqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as saver,
    ):
        app = graph(store, ask(5, "c1", "m1"), saver=saver)
        with raises(Invalid, "durability_not_sync", tool="pay", durability="async"):
            app.invoke(given, config())
        assert PAID == []

        graph(store, ask(5, "c1", "m1"), saver=InMemorySaver()).invoke(given, config())
        assert PAID == [5]


def test_an_agent_takes_the_guard_as_a_middleware(tmp_path: Path) -> None:
    """Of `create_agent`, blocking and awaited."""

    class Model(GenericFakeChatModel):
        """A model that takes tools."""

        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

    with perdure.open(tmp_path / "agents.db") as store:
        model = Model(
            messages=iter([ask(5, "c1", "m1"), AIMessage("done"), ask(7, "c2", "m2"), AIMessage("done")])
        )
        agent = create_agent(
            model, [pay], middleware=[ToolGuard(store).middleware()], checkpointer=Saver(store)
        )
        agent.invoke({"messages": [HumanMessage("pay")]}, config(), durability="sync")
        asyncio.run(agent.ainvoke({"messages": [HumanMessage("more")]}, config(), durability="sync"))

        assert PAID == [5, 7]
        assert [call.state for call in store.thread("t").calls()] == ["succeeded", "succeeded"]


KILLED = """
import operator, os, signal, sys
from typing import Annotated, TypedDict
import perdure
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from perdure.integrations.langgraph import Saver, ToolGuard
path, effects, how = sys.argv[1:4]
class PlainState(TypedDict):
    messages: Annotated[list, operator.add]
@tool
def pay(euro: int) -> str:
    "Pay."
    with open(effects, "a") as file:
        file.write("paid\\n"); file.flush(); os.fsync(file.fileno())
    if len(open(effects).readlines()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"
id = None if how == "guarded without ids" else "m1"
asked = AIMessage("", id=id, tool_calls=[{"name": "pay", "args": {"euro": 5}, "id": "c1"}])
with perdure.open(path) as store:
    guard = {} if how == "unguarded" else {"wrap_tool_call": ToolGuard(store).wrap_tool_call}
    graph = StateGraph(PlainState)
    graph.add_node("model", lambda state: {"messages": [asked]})
    graph.add_node("tools", ToolNode([pay], **guard))
    graph.add_edge(START, "model"); graph.add_edge("model", "tools")
    app = graph.compile(checkpointer=Saver(store))
    config = {"configurable": {"thread_id": "t"}}
    started = app.get_state(config).values
    app.invoke(None if started else {"messages": [HumanMessage("pay")]}, config, durability="sync")
    print(app.get_state(config).values["messages"][-1].content)
    print(sorted(call.state for call in store.thread("t").calls()))
"""


@pytest.mark.parametrize(("how", "paid"), [("guarded", 1), ("guarded without ids", 1), ("unguarded", 2)])
def test_a_kill_after_the_effect_and_a_resume(tmp_path: Path, how: str, paid: int) -> None:
    """The effect happens once and the model is told that its outcome is unknown; without the guard, the control, twice."""
    effects = tmp_path / "effects"
    command = ["-c", KILLED, str(tmp_path / "a.db"), str(effects), how]
    killed = own().run(command)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = own().run(command, check=True)

    assert effects.read_text().count("paid") == paid
    assert ("['unknown']" in resumed.stdout) == (how != "unguarded")
