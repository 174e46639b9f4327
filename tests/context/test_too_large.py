"""What is too large: a message, a turn, a conversation.  It is shown in part, it says so, and nothing is lost."""

from __future__ import annotations

from itertools import pairwise

import perdure
from perdure import Agent, ContextLimits, Store
from perdure.context.render.conversation import shortened
from perdure.model.context import Context
from perdure.providers import tokens
from perdure.testing import Script, say, use
from tests.context.lines import answer, asked, asking, check_pairs, planner, questions, script_of, user

SMALL = ContextLimits(window=4_000, turns=3)
ROOM = 3_000  # a quarter is kept for the answer
MARK = "are left out here by Perdure"


def most(context: Context) -> int:
    """How many tokens it may have, if the estimate is off by its margin."""
    return tokens.count(context, model="script:test").most


def test_a_message_larger_than_the_window_is_cut_and_says_so(store: Store) -> None:
    """Its beginning and its end are shown, with a mark between them, and the plan names the cut."""
    script = Script(say("That is long."))
    thread = store.thread("t", agent=Agent("a", backend=script, context=SMALL))
    thread.run("Begin " + "rain " * 20_000 + "end of it")

    shown = script.contexts[0].messages[-1].text
    assert shown.startswith("Begin rain")
    assert shown.endswith("end of it")
    assert MARK in shown
    assert most(script.contexts[0]) <= ROOM
    assert any("are cut" in item.why for item in thread.plan().items)
    assert thread.transcript()[0].text.count("rain") == 20_000


def test_a_message_that_fits_is_not_cut(store: Store) -> None:
    """The control: no mark where nothing is missing."""
    script = Script(say("Short."))
    store.thread("t", agent=Agent("a", backend=script, context=SMALL)).run("Begin " + "rain " * 200)

    assert MARK not in script.contexts[0].messages[-1].text


def test_a_result_larger_than_the_window_is_cut_in_its_pair(store: Store) -> None:
    """The call stays with its result, which says how much is missing."""

    @perdure.tool(effect="read_only")
    def read() -> str:
        """Read a lot."""
        return "rain " * 3_500  # what the artifact's preview lets through, more or less

    script = Script(use("read"), say("Read."))
    store.thread("t", agent=Agent("a", backend=script, tools=[read], context=SMALL)).run("Read it.")

    last = script.contexts[-1]
    check_pairs(last.messages)
    assert last.messages[0].text == "Read it."
    assert most(last) <= ROOM


def test_a_turn_of_very_many_calls_keeps_its_input_and_its_last_calls(store: Store) -> None:
    """The run goes on past what a window holds; what was asked for stays in sight."""

    @perdure.tool(effect="read_only")
    def look(number: int) -> str:
        """Look a number up."""
        return f"Number {number}: " + "figures " * 60

    steps = [use("look", number=number) for number in range(60)]
    script = Script(*steps, say("Done."))
    agent = Agent("a", backend=script, tools=[look], context=SMALL, stop=perdure.Stop(steps=100))
    result = store.thread("t", agent=agent).run("Look at all the numbers, one by one.")

    assert result.text == "Done."
    assert len(script.contexts) == 61
    for context in script.contexts:
        check_pairs(context.messages)
        assert any(message.text == "Look at all the numbers, one by one." for message in context.messages)
        assert most(context) <= ROOM
    assert "Number 59" in str(list(script.contexts[-1].messages))


def test_an_input_larger_than_the_window_stays_in_sight_through_many_calls(store: Store) -> None:
    """It is cut, and cut again to make room, but its beginning and its end stay."""

    @perdure.tool(effect="read_only")
    def look(number: int) -> str:
        """Look a number up."""
        return f"Number {number}: " + "figures " * 60

    script = Script(*(use("look", number=number) for number in range(25)), say("Done."))
    agent = Agent("a", backend=script, tools=[look], context=SMALL, stop=perdure.Stop(steps=100))
    thread = store.thread("t", agent=agent)
    thread.run("Look at these. " + "rain " * 10_000 + "That was all.")

    for context in script.contexts:
        check_pairs(context.messages)
        inputs = [message.text for message in context.messages if message.text.startswith("Look at these.")]
        assert [text.endswith("That was all.") for text in inputs] == [True]
        assert most(context) <= ROOM
    commits = [entry.commit for entry in thread.transcript() if entry.role == "assistant"]
    assert [thread.at(commit).context() for commit in commits] == script.contexts


def test_what_is_said_to_a_run_is_heard_though_the_window_is_full(store: Store) -> None:
    """A message that waits to be written is in the context that is drawn anew."""
    thread = asked(store, planner(*questions(8, words=150), limits=SMALL), 8)

    @perdure.tool(effect="read_only")
    def read() -> str:
        """Read a lot, while somebody speaks."""
        thread.steer("Stop after this.")
        return "rain " * 800

    script = Script(use("read"), say("I stop."), say("Yes."), backend="script:planner")
    going = store.thread("trip", agent=Agent("planner", backend=script, tools=[read], context=SMALL))
    going.run("Read it.")

    assert "Stop after this." in [message.text for message in script.contexts[1].messages]
    assert all(most(context) <= ROOM for context in script.contexts)


def test_an_outgrown_conversation_begins_with_where_it_stands(store: Store) -> None:
    """A checkpoint is derived on the spot; it is no commit, and the whole transcript is still there."""
    agent = planner(*questions(20, words=150), limits=SMALL)
    thread = asked(store, agent, 20)
    last = script_of(agent).contexts[-1]

    assert last.messages[0].text.startswith("[Perdure note] Where this conversation stands")
    assert thread.checkpoints() == []
    assert len(thread.turns()) == 20
    assert all(most(context) <= ROOM for context in script_of(agent).contexts)


def test_the_beginning_of_a_context_stays_as_long_as_it_can(store: Store) -> None:
    """The window does not slide with every step: most steps begin as the one before."""
    agent = planner(*questions(30), limits=ContextLimits(window=8_000, turns=3))
    asked(store, agent, 30)
    contexts = script_of(agent).contexts

    same = sum(
        1
        for one, next in pairwise(contexts)
        if list(next.messages)[: len(one.messages)] == list(one.messages)
    )

    assert same > len(contexts) * 0.8


def test_an_id_that_names_two_calls_does_not_make_it_too_large(store: Store) -> None:
    """Where the first is left out the second is shown with its result, and counts."""
    thread = store.thread("t", agent=Agent("a", context=ContextLimits(window=3_000, turns=2)))
    for message in (
        user("One."),
        asking("a"),
        user("Two. " + "rain " * 900),
        asking("a"),
        answer(("a", "rain " * 900)),
    ):
        with thread.change("said") as change:
            change.add(message)

    plan = thread.plan("openai-chat:gpt-5.6")

    assert plan.fits
    check_pairs(plan.context.messages)


def test_a_cut_message_keeps_what_it_is() -> None:
    """Roles, calls and results stay; only texts are cut, and arguments that are too long say so as JSON."""
    asks = asking("a" * 100, text="t" * 100)
    long = shortened(asks, 40)

    assert (long.role, len(long.tool_calls), MARK in long.text) == ("assistant", 1, True)
    assert long.tool_calls[0].arguments == {"perdure_left_out": "113 characters"}
    assert MARK in shortened(answer(("a", "r" * 100)), 40).tool_results[0].content[0].text  # pyright: ignore[reportAttributeAccessIssue]
    assert shortened(user("short"), 40) == user("short")
