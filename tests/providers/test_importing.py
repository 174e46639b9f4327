"""Importing keeps what was said, gives calls their vendor's ids back, and reports whatever a thread does not keep."""

from __future__ import annotations

import json
from collections import UserList
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import perdure
from perdure import Agent
from perdure.errors import Invalid
from perdure.providers import adapter
from perdure.store.store import Store
from tests.conformance import test_adapters as examples

EXAMPLES: dict[str, Mapping[str, Any] | None] = {
    "openai-chat": examples.TestOpenAIChat.request,
    "openai-responses": examples.TestOpenAIResponses.request,
    "anthropic-messages": examples.TestAnthropicMessages.request,
    "gemini-generate": examples.TestGeminiGenerate.request,
    "bedrock-converse": examples.TestBedrockConverse.request,
    "mistral-chat": examples.TestMistralChat.request,
    "azure-inference-chat": examples.TestAzureInferenceChat.request,
    "ollama-chat": examples.TestOllamaChat.request,
    "gemini-interactions": examples.TestGeminiInteractions.request,
}
IDS = {
    "openai-responses": "call_1",
    "anthropic-messages": "toolu_1",
    "gemini-generate": "fc1",
    "bedrock-converse": "t1",
    "gemini-interactions": "c1",
}
CHAT: dict[str, Any] = {
    "model": "gpt-5.6",
    "messages": [{"role": "user", "content": "Is it raining?"}],
    "tools": [
        {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {}, "at": 7}}
    ],
    "temperature": 0.5,
    "prediction": {"type": "content", "content": "No."},
}


@pytest.fixture
def store() -> Iterator[Store]:
    """A store that is empty."""
    with perdure.open("memory:") as opened:
        yield opened


def ids(body: object) -> list[str]:
    """The ids of calls and results in a request, whatever the format."""
    names = ("id", "call_id", "tool_call_id", "tool_use_id", "toolUseId")
    if isinstance(body, Mapping):
        own = [value for name, value in body.items() if name in names and isinstance(value, str)]
        return [*own, *(id for value in body.values() for id in ids(value))]
    return [id for each in body for id in ids(each)] if isinstance(body, list) else []


@pytest.mark.parametrize("api", EXAMPLES)
def test_calls_go_back_to_their_vendor_by_its_own_ids(store: Store, api: str) -> None:
    """In the thread they have ids of ours; in a request for the same vendor, those that it gave."""
    request = EXAMPLES[api] or {}
    thread = store.thread("trip", agent="guide")
    thread.add(request, api=api)

    written = ids(thread.export(api, model=str(request.get("model") or "m")).body)

    (call,) = thread.calls()
    assert written == ids(request) == [IDS.get(api, "callAbc12")] * 2
    assert call.id not in written


@pytest.mark.parametrize("api", EXAMPLES)
def test_another_vendor_does_not_get_these_ids(store: Store, api: str) -> None:
    """The control: the id of a call is the vendor's own where the vendor made it, and there alone."""
    thread = store.thread("trip", agent="guide")
    thread.add(EXAMPLES[api] or {}, api=api)
    other = "anthropic-messages" if api != "anthropic-messages" else "openai-responses"

    written = ids(thread.export(other, model="m").body)

    assert len(set(written)) == 1
    assert IDS.get(api, "callAbc12") not in written


def test_what_a_thread_does_not_keep_of_a_request_is_reported(store: Store) -> None:
    """Tools and options are the agent's, and no reader reads an unknown field."""
    losses = store.thread("trip", agent="guide").add(CHAT, api="openai-chat")

    assert {(loss.kind, loss.where) for loss in losses} == {
        ("dropped", "tools[0]"),
        ("dropped", "tools[0].function.at"),
        ("dropped", "options.temperature"),
        ("dropped", "options.vendor.openai-chat.prediction"),
    }


def test_what_the_agent_has_itself_is_not_lost(store: Store) -> None:
    """The same tool and the same option stand in the agent; another tool of the name is told of."""

    @perdure.tool(effect="read_only")
    def look() -> str:
        """Looks."""
        return "rain"

    mine = look.spec
    tool = {"name": "look", "description": mine.description, "parameters": mine.parameters}
    request = {
        "messages": CHAT["messages"],
        "tools": [{"type": "function", "function": tool}],
        "temperature": 0.5,
    }
    agent = Agent("guide", backend="openai:gpt-5.6", tools=[look], options={"temperature": 0.5})
    thread = store.thread("trip", agent=agent)

    same, other = thread.add(request, api="openai-chat"), thread.add(CHAT, api="openai-chat")

    assert same == ()
    assert ("converted", "tools[0]") in {(loss.kind, loss.where) for loss in other}


