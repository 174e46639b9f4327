"""A history fifty times the target's window gives a valid request within the budget, and the plan says what is missing.

The goal, the current task, pending approvals and effects that are done are always in.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

import perdure
from perdure import Agent, ContextLimits, Store, Thread
from perdure.context.plan import Plan
from perdure.providers import tokens
from perdure.testing import Script, say, use
from tests.context.lines import BACKENDS, check_pairs, check_valid

WINDOW = 6_000  # tokens
LONG = "It rains in Bergen, and the ferry leaves at nine from the old pier. " * 40  # some 600 tokens


@perdure.tool(effect="external_write")
def book(flight: str) -> str:
    """Book a flight."""
    return f"{flight} is booked as R-1."


@perdure.tool(effect="financial", ask=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"{amount} is paid."


def agent(*steps: object, backend: str = "script:old") -> Agent:
    """An agent with a small window."""
    return Agent(
        "planner",
        backend=Script(*steps, backend=backend),  # pyright: ignore[reportArgumentType]
        instructions="You plan trips.",
        tools=[book, pay],
        context=ContextLimits(window=WINDOW),
    )


@pytest.fixture(scope="module")
def thread() -> Iterator[Thread]:
    """The thread that has lived; nothing is written to its line."""
    with perdure.open("memory:") as store:
        yield lived(store)


def lived(store: Store) -> Thread:
    """A thread with a goal, a booking and a payment that waits, both long ago, and fifty windows of talk since."""
    first = agent(use("book", flight="SK1"), say("Booked."), use("pay", amount=77), say("It waits."))
    thread = store.thread("trip", agent=first)
    thread.put("/task/goal.json", "A week in Bergen for two")
    thread.put("/task/current.json", "Find a hotel near the old pier")
    thread.run("I want a week in Bergen for two. Book the flight SK1.")
    thread.run("Pay for it.")
    for at in range(0, 480, 12):
        with thread.change("talk") as change:
            for turn in range(at, at + 12):
                change.say("user", f"Question {turn}: {LONG}")
                change.say("assistant", f"Answer {turn}: {LONG}")
    return thread


@cache
def planned(thread: Thread, backend: str | None) -> Plan:
    """The plan for a backend, made once: nothing is written in between."""
    return thread.plan(backend)


def said(plan: Plan) -> str:
    """Everything that is shown, as one text."""
    return "\n".join(message.text for message in plan.context.messages)


def check_always_in(text: str) -> None:
    """What must never be missing."""
    assert "A week in Bergen for two" in text
    assert "Find a hotel near the old pier" in text
    assert "`book`" in text
    assert "do not repeat it" in text
    assert "`pay`" in text
    assert "77" in text


def test_the_history_is_fifty_times_the_window(thread: Thread) -> None:
    """The control: what is left out would not fit by far."""
    words = sum(tokens.count(entry.text, model="openai:gpt-5.6").count for entry in thread.transcript())

    assert words > 50 * WINDOW


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_request_is_valid_and_within_the_budget(thread: Thread, backend: str) -> None:
    """For another backend, in any format."""
    plan = planned(thread, backend)

    check_valid(thread, backend)
    check_pairs(plan.context.messages)
    assert plan.fits
    assert tokens.count(plan.context, model=backend).count <= WINDOW - plan.reserved


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_goal_task_approvals_and_effects_are_in(thread: Thread, backend: str | None) -> None:
    """For the backend that the line is on as for any other."""
    check_always_in(said(planned(thread, backend)))


def test_without_the_checkpoint_they_would_be_missing(thread: Thread) -> None:
    """The control: the turns that fit do not say any of it."""
    plan = planned(thread, "openai:gpt-5.6")
    turns = "\n".join(
        message.text for message in plan.context.messages if not message.text.startswith("[Perdure")
    )

    with pytest.raises(AssertionError):
        check_always_in(turns)


def test_the_plan_explains_what_was_left_out(thread: Thread) -> None:
    """One item says which turns are not shown, and why; what is shown adds up."""
    plan = planned(thread, "openai:gpt-5.6")
    left = [item for item in plan.items if not item.included]

    assert left
    assert all(item.why for item in left)
    assert any("the rest" in item.what for item in left)
    assert plan.tokens + plan.margin <= (plan.budget or 0)


def test_a_run_on_such_a_line_is_shown_as_much() -> None:
    """The same builder serves the ordinary turn: the conversation goes on."""
    script = Script(say("By the pier."), say("Still there."), backend="script:old")
    with perdure.open("memory:") as store:
        lived(store)
        going_on = store.thread("trip", agent=agent().on(script))
        going_on.run("So, which hotel?")
        going_on.run("Sure?")

    for context in script.contexts:
        check_pairs(context.messages)
        text = "\n".join(message.text for message in context.messages)
        check_always_in(text)
        assert tokens.count(context, model="script:old").most <= WINDOW - WINDOW // 4
    assert "Sure?" in script.contexts[1].messages[-1].text


def test_nothing_is_written_by_planning(thread: Thread) -> None:
    """A plan is a view: the head stands where it stood, and so does the ledger."""
    before = thread.head, thread.log(limit=1), len(thread.calls())

    thread.plan("openai:gpt-5.6")
    thread.render("anthropic:claude-sonnet-5-5")

    assert (thread.head, thread.log(limit=1), len(thread.calls())) == before
