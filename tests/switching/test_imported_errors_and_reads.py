"""What is told of imported calls: an error is an error, and a tool that only reads may be called again."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import Agent, Store, Thread, Tool
from perdure.switching.checkpoint.document import DO_NOT_REPEAT
from perdure.testing import Script, say, use

B = "anthropic:claude-opus-4-5"


@perdure.tool(effect="external_write")
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


@perdure.tool(effect="read_only")
def look(to: str) -> str:
    """Look somebody up."""
    return f"{to} is there"


def saved(tool: str, *, error: bool) -> list[dict[str, Any]]:
    """A conversation in Anthropic's format with one call and its result."""
    asked = {"type": "tool_use", "id": "t1", "name": tool, "input": {"to": "ann"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "timed out" if error else "fine"}
    return [
        {"role": "user", "content": "Ann?"},
        {"role": "assistant", "content": [asked]},
        {"role": "user", "content": [{**result, "is_error": error}]},
        {"role": "assistant", "content": "So it is."},
    ]


def imported(store: Store, tool: Tool, *, known: bool, error: bool) -> Thread:
    """A thread with that conversation; `known`: the agent that imported it had the tool."""
    script = Script(use(tool.name, to="ann"), say("Done."), backend=B)
    agent = Agent("helper", backend=script, tools=[tool])
    thread = store.thread("t", agent=agent if known else "helper")
    thread.add(saved(tool.name, error=error), api="anthropic-messages")
    return store.thread("t", agent=agent)


def told_to(thread: Thread, backend: str) -> str:
    """Everything that a backend would be shown after a switch."""
    thread.switch(Script(backend=backend))
    return "\n".join(message.text for message in thread.plan(Script(backend=backend)).context.messages)


@pytest.mark.parametrize("known", [True, False])
def test_an_external_write_that_ended_in_an_error_has_failed_and_is_guarded(
    store: Store, *, known: bool
) -> None:
    """The record says what the source says; an error proves nothing, so the guard asks before it is made again."""
    thread = imported(store, pay, known=known, error=True)

    asked = thread.run("Pay Ann")

    assert thread.calls()[0].state == "failed"
    assert (asked.status, asked.approvals[0].action) == ("waiting", "repeat")
    assert store.verify().ok


@pytest.mark.parametrize("known", [True, False])
def test_an_error_is_told_as_one_and_never_as_done(store: Store, *, known: bool) -> None:
    """In the note, in the sentence and in the checkpoint's document."""
    thread = imported(store, pay, known=known, error=True)
    document = thread.checkpoint()

    words = told_to(thread, "openai:gpt-5.6")

    assert [call.state for call in document.calls] == ["failed"]
    assert "It did not succeed" in words or "ended in an error" in words
    assert "Already done" not in words
    assert "It is done" not in words
    assert DO_NOT_REPEAT not in words


def test_a_success_is_still_told_as_done(store: Store) -> None:
    """A control: what was paid is not to be paid again."""
    thread = imported(store, pay, known=True, error=False)

    words = told_to(thread, "openai:gpt-5.6")

    assert "Already done" in words or "It is done" in words


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("error", [True, False])
def test_a_call_to_a_tool_that_only_reads_may_be_repeated(store: Store, *, known: bool, error: bool) -> None:
    """Whether the tool was declared when the call was imported or only later."""
    thread = imported(store, look, known=known, error=error)

    words = told_to(thread, "openai:gpt-5.6")

    assert "look" in words
    assert "do not repeat it" not in words.lower()
    assert "do not simply repeat it" not in words.lower()


@pytest.mark.parametrize("known", [True, False])
def test_what_was_shown_of_such_a_call_can_be_made_again(store: Store, *, known: bool) -> None:
    """The recipe names the tool, so that the same context is made whatever is declared later."""
    thread = imported(store, look, known=known, error=False)
    script = Script(say("Hello."), backend="openai:gpt-5.6")
    thread.switch(script)
    thread.run("And now?")

    shown = store.thread("t", agent=Agent("helper")).shown()

    text = "\n".join(message.text for message in shown.plan.context.messages)
    assert "do not repeat it" not in text.lower()


def test_an_error_of_a_tool_that_only_reads_is_a_failure(store: Store) -> None:
    """Nothing can have happened."""
    thread = imported(store, look, known=True, error=True)

    assert [call.state for call in thread.calls()] == ["failed"]


def test_only_calls_of_this_store_are_to_be_settled(store: Store) -> None:
    """What a conversation from elsewhere leaves open is in its ledger, and in no list of work."""
    conversation = saved("pay", error=False)[:2]
    thread = store.thread("t", agent=Agent("helper", tools=[pay]))
    thread.add(conversation, api="anthropic-messages")

    assert [call.state for call in thread.calls()] == ["unknown"]
    assert store.unclear_calls() == []
    assert [name for name, _ in store.unclear_calls(imported=True)] == ["t"]


def test_a_result_that_comes_later_and_says_error_settles_the_call(store: Store) -> None:
    """The same as if both had come together."""
    thread = store.thread("t", agent=Agent("helper", tools=[pay]))
    thread.add(saved("pay", error=True)[:2], api="anthropic-messages")
    thread.add(saved("pay", error=True)[2:3], api="anthropic-messages")

    assert [call.state for call in thread.calls()] == ["failed"]
    assert store.verify().ok


def test_no_imported_call_can_be_run(store: Store) -> None:
    """Neither one that failed nor one without a result: no run has it, and no worker takes it."""
    agent = Agent("helper", backend=Script(say("Hello.")), tools=[pay])
    for number, conversation in enumerate((saved("pay", error=True), saved("pay", error=False)[:2])):
        store.thread(f"t{number}", agent=agent).add(conversation, api="anthropic-messages")

    assert store.work(agent, until_idle=True) == 0
    assert [call.state for each in ("t0", "t1") for call in store.thread(each).calls()] == [
        "failed",
        "unknown",
    ]
    assert [store.thread(each).runs() for each in ("t0", "t1")] == [[], []]