def test_a_context_that_was_read_holds_tools_and_options() -> None:
    """They are in the context for every later backend, or in its losses."""
    asked: Any = adapter("openai-chat").read_request(CHAT)

    assert [tool.name for tool in asked.tools] == ["look"]
    assert asked.options["temperature"] == 0.5
    assert [loss.where for loss in asked.losses] == ["tools[0].function.at"]


STRANGE = {
    "anthropic-messages": ("messages", 0, "messages[0].mood"),
    "bedrock-converse": ("messages", 0, "messages[0].mood"),
    "gemini-generate": ("contents", 0, "contents[0].mood"),
}


@pytest.mark.parametrize("api", STRANGE)
def test_a_field_that_no_reader_knows_is_reported(api: str) -> None:
    """Where a format keeps no unknown fields, it says which it met; without one it says nothing."""
    field, at, where = STRANGE[api]
    plain = EXAMPLES[api] or {}
    strange = json.loads(json.dumps(plain))
    strange[field][at]["mood"] = "glad"

    asked: Any = adapter(api).read_request(strange)
    sound: Any = adapter(api).read_request(plain)

    assert [loss.where for loss in asked.losses] == [where]
    assert sound.losses == ()


def test_marks_for_a_prompt_cache_are_told_of() -> None:
    """Their places are not kept; a render sets them again."""
    part = {"type": "text", "text": "Hi.", "cache_control": {"type": "ephemeral"}}
    request = {"max_tokens": 9, "messages": [{"role": "user", "content": [part]}]}

    asked: Any = adapter("anthropic-messages").read_request(request)

    assert [(loss.kind, loss.what) for loss in asked.losses] == [("converted", "cache marks")]


NO_JSON: tuple[Any, ...] = (
    object(),
    {1: 2},
    {None: 2},
    {7},
    1j,
    int,
    [object()],
    {"a": object()},
    {"a": {(1, 2): 3}},
)
NO_MESSAGE: tuple[Any, ...] = (
    None,
    3,
    [],
    {},
    {"mood": "glad"},
    {"role": "user"},
    {"role": "user", "mood": "glad"},
)
FIELDS = {"openai-responses": "input", "gemini-interactions": "input", "gemini-generate": "contents"}


def hostile(api: str) -> Iterator[object]:
    """What is no conversation: values that are no JSON in each place of a message, and JSON that is no message."""
    for odd in NO_JSON:
        yield odd
        yield [odd]
        for name in ("role", "type", "content", "parts", "text", "tool_calls"):
            yield [{"role": "user", "content": "Hi.", "parts": [{"text": "Hi."}], name: odd}]
            yield [{"role": "user", "content": [{"type": "text", "text": "Hi.", name: odd}]}]
        yield {FIELDS.get(api, "messages"): [odd]}
        yield from (
            {name: odd} for name in ("candidates", "choices", "output", "steps", "content", "message")
        )
    for odd in NO_MESSAGE:
        yield [odd]
        yield {FIELDS.get(api, "messages"): [odd]}
    yield from ({name: odd} for name in ("candidates", "choices", "content") for odd in (None, 3))


@pytest.mark.parametrize("api", EXAMPLES)
def test_what_is_no_conversation_is_invalid(store: Store, api: str) -> None:
    """In every place, and nothing is written; never an empty message, never an error of Python."""
    thread = store.thread("t", agent="a")
    wrong: list[tuple[object, object]] = []
    for given in hostile(api):
        try:
            thread.add(given, api=api)
        except Invalid:
            continue
        except Exception as error:
            wrong.append((given, error))
        else:
            wrong.append((given, thread.transcript()[-1]))

    assert wrong == []
    assert thread.head.commit is None


@pytest.mark.parametrize("api", EXAMPLES)
def test_control_a_conversation_is_added(store: Store, api: str) -> None:
    """As tuples and other sequences, too."""
    given = json.loads(json.dumps(EXAMPLES[api]))
    given[FIELDS.get(api, "messages")] = UserList(given[FIELDS.get(api, "messages")])

    store.thread("t", agent="a").add(given, api=api)

    assert len(store.thread("t").transcript()) > 1
