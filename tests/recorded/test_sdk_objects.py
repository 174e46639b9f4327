"""`thread.add` takes what the vendors' SDKs return, and finds the format by itself."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from anthropic._models import construct_type as anthropic_type
from anthropic.types import Message
from google.genai import types
from mistralai.client.models import ChatCompletionResponse
from openai._models import construct_type as openai_type
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

import perdure
from perdure import Thread, errors
from perdure.model.message import Message as Said
from perdure.providers.conversation_input import formats_of, prepared
from perdure.runtime.import_messages import read
from tests.recorded.wire import Record, Wire

SIGNATURE = base64.b64encode(b"\xfb\xff signed \xfe").decode()  # with letters that URLs write otherwise

CHAT = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-5.6",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
                ],
            },
        }
    ],
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5-5",
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "tool_use", "id": "t1", "name": "look", "input": {}},
    ],
}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-5.6",
    "status": "completed",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VjcmV0", "status": None},
        {"type": "function_call", "id": "fc_1", "call_id": "t1", "name": "look", "arguments": "{}"},
    ],
}
GEMINI = {
    "candidates": [
        {
            "finishReason": "STOP",
            "content": {
                "role": "model",
                "parts": [{"functionCall": {"name": "look", "args": {}}, "thoughtSignature": SIGNATURE}],
            },
        }
    ]
}
MISTRAL = {**CHAT, "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}

MADE: dict[str, Callable[[Any], Any]] = {
    "openai-chat": lambda body: openai_type(type_=ChatCompletion, value=body),
    "openai-responses": lambda body: openai_type(type_=Response, value=body),
    "anthropic-messages": lambda body: anthropic_type(type_=Message, value=body),
    "gemini-generate": types.GenerateContentResponse.model_validate,
    "mistral-chat": ChatCompletionResponse.model_validate,
}
REPLIES = {
    "openai-chat": CHAT,
    "openai-responses": RESPONSE,
    "anthropic-messages": MESSAGE,
    "gemini-generate": GEMINI,
    "mistral-chat": MISTRAL,
}
SEALED = {"openai-responses": "c2VjcmV0", "anthropic-messages": "c2ln", "gemini-generate": SIGNATURE}


@pytest.fixture
def thread() -> Thread:
    """A thread without messages."""
    return perdure.open("memory:").thread("trip", agent="planner")


def loop_of(api: str) -> list[Any]:
    """The list that a program keeps: its own words, and the answer as the SDK gave it."""
    reply = MADE[api](REPLIES[api])
    asked = {"role": "user", "content": "Oslo?"}
    match api:
        case "openai-responses":
            return [asked, *reply.output]
        case "anthropic-messages":
            return [asked, {"role": "assistant", "content": reply.content}]
        case "gemini-generate":
            return [types.Content(role="user", parts=[types.Part(text="Oslo?")]), reply.candidates[0].content]
        case _:
            return [asked, reply.choices[0].message]


def said(given: Any, api: str) -> list[Said]:
    """The messages of what is given, with what only the vendor reads."""
    return list(read(given, api)[0].messages)


@pytest.mark.parametrize("api", MADE)
def test_the_list_of_a_standard_loop_is_taken_without_a_format(thread: Thread, api: str) -> None:
    """Calls and words are as in its JSON; the package of the objects says the format."""
    given = loop_of(api)
    plain = prepared(given).value

    thread.add(given)

    assert formats_of(given) == (api,)
    assert json.loads(json.dumps(plain)) == plain
    assert [entry.role for entry in thread.transcript()] == ["user", "assistant"]
    assert [call.tool for call in thread.calls()] == ["look"]


@pytest.mark.parametrize("api", MADE)
def test_a_whole_answer_is_taken(thread: Thread, api: str) -> None:
    """It says what its JSON says, and keeps signatures and sealed reasoning."""
    reply = MADE[api](REPLIES[api])

    thread.add(reply)

    (kept,) = thread.transcript()
    assert [call.tool for call in thread.calls()] == ["look"]
    assert list(map(words, said(prepared(reply).value, api))) == list(map(words, said(REPLIES[api], api)))
    assert SEALED.get(api, "") in (kept.message.vendor_metadata or "")


def test_a_control_an_object_of_no_sdk_is_refused(thread: Thread) -> None:
    """It has no JSON, and nothing is written."""
    with pytest.raises(errors.Invalid):
        thread.add([{"role": "user", "content": "Oslo?"}, object()], api="openai-chat")

    assert thread.transcript() == []


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ([{"role": "user", "content": "Oslo?", "name": "ann"}], "format_missing"),
        ([], "not_a_conversation"),
        ({"messages": []}, "nothing_to_import"),
        (7, "not_a_conversation"),
    ],
)
def test_what_has_no_format_is_refused_with_the_reason(thread: Thread, given: object, code: str) -> None:
    """Several formats, no messages, or no conversation: each says so."""
    with pytest.raises(errors.Invalid) as refused:
        thread.add(given)

    assert refused.value.code == code


@pytest.mark.parametrize(
    ("model", "field", "api"),
    [
        ("gpt-5.6", "messages", "openai-chat"),
        ("o9-mini", "messages", "openai-chat"),
        ("claude-sonnet-5-5", "messages", "anthropic-messages"),
        ("claude-of-tomorrow", "messages", "anthropic-messages"),
        ("mistral-large-latest", "messages", "mistral-chat"),
        ("gemini-2.5-flash", "messages", "openai-chat"),
        ("gemini-2.5-flash", "input", "gemini-interactions"),
        ("gpt-5.6", "input", "openai-responses"),
    ],
)
def test_the_name_of_a_model_decides_among_the_formats_that_fit(model: str, field: str, api: str) -> None:
    """Of a request of plain words; the catalog says whose it is, or the first word of its name."""
    said = [{"role": "user", "content": "Oslo?"}]

    assert formats_of({"model": model, field: said, "temperature": 0.5}) == (api,)


@pytest.mark.parametrize(
    "model", ["mistral:7b", "llama3.1:8b", "openchat-7b", "anthropic/claude-sonnet-4.5", "", 7]
)
def test_a_name_that_is_nobodys_decides_nothing(model: object) -> None:
    """Another server gave it; control: without options plain words mean the same in each format."""
    said = [{"role": "user", "content": "Oslo?"}]

    assert len(formats_of({"model": model, "messages": said, "temperature": 0.5})) > 1
    assert formats_of({"model": model, "messages": said}) == ("openai-chat",)


def test_a_role_that_no_format_has_is_the_reason_that_is_given(thread: Thread) -> None:
    """The format is not the problem, so the error of the nearest one is raised."""
    with pytest.raises(errors.Invalid) as refused:
        thread.add([{"role": "narrator", "content": "Once."}])

    assert (refused.value.code, refused.value.facts["where"]) == ("malformed_body", "messages[0]")


@pytest.mark.parametrize("api", MADE)
def test_recorded_answers_say_the_same_as_objects(api: str, wire: Wire) -> None:
    """Of each vendor forty answers that were recorded."""
    kept = [each for each in wire.records(api) if is_answer(each)][::7][:40]

    assert kept
    for record in kept:
        try:
            reply = MADE[api](record.response)
        except (ValueError, AttributeError):
            continue  # a class of the SDK that is stricter than its server
        assert list(map(words, said(prepared(reply).value, api))) == list(
            map(words, said(record.response, api))
        )


def is_answer(record: Record) -> bool:
    """True for a good answer that came as one object."""
    return record.status == 200 and record.response_format == "json" and isinstance(record.response, dict)


def words(message: Said) -> object:
    """What a message says, and the calls with their arguments as values."""
    return message.role, message.content, [(call.name, json.loads(call.args)) for call in message.tool_calls]
