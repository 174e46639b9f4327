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
def test_an_external_write_that_ended_in_an_error_is_unknown(store: Store, *, known: bool) -> None:
    """An error does not prove that nothing happened: the guard asks before it is made again."""
    thread = imported(store, pay, known=known, error=True)

    asked = thread.run("Pay Ann")

    assert thread.calls()[0].state == "unknown"
    assert (asked.status, asked.approvals[0].action) == ("waiting", "repeat")
    assert store.verify().ok


@pytest.mark.parametrize("known", [True, False])
def test_an_error_is_told_as_one_and_never_as_done(store: Store, *, known: bool) -> None:
    """In the note, in the sentence and in the checkpoint's document."""
    thread = imported(store, pay, known=known, error=True)
    document = thread.checkpoint()

    words = told_to(thread, "openai:gpt-5.6")

    assert [call.state for call in document.calls] == ["unknown"]
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
