"""An export is the conversation as it is: an import of it adds nothing, and a call of unknown outcome stays one."""

from __future__ import annotations

import json
from typing import Any

import pytest

import perdure
from perdure import Store, Thread
from perdure.providers.registry import APIS
from perdure.providers.validator import check
from perdure.runtime.tools.result import explain
from perdure.testing import Script, say

CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ASKED = [
    {"role": "system", "content": "Be brief."},
    {"role": "assistant", "content": "Hello. "},
    {"role": "user", "content": "Is it raining"},
    {"role": "user", "content": "in Oslo?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
]
FINISHED = [
    *ASKED,
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    {"role": "assistant", "content": "Yes. "},
]
UNKNOWN = [*ASKED, {"role": "user", "content": "Well?"}, {"role": "assistant", "content": "I don't know."}]
# What a request that is sent to these has at its end.
ENDS = {"gemini-generate": "Continue.", "gemini-interactions": "Continue.", "mistral-chat": "prefix"}


@pytest.fixture
def store() -> Store:
    """A store in memory."""
    return perdure.open("memory:")


def imported(store: Store, given: Any, api: str = "openai-chat") -> Thread:
    """A new thread with a conversation of another program."""
    thread = store.thread(f"t{len(list(store.threads()))}", agent="guide")
    thread.add(given, api=api)
    return thread


def states(thread: Thread) -> list[str]:
    """The states of the calls of a thread."""
    return [call.state for call in thread.calls()]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("given", [FINISHED, UNKNOWN, ASKED], ids=["finished", "unknown", "open"])
def test_an_export_that_is_imported_again_adds_nothing(store: Store, api: str, given: list[Any]) -> None:
    """Nothing is put at its end, no messages are joined, and no result is taken for one of the call."""
    thread = imported(store, given)
    before = thread.head

    thread.add(thread.export(api).body, api=api, once=True)

    assert thread.head == before


@pytest.mark.parametrize("api", APIS)
def test_an_export_has_no_more_than_was_said(store: Store, api: str) -> None:
    """A new thread that is made of it has the same words, and what is sendable is valid."""
    thread = imported(store, FINISHED)

    made = imported(store, thread.export(api).body, api)

    assert [entry.text for entry in made.transcript()] == [entry.text for entry in thread.transcript()]
    sent = thread.export(api, model="gpt-5.6", sendable=True).body
    assert [each for each in check(sent, api) if each.level == "error"] == []


@pytest.mark.parametrize("api", ENDS)
def test_what_only_sending_needs_is_there_if_it_is_asked_for(store: Store, api: str) -> None:
    """The repair at the end is named then, and is not in the export otherwise."""
    thread = imported(store, FINISHED)

    kept, sent = thread.export(api), thread.export(api, sendable=True)

    assert ENDS[api] not in json.dumps(kept.body)
    assert ENDS[api] in json.dumps(sent.body)
    assert [loss.kind for loss in sent.losses if loss not in kept.losses] == ["repaired"]


@pytest.mark.parametrize("api", APIS)
def test_a_call_of_unknown_outcome_is_one_after_export_and_import(store: Store, api: str) -> None:
    """The sentence in the place of its result is named by both, and is no result."""
    thread = imported(store, UNKNOWN)
    exported = thread.export(api)
    made = store.thread("made", agent="guide")

    losses = made.add(exported.body, api=api)

    assert (states(thread), states(made)) == (["unknown"], ["unknown"])
    assert [loss.kind for loss in exported.losses if loss.what == "tool result"] == ["repaired"]
    assert [loss.kind for loss in losses if loss.what == "tool result"] == ["converted"]
    assert [each.role for each in made.transcript()].count("tool") == 0


def test_a_backend_is_told_of_such_a_call_with_a_named_repair(store: Store) -> None:
    """`thread.render` lists it, as the export does."""
    rendered = imported(store, UNKNOWN).render("anthropic:claude-sonnet-5-5")

    assert [loss.what for loss in rendered.losses].count("tool result") == 1


@pytest.mark.parametrize("state", ["unknown", "needs_human"])
def test_what_a_run_says_of_an_unknown_outcome_is_no_result(store: Store, state: Any) -> None:
    """A run's own result message says it in words; an import leaves the call unknown, and knows the message again."""
    (words,) = explain(state, "the server was lost", "look")
    result = {"role": "tool", "tool_call_id": "call_1", "content": getattr(words, "text", "")}
    thread = imported(store, [*ASKED, result])
    before = thread.head

    thread.add([*ASKED, result], once=True, api="openai-chat")

    assert (states(thread), thread.head) == (["unknown"], before)


def test_a_result_that_only_quotes_such_a_sentence_is_a_result(store: Store) -> None:
    """Control: a tool may say more than that."""
    words = "Log: The outcome of this call is unknown. It may have happened. Do not simply repeat it."
    thread = imported(store, [*ASKED, {"role": "tool", "tool_call_id": "call_1", "content": words}])

    assert states(thread) == ["succeeded"]


@pytest.mark.parametrize("api", APIS)
def test_a_result_that_a_format_calls_an_error_in_words_is_the_same(store: Store, api: str) -> None:
    """Chat has no mark of an error: the word before the result is no edit."""
    failed = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "no such city"}
    thread = store.thread("failed", agent="guide")
    request = [
        {"role": "user", "content": "Is it raining?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
        {"role": "user", "content": [failed]},
    ]
    thread.add(request, api="anthropic-messages")
    before = thread.head

    thread.add(thread.export(api).body, api=api, once=True)

    assert (states(thread), thread.head) == (["failed"], before)


def test_an_export_of_what_a_run_said_is_as_it_is_too(store: Store) -> None:
    """Also where the last words are a model's own."""
    agent = perdure.Agent("guide", backend=Script(say("Yes.")), instructions="Be brief.")
    thread = store.thread("run", agent=agent)
    thread.run("Is it raining?")

    body = thread.export("gemini-generate").body

    assert [each["role"] for each in body["contents"]] == ["user", "model"]
