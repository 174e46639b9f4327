"""Chat requests and answers as canonical messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.model.context import Context
from perdure.model.message import File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers.contract import CallDelta, Finished, ReasoningChunk, Reply, TextChunk
from perdure.providers.openai_chat.adapter import ADAPTER
from perdure.providers.wire.server_tools import is_account, told
from tests.coded import raises

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def answer(message: dict[str, Any], *, provider: str = "openai", **more: Any) -> Reply:
    """The reply of a server that said `message`."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return ADAPTER.parse({"id": "chatcmpl-1", "model": "m", "choices": [choice], **more}, provider=provider)


def read(*messages: dict[str, Any], provider: str = "openai", **fields: Any) -> Any:
    """The context of a request with these messages."""
    return ADAPTER.read_request({"model": "m", "messages": list(messages), **fields}, provider=provider)


def native(message: Message) -> dict[str, Any]:
    """What is kept for the vendor alone."""
    return json.loads(message.vendor_metadata or "{}")["openai"]


def test_an_answer_has_words_calls_stop_and_usage() -> None:
    """The plain case, with the events that a run would see."""
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }

    reply = answer({"content": "Adding.", "tool_calls": [call]}, usage=usage)

    assert reply.message.content == (Text("Adding."),)
    assert reply.message.tool_calls == (ToolCall("call_1", "add", '{"a": 1}'),)
    assert (reply.stop, reply.usage.input_tokens, reply.usage.output_tokens) == ("stop", 10, 5)
    assert (reply.usage.cached_tokens, reply.usage.reasoning_tokens) == (4, 2)
    assert [type(event) for event in reply.events] == [TextChunk, CallDelta, Finished]


def test_every_reply_says_where_it_came_from() -> None:
    """Endpoint, model and response id are kept, under the vendor's name."""
    kept = native(answer({"content": "hi"}, provider="groq").message)

    assert {name: kept[name] for name in ("endpoint", "model", "response_id")} == {
        "endpoint": "groq",
        "model": "m",
        "response_id": "chatcmpl-1",
    }


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_told_whatever_its_field_is_called(field: str) -> None:
    """Servers disagree on the name."""
    reply = answer({"content": "4", field: "2 and 2"}, provider="deepseek")

    assert reply.message.content == (ReasoningSummary("2 and 2"), Text("4"))
    assert ReasoningChunk("2 and 2") in reply.events


def test_a_refusal_is_words() -> None:
    """What the model says in place of an answer is not lost."""
    assert answer({"content": None, "refusal": "I cannot."}).message.text == "I cannot."


def test_an_answer_without_anything_stays_empty() -> None:
    """No block is made up."""
    assert answer({"content": None}).message.content == ()


