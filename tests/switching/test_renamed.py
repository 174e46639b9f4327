"""Under a vendor's name: calls that were brought in are found by what the vendor was told to call a tool."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import perdure
from perdure import Agent, Store, Thread, Tool
from perdure.providers import registry
from perdure.testing import Script, say, use

B = "anthropic:claude-sonnet-5-5"
LONG = "bank/" + "very-" * 20 + "long"


@pytest.fixture
def paid() -> Counter[str]:
    """Who was paid how often."""
    return Counter()


def payment(paid: Counter[str], name: str = "bank.pay/out", *, effect: Any = "financial") -> Tool:
    """A tool of that name that pays somebody."""

    @perdure.tool(name=name, effect=effect)
    def pay(to: str) -> str:
        """Pay somebody."""
        paid[to] += 1
        return f"paid {to}"

    return pay


def payer(*tools: Tool, to: str = "ann") -> Agent:
    """An agent whose model calls its first tool at once, as often as it is run."""
    turns = [use(tools[0].name, to=to), say("Paid.")] * 4 if tools else []
    return Agent("payer", backend=Script(*turns, backend=B), tools=list(tools))


def told(name: str) -> list[dict[str, Any]]:
    """A conversation in Anthropic's format in which Ann was paid by a tool of that name."""
    return [
        {"role": "user", "content": "Pay Ann"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": name, "input": {"to": "ann"}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "paid ann"}],
        },
    ]


def brought_in(store: Store, agent: Agent, name: str, *, known: bool = True) -> Thread:
    """A thread with that conversation; `known`: whoever brought it in had the agent's tools."""
    thread = store.thread("rent", agent=agent if known else agent.name)
    thread.add(told(name), api="anthropic-messages")
    return store.thread("rent", agent=agent)


def exported(store: Store, agent: Agent, api: str) -> dict[str, Any]:
    """A request in which the agent's tool was called, in the format of a vendor."""
    thread = store.thread("there", agent=agent)
    thread.run("Pay Ann")
    return thread.export(api, model="m").body


@pytest.mark.parametrize("api", registry.APIS)
@pytest.mark.parametrize("name", ["bank.pay/out", LONG])
def test_a_call_goes_by_the_tools_own_name_and_effect(
    store: Store, paid: Counter[str], api: str, name: str
) -> None:
    """Characters that a vendor does not take, and names that are too long for it, in every format."""
    agent = payer(payment(paid, name))
    request = exported(store, agent, api)
    assert name not in str(request)

    thread = store.thread("here", agent=agent)
    thread.add(request, api=api)

    (call,) = thread.calls()
    assert (call.tool, call.effect) == (name, "financial")
    (said,) = [call for entry in thread.transcript() for call in entry.message.tool_calls]
    assert said.name == name
    assert store.verify().ok


@pytest.mark.parametrize("api", registry.APIS)
def test_without_the_tool_it_keeps_the_name_that_it_came_with(
    store: Store, paid: Counter[str], api: str
) -> None:
    """Control: the name is found by the agent's tools, and by nothing else."""
    request = exported(store, payer(payment(paid)), api)

    thread = store.thread("here", agent=payer())
    thread.add(request, api=api)

    (call,) = thread.calls()
    assert call.tool != "bank.pay/out"
    assert call.effect == "external_write"


@pytest.mark.parametrize("known", [True, False])
def test_the_guard_asks_before_it_is_sent_again(store: Store, paid: Counter[str], *, known: bool) -> None:
    """The tool known at the import, or only later."""
    thread = brought_in(store, payer(payment(paid)), "bank_pay_out", known=known)

    asked = thread.run("Did Ann get her rent?")

    assert asked.status == "waiting"
    assert [ticket.action for ticket in asked.approvals] == ["repeat"]
    assert paid == {}
    assert store.verify().ok


@pytest.mark.parametrize("known", [True, False])
def test_something_else_is_sent(store: Store, paid: Counter[str], *, known: bool) -> None:
    """Control: other arguments are no repeat."""
    thread = brought_in(store, payer(payment(paid), to="ben"), "bank_pay_out", known=known)

    assert thread.run("Pay Ben").status == "succeeded"
    assert paid == {"ben": 1}


@pytest.mark.parametrize("known", [True, False])
def test_a_name_that_two_tools_would_get_stays_as_it_came(
    store: Store, paid: Counter[str], *, known: bool
) -> None:
    """Nobody can tell which was meant."""
    agent = payer(payment(paid, "bank.pay"), payment(paid, "bank/pay"))
    thread = brought_in(store, agent, "bank_pay", known=known)

    assert [(call.tool, call.effect) for call in thread.calls()] == [("bank_pay", "external_write")]
    assert thread.run("Pay Ann").status == "succeeded"
    assert paid == {"ann": 1}


def test_two_long_names_that_begin_alike_stay_as_they_came(store: Store, paid: Counter[str]) -> None:
    """Shortened they are the same; the control with one of them is found."""
    one, other = payment(paid, LONG), payment(paid, f"{LONG}er")
    request = exported(store, payer(one), "openai-chat")

    alone, both = store.thread("alone", agent=payer(one)), store.thread("both", agent=payer(one, other))
    alone.add(request, api="openai-chat")
    both.add(request, api="openai-chat")

    assert [call.tool for call in alone.calls()] == [LONG]
    assert [call.tool for call in both.calls()] == [LONG.replace("/", "_")[:64]]


@pytest.mark.parametrize("known", [True, False])
def test_a_tool_that_has_the_name_is_meant_before_one_that_would_get_it(
    store: Store, paid: Counter[str], *, known: bool
) -> None:
    """What reads is taken for what reads, and the payment was never made."""
    agent = payer(payment(paid, "bank.pay"), payment(paid, "bank_pay", effect="read_only"))
    thread = brought_in(store, agent, "bank_pay", known=known)

    assert [call.tool for call in thread.calls()] == ["bank_pay"]
    assert thread.run("Pay Ann").status == "succeeded"
    assert paid == {"ann": 1}


def test_a_tool_of_the_request_is_the_agents_own(store: Store, paid: Counter[str]) -> None:
    """Under the vendor's name it is no loss; under another it is."""
    tool = payment(paid)
    thread = store.thread("rent", agent=payer(tool))
    mine = {"description": tool.description, "input_schema": dict(tool.parameters)}

    same = thread.add(
        {"messages": told("bank_pay_out"), "tools": [{"name": "bank_pay_out", **mine}]},
        api="anthropic-messages",
    )
    other = thread.add(
        {"messages": told("bank_pay_in"), "tools": [{"name": "bank_pay_in", **mine}]},
        api="anthropic-messages",
    )

    assert [loss.where for loss in same] == []
    assert [(loss.kind, loss.where) for loss in other] == [("dropped", "tools[0]")]


def test_the_same_import_is_the_same_whoever_has_the_tools(store: Store, paid: Counter[str]) -> None:
    """With the same op_id it is added once, though the tool was declared in between."""
    agent = payer(payment(paid))
    store.thread("rent", agent=agent.name).add(told("bank_pay_out"), api="anthropic-messages", op_id="once")

    thread = store.thread("rent", agent=agent)
    thread.add(told("bank_pay_out"), api="anthropic-messages", op_id="once")

    assert len(thread.calls()) == 1
