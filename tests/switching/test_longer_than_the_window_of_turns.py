"""A thread longer than the recent window, which would fit whole, is shown by its recent turns and the checkpoint.

Older turns are shown only where they are needed, and the plan says which, and why.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perdure
from perdure import Agent, ContextLimits, Store, Thread
from perdure.context.plan import Plan
from perdure.testing import Script, say, use
from tests.context.lines import BACKENDS, asked, check_pairs, check_valid, planner, questions, script_of

NEW = "anthropic:claude-sonnet-5-5"


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store."""
    with perdure.open("memory:") as opened:
        yield opened


def inputs(plan: Plan) -> list[str]:
    """The questions that are shown."""
    texts = [message.text for message in plan.context.messages if message.role == "user"]
    return [text.partition(":")[0] for text in texts if text.startswith("Question")]


def test_the_thread_would_fit_whole(store: Store) -> None:
    """The control: nothing is left out for want of room."""
    thread = asked(store, planner(*questions(30)), 30)

    whole, shown = thread.plan(), thread.plan(NEW)

    assert len(inputs(whole)) == 30
    assert whole.tokens < (shown.budget or 0) / 4
    assert not [item for item in whole.items if not item.included]


def test_the_recent_turns_and_the_checkpoint_are_shown(store: Store) -> None:
    """The last twelve turns, the checkpoint before them, and no other."""
    thread = asked(store, planner(*questions(30)), 30)

    plan = thread.plan(NEW)

    assert inputs(plan) == [f"Question {at}" for at in range(18, 30)]
    assert plan.context.messages[0].text.startswith("[Perdure note] Where this conversation stands")
    assert [item.what for item in plan.items if not item.included] == ["turns 1–18, the rest"]
    assert plan.of(2)[0].included


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_request_is_valid_everywhere(store: Store, backend: str) -> None:
    """Calls before the switch are told, not replayed, in every format."""
    thread = asked(store, planner(*questions(16)), 16)

    plan = thread.plan(backend)

    check_valid(thread, backend)
    assert not [call for message in plan.context.messages for call in message.tool_calls]
    assert "the agent called `search`" in "\n".join(message.text for message in plan.context.messages)


def test_how_many_turns_is_the_agent_s_to_say(store: Store) -> None:
    """`ContextLimits(turns=3)` shows three."""
    thread = asked(store, planner(*questions(8), limits=ContextLimits(turns=3)), 8)

    assert inputs(thread.plan(NEW)) == ["Question 5", "Question 6", "Question 7"]


def test_after_the_switch_runs_are_shown_the_same(store: Store) -> None:
    """What was planned is what the new backend gets; turns since the switch stay, with their calls as pairs."""
    thread = asked(store, planner(*questions(20)), 20)
    new = Script(use("search", query="hotel"), say("Found."), say("Yes."), backend=NEW)
    thread.switch(new)
    thread.run("Question 20: and a hotel?")
    thread.run("Question 21: sure?")

    last = new.contexts[-1]
    check_pairs(last.messages)
    shown = [
        message.text.partition(":")[0] for message in last.messages if message.text.startswith("Question")
    ]
    assert shown == [f"Question {at}" for at in range(8, 22)]
    assert [call.name for message in last.messages for call in message.tool_calls] == ["search"]


def test_an_open_call_brings_its_turn_back(store: Store) -> None:
    """A call that waits for approval is shown with its turn's input, however old; the plan says why."""

    @perdure.tool(effect="financial", ask=True)
    def pay(amount: int) -> str:
        return f"{amount} is paid."

    script = Script(use("pay", amount=77), *(say(f"Answer {at}") for at in range(20)))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[pay]))
    thread.run("Question pay: pay 77, please")
    for at in range(20):
        thread.run(f"Question {at}: go on")

    plan = thread.plan(NEW)

    assert "Question pay" in inputs(plan)
    needed = [item for item in plan.of(7) if item.included]
    assert [item.why for item in needed] == ["the call to pay waits for approval"]
    assert needed[0].what == "turn 1, in part"


def test_a_turn_that_the_task_refers_to_comes_back(store: Store) -> None:
    """`turn:n` in the task's state is a reason; the plan says so."""
    thread = asked(store, planner(*questions(20)), 20)
    thread.put("/task/current.json", "Compare with what was found in turn:3")

    plan = thread.plan(NEW)

    assert inputs(plan)[0] == "Question 2"
    assert "the task refers to turn:3" in [item.why for item in plan.of(7) if item.included]


def test_without_a_reason_it_stays_out(store: Store) -> None:
    """The control: the same task without the reference brings nothing back."""
    thread = asked(store, planner(*questions(20)), 20)
    thread.put("/task/current.json", "Compare with what was found")

    assert [item for item in thread.plan(NEW).of(7) if item.included] == []


def test_a_script_finds_its_place_when_turns_are_no_longer_shown(store: Store) -> None:
    """The window slides; where a scripted model stands follows from the line, not from what is left to see."""
    agent = planner(*questions(20, words=150), limits=ContextLimits(window=4_000, turns=3))

    thread = asked(store, agent, 20)

    assert [turn.text.partition(":")[0] for turn in thread.turns()] == [f"Answer {at}" for at in range(20)]
    assert len(script_of(agent).contexts[-1].messages) < 20


def test_undoing_the_switch_shows_everything_again(store: Store) -> None:
    """A switch is a commit; without it the line is what it was."""
    thread = asked(store, planner(*questions(20)), 20)
    before = thread.plan().context
    thread.switch(Script(say("Hi."), backend=NEW))

    thread.undo()

    assert thread.plan().context == before


def test_a_fork_before_the_switch_is_shown_whole(store: Store) -> None:
    """Each line is shown by its own history."""
    thread = asked(store, planner(*questions(15)), 15)
    at = thread.head.commit
    thread.switch(Script(say("Hi."), backend=NEW))
    there: Thread = thread.fork("before", at=at)

    assert len(inputs(there.plan())) == 15
    assert len(inputs(thread.plan())) == 12