def test_repeated_and_missing_ids_of_calls_become_unique() -> None:
    """Two calls never share an id, and the same answer gives the same ids."""
    calls = [
        {"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in ("a", "a", "")
    ]

    ids = [call.id for call in answer({"tool_calls": calls}).message.tool_calls]

    assert len(set(ids)) == 3
    assert ids[0] == "a"
    assert ids == [call.id for call in answer({"tool_calls": calls}).message.tool_calls]


def test_arguments_stay_as_they_came() -> None:
    """Text that is no JSON is not repaired."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1,'}}

    assert answer({"tool_calls": [call]}).message.tool_calls[0].args == '{"a": 1,'


def test_what_a_server_ran_itself_is_told() -> None:
    """A tool of the server's own is one block that tells of it."""
    tool = {"index": 0, "type": "python", "arguments": '{"code": "1+1"}', "output": "2"}

    (block, text) = answer({"content": "2", "executed_tools": [tool]}, provider="groq").message.content

    assert isinstance(block, File)
    assert is_account(block)
    assert told(block) == '[python: {"code": "1+1"} → 2]'
    assert text == Text("2")


def test_further_choices_are_others() -> None:
    """The first is the answer."""
    choices = [{"index": n, "message": {"content": str(n)}, "finish_reason": "stop"} for n in (1, 0)]

    reply = ADAPTER.parse({"id": "x", "choices": choices})

    assert (reply.message.text, [other.text for other in reply.others]) == ("0", ["1"])


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": "x"}, {"object": "list", "data": []}])
def test_what_is_no_answer_is_refused(body: dict[str, Any]) -> None:
    """The error says what is missing."""
    with raises(Invalid, "not_an_answer"):
        ADAPTER.parse(body)


def test_an_error_is_no_answer() -> None:
    """It is said as the server said it."""
    with raises(Invalid, "error_answer"):
        ADAPTER.parse({"error": {"message": "no such model", "code": "model_not_found"}})


def test_an_answer_that_a_filter_held_back_is_a_refusal() -> None:
    """Nothing was said, and the stop reason tells why."""
    reply = ADAPTER.parse(
        {"error": {"message": "filtered", "code": "content_filter"}}, provider="azure-openai"
    )

    assert (reply.message.content, reply.stop) == ((), "content_filter")


def test_system_and_tools_and_options_are_read() -> None:
    """Each under its canonical name."""
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
    context = read(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        tools=[{"type": "function", "function": function}],
        tool_choice={"type": "function", "function": {"name": "f"}},
        max_completion_tokens=9,
        stop="END",
        reasoning_effort="low",
        response_format={"type": "json_object"},
        logit_bias={"1": 2},
    )

    assert context.system == "Be brief."
    assert context.tools[0].strict
    assert context.options == {
        "max_tokens": 9,
        "stop": ["END"],
        "tool_choice": {"name": "f"},
        "reasoning": {"effort": "low"},
        "output": "json",
        "vendor": {"openai-chat": {"logit_bias": {"1": 2}, "endpoint": "openai"}},
    }


def test_a_system_message_in_mid_conversation_is_a_message() -> None:
    """Only the first ones are the system."""
    context = read({"role": "user", "content": "a"}, {"role": "developer", "content": "b"})

    assert context.system == ""
    assert [message.role for message in context.messages] == ["user", "system"]


def test_media_are_read_as_what_they_are() -> None:
    """Bytes are named for what they are, whatever was declared; addresses stay addresses."""
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/jpg;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file": {"file_id": "file-1"}},
    ]

    (message,) = read({"role": "user", "content": parts}).messages

    assert message.content == (
        Image(f"data:image/png;base64,{PIXEL}", "image/png"),
        Image("https://example.com/a.png", "image/png"),
        File("data:audio/wav;base64,UklGRg==", "audio/wav"),
        File("file-id://openai/file-1", "application/octet-stream"),
    )


def test_results_follow_their_calls_when_ids_are_used_again() -> None:
    """Ids that start over in every turn are kept apart."""
    call = {"id": "0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turn = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "0", "content": "x"},
    ]

    messages = read({"role": "user", "content": "a"}, *turn, *turn).messages

    ids = [call.id for message in messages for call in message.tool_calls]
    assert len(set(ids)) == 2
    assert [result.call_id for message in messages for result in message.tool_results] == ids


def test_the_older_form_of_calls_is_read() -> None:
    """`function_call` and the role `function` are calls and results too."""
    messages = read(
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "done"},
    ).messages

    call = messages[1].tool_calls[0]
    assert messages[2].tool_results == (ToolResult(call.id, "success", (Text("done"),)),)


def test_an_unknown_part_is_told_of_and_kept() -> None:
    """The server gets it back as it came; others read of it."""
    part = {"type": "hologram", "hologram": {"url": "x"}}

    (message,) = read({"role": "user", "content": [part]}).messages

    assert isinstance(message.content[0], File)
    assert told(message.content[0]) == '[hologram: {"hologram": {"url": "x"}}]'
    assert native(message)["chat"]["parts"]["0"]["native"] == part


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": "hi"},
        {"messages": ["hi"]},
        {"messages": [{"content": "hi"}]},
        {"messages": [{"role": "king", "content": "hi"}]},
        {"messages": [{"role": "user", "content": 7}]},
        {"messages": [{"role": "user", "content": [7]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]},
        {"messages": [], "tools": [{"type": "function", "function": {}}]},
        {"messages": [], "tools": {"f": 1}},
    ],
)
def test_what_is_no_request_is_refused(body: dict[str, Any]) -> None:
    """The error names the place, and nothing else is raised."""
    with pytest.raises(Invalid) as caught:
        ADAPTER.read_request(body)

    assert caught.value.code in ("not_a_request", "malformed_body")


def test_lone_surrogates_do_no_harm() -> None:
    """Half a character is kept, and goes out as one that can be sent, with a loss."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "\ud800"}'}}
    context = read(
        {"role": "user", "content": "\ud800", "name": "\udfff"}, {"role": "assistant", "tool_calls": [call]}
    )

    rendered = ADAPTER.render(context, model="m")

    assert context.messages[0].text == "\ud800"
    assert rendered.body["messages"][0] == {"role": "user", "content": "\ufffd", "name": "\ufffd"}
    assert rendered.body["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"a": "\ufffd"}'
    assert "lone surrogate" in [loss.what for loss in rendered.losses]


OWN = {"created_at": 1, "my_rating": 5}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "Be brief.", **OWN},
        {"role": "user", "content": "hi", "name": "ann", **OWN},
        {"role": "assistant", "content": "hi", **OWN},
        {"role": "tool", "tool_call_id": "c1", "content": "rain", "name": "look", **OWN},
    ],
    ids=lambda message: message["role"],
)
def test_a_programs_own_fields_of_a_message_are_named_and_not_sent(message: dict[str, Any]) -> None:
    """OpenAI refuses a field that it does not know; control: a field that it knows is sent."""
    asked = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    said = [asked, message] if message["role"] == "tool" else [message]

    context = read({"role": "user", "content": "hi"}, *said) if message["role"] != "system" else read(*said)
    sent = ADAPTER.render(context, model="gpt-5.4").body["messages"][-1]

    where = f"messages[{len(said) if message['role'] != 'system' else 0}]"
    assert [(loss.kind, loss.where) for loss in context.losses] == [
        ("dropped", f"{where}.{name}") for name in OWN
    ]
    assert not OWN.keys() & sent.keys()
    assert sent.get("name") == message.get("name")


def test_a_programs_own_fields_stay_in_the_history() -> None:
    """Beside the message; the id of a message is no loss, because an import knows it by that."""
    context = read({"role": "user", "content": "hi", "id": "m1", **OWN})

    assert native(context.messages[0])["chat"]["said"] == OWN


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("provider", "sent"), [("openai", False), ("groq", False), ("deepseek", True), ("avian", True)]
)
def test_reasoning_of_a_list_goes_to_no_server_that_refuses_the_field(provider: str, sent: bool) -> None:
    """Nobody knows which server gave it; control: a server that has the field takes it."""
    said = {"role": "assistant", "content": "hi", "reasoning_content": "Hm", "reasoning_details": [{"a": 1}]}
    context = read({"role": "user", "content": "hi"}, said, provider=provider)

    rendered = ADAPTER.render(context, model="m", provider=provider)

    assert ("reasoning_content" in rendered.body["messages"][-1]) == sent
    assert ("reasoning" in {loss.what for loss in rendered.losses}) == (not sent)
    assert ("reasoning_details" in rendered.body["messages"][-1]) == sent


def test_a_failed_result_is_read_by_its_status() -> None:
    """Frameworks write it beside a result; Chat itself has no such field, and is told in words."""
    asked = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    failed = {"role": "tool", "tool_call_id": "c1", "content": "no such city", "status": "error"}

    context = read({"role": "user", "content": "hi"}, asked, failed)

    assert context.messages[-1].tool_results[0].status == "error"
    sent = ADAPTER.render(context, model="gpt-5.4").body["messages"][-1]
    assert sent == {"role": "tool", "tool_call_id": "c1", "content": "Error: no such city"}


def test_a_field_that_was_stored_for_openai_and_that_it_does_not_know_is_a_loss() -> None:
    """Messages that an earlier release imported have them beside what the server knows."""
    told = {
        "openai": {"endpoint": "openai", "chat": {"blocks": 1, "fields": {"my_rating": 5, "name": "ann"}}}
    }
    message = Message("user", (Text("hi"),), vendor_metadata=json.dumps(told))

    rendered = ADAPTER.render(Context(messages=[message]), model="gpt-5.4", provider="openai")

    assert rendered.body["messages"] == [{"role": "user", "content": "hi", "name": "ann"}]
    assert [loss.where for loss in rendered.losses] == ["messages[0].my_rating"]
