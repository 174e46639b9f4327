"""Contexts as Chat requests: what each server demands, and what is said where it cannot be done."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.model.context import Context, ToolSpec
from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers.contract import Rendered
from perdure.providers.openai_chat.adapter import ADAPTER
from perdure.providers.wire.server_tools import account

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "data:application/pdf;base64,JVBERi0xLjQK"
HI = Message(role="user", content=(Text("hi"),))


def render(*messages: Message, provider: str = "openai", model: str = "gpt-5.4", **more: Any) -> Rendered:
    """The request for these messages."""
    return ADAPTER.render(Context(messages=messages, **more), model=model, provider=provider)


def said(*messages: Message, **more: Any) -> list[dict[str, Any]]:
    """The messages of the request."""
    return render(*messages, **more).body["messages"]


def user(*blocks: Block) -> Message:
    """What a user said."""
    return Message(role="user", content=blocks)


def called(*calls: ToolCall, words: str = "") -> Message:
    """A turn with calls."""
    return Message(role="assistant", content=(Text(words),) if words else (), tool_calls=calls)


def gave(call_id: str, *blocks: Block, status: Any = "success") -> Message:
    """A result."""
    return Message(role="tool", tool_results=(ToolResult(call_id, status, blocks),))


CALL = ToolCall("c1", "f", "{}")


def test_the_system_comes_first() -> None:
    """One message, before all others."""
    assert said(HI, system="Be brief.")[0] == {"role": "system", "content": "Be brief."}


def test_a_call_without_a_result_gets_one_and_a_lone_result_goes() -> None:
    """A crash leaves halves; the servers refuse them."""
    rendered = render(HI, called(CALL), gave("nobody", Text("x")))

    assert [message["role"] for message in rendered.body["messages"]] == ["user", "assistant", "tool"]
    assert {loss.kind for loss in rendered.losses} >= {"repaired", "dropped"}


def test_ids_that_are_too_long_are_replaced_in_call_and_result() -> None:
    """Forty characters is the most; both halves keep together."""
    long = "x" * 41

    messages = said(HI, called(ToolCall(long, "f", "{}")), gave(long, Text("ok")))

    assert len(messages[1]["tool_calls"][0]["id"]) <= 40
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]


def test_an_id_that_two_calls_share_becomes_two() -> None:
    """The second goes by another."""
    turn = (called(CALL), gave("c1", Text("ok")))

    messages = said(HI, *turn, *turn)

    ids = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert len(set(ids)) == 2
    assert ids == [message["tool_calls"][0]["id"] for message in messages if "tool_calls" in message]


def test_names_that_are_not_legal_go_by_others() -> None:
    """In declarations, calls and the choice alike."""
    spec = ToolSpec(name="files.read", parameters={"type": "object", "properties": {}})

    rendered = render(
        HI,
        called(ToolCall("c1", "files.read", "{}")),
        gave("c1", Text("ok")),
        tools=[spec],
        options={"tool_choice": {"name": "files.read"}},
    )

    body = rendered.body
    assert body["tools"][0]["function"]["name"] == "files_read"
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == "files_read"
    assert body["tool_choice"]["function"]["name"] == "files_read"
    assert "tool name" in {loss.what for loss in rendered.losses}


def test_two_names_never_become_one() -> None:
    """A legal name keeps its own, whichever comes first."""
    specs = [ToolSpec(name="a.b"), ToolSpec(name="a_b")]

    names = [tool["function"]["name"] for tool in render(HI, tools=specs).body["tools"]]

    assert names[1] == "a_b"
    assert len(set(names)) == 2


def test_images_of_results_follow_in_a_users_turn() -> None:
    """After all results of the turn, since results hold text only."""
    other = ToolCall("c2", "g", "{}")

    messages = said(HI, called(CALL, other), gave("c1", Image(PIXEL, "image/png")), gave("c2", Text("ok")))

    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
    assert messages[-1]["content"][1]["image_url"]["url"] == PIXEL


def test_an_error_says_so() -> None:
    """Chat has no other place for it."""
    assert (
        said(HI, called(CALL), gave("c1", Text("no disk"), status="error"))[2]["content"] == "Error: no disk"
    )


def test_an_image_of_another_kind_is_said_in_words() -> None:
    """The servers take four kinds."""
    tiff = "data:image/tiff;base64,SUkqAA=="

    rendered = render(user(Text("see"), Image(tiff, "image/tiff")))

    assert rendered.body["messages"][0]["content"][1]["type"] == "text"
    assert [loss.what for loss in rendered.losses] == ["image"]


def test_images_by_address_are_words_where_only_bytes_are_taken() -> None:
    """Ollama fetches nothing."""
    image = Image("https://example.com/a.png", "image/png")

    assert said(user(image))[0]["content"][0]["type"] == "image_url"
    assert said(user(image), provider="ollama")[0]["content"] == "[image: https://example.com/a.png]"


def test_files_are_given_as_the_server_takes_them() -> None:
    """As a file with its name; as its words where it is text; else as a note."""
    text = File("data:text/plain;base64,aGVsbG8=", "text/plain")

    parts = said(user(File(PDF, "application/pdf"), text))[0]["content"]
    refused = render(user(File(PDF, "application/pdf")), provider="groq")

    assert parts[0]["file"] == {"file_data": PDF, "filename": "file.pdf"}
    assert parts[1] == {"type": "text", "text": "hello"}
    assert refused.body["messages"][0]["content"] == "[file: application/pdf, 9 bytes]"
    assert [loss.kind for loss in refused.losses] == ["dropped"]


def test_a_file_of_another_vendor_is_named_and_not_sent() -> None:
    """An id means nothing elsewhere."""
    rendered = render(
        user(File("file-id://anthropic/f1", "application/pdf"), Image("artifact://a/1", "image/png"))
    )

    assert "[file: file-id://anthropic/f1]" in str(rendered.body["messages"])
    assert [loss.what for loss in rendered.losses] == ["file", "image"]


def test_what_another_vendors_tool_did_is_one_line() -> None:
    """The words of it are kept, and the report says so."""
    block = account("web_search", "web_search", input={"query": "tea"})

    rendered = render(HI, Message(role="assistant", content=(block, Text("Tea."))))

    assert rendered.body["messages"][1]["content"] == '[web_search: {"query": "tea"}]Tea.'
    assert [loss.kind for loss in rendered.losses] == ["converted"]


def test_reasoning_of_another_is_left_out_and_reported() -> None:
    """It is no answer, and its signature is not ours."""
    rendered = render(HI, Message(role="assistant", content=(ReasoningSummary("hm"), Text("4"))))

    assert rendered.body["messages"][1] == {"role": "assistant", "content": "4"}
    assert [loss.what for loss in rendered.losses] == ["reasoning"]


def reply(provider: str, **message: Any) -> Message:
    """What a server answered."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "4", **message},
        "finish_reason": "stop",
    }
    return ADAPTER.parse({"id": "r", "model": "acme/m-1", "choices": [choice]}, provider=provider).message


@pytest.mark.parametrize(
    ("provider", "field", "back"),
    [
        ("deepseek", "reasoning_content", True),
        ("ollama", "reasoning", True),
        ("cerebras", "reasoning", True),
        ("groq", "reasoning", False),
        ("openai", "reasoning_content", False),
    ],
)
def test_reasoning_goes_back_to_servers_that_take_it(provider: str, field: str, back: bool) -> None:
    """DeepSeek wants it, Groq refuses the field."""
    answer = reply(provider, **{field: "hm"})

    assert said(HI, answer, provider=provider)[1].get(field) == ("hm" if back else None)


def test_signed_reasoning_goes_back_to_its_server_and_model_alone() -> None:
    """Byte for byte, or not at all."""
    details = [{"type": "reasoning.encrypted", "data": "xyz", "index": 0}]
    answer = reply("openrouter", reasoning_details=details)

    own = said(HI, answer, provider="openrouter", model="acme/m-1-20260101")
    model = said(HI, answer, provider="openrouter", model="acme/other")
    server = said(HI, answer, provider="vercel-gateway", model="acme/m-1")

    assert own[1]["reasoning_details"] == details
    assert "reasoning_details" not in model[1]
    assert "reasoning_details" not in server[1]


def test_thinking_servers_get_the_field_they_demand() -> None:
    """A turn with calls that another made has none; it becomes an empty one."""
    thinks = {"reasoning": {"enabled": True}}
    asked = (HI, called(CALL), gave("c1", Text("ok")))

    rendered = render(*asked, provider="deepseek", model="deepseek-v4-pro", options=thinks)

    assert rendered.body["messages"][1]["reasoning_content"] == ""
    assert [loss.kind for loss in rendered.losses] == ["repaired"]


def test_an_empty_turn_is_not_sent() -> None:
    """Neither words nor calls: the servers refuse it."""
    assert said(HI, Message(role="assistant"), HI) == [{"role": "user", "content": "hi"}] * 2


def test_a_request_without_messages_gets_one() -> None:
    """An empty list is refused."""
    assert said() == [{"role": "user", "content": "Continue."}]


def test_local_templates_get_roles_in_turn_and_one_system() -> None:
    """Late system messages become a user's, neighbours are joined."""
    late = Message(role="system", content=(Text("Be brief."),))

    rendered = render(HI, HI, late, provider="llama.cpp", system="You help.")

    assert rendered.body["messages"] == [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "hi\n\nhi\n\nBe brief."},
    ]
    assert {loss.kind for loss in rendered.losses} == {"converted", "repaired"}


def test_the_role_developer_goes_to_those_who_know_it() -> None:
    """For all others it is the system."""
    body = {"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}]}
    context = ADAPTER.read_request(body)

    roles = {
        provider: ADAPTER.render(context, model="m", provider=provider).body["messages"][0]["role"]
        for provider in ("openai", "deepseek", "vllm", "somebody-new")
    }

    assert roles == {"openai": "developer", "deepseek": "system", "vllm": "system", "somebody-new": "system"}


def test_arguments_are_objects_where_the_server_reads_them() -> None:
    """OpenAI takes any text; templates of local servers parse it."""
    history = (HI, called(ToolCall("c1", "f", "{oops")), gave("c1", Text("ok")))

    assert said(*history)[1]["tool_calls"][0]["function"]["arguments"] == "{oops"
    arguments = said(*history, provider="vllm")[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"arguments": "{oops"}


def test_a_schema_that_is_not_closed_is_not_strict() -> None:
    """It is given as a loose one, and the report says so."""
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}

    rendered = render(
        HI,
        tools=[ToolSpec(name="f", parameters=schema, strict=True)],
        options={"output": {"schema": schema, "strict": True}},
    )

    assert rendered.body["tools"][0]["function"]["strict"] is False
    assert rendered.body["response_format"]["json_schema"]["strict"] is False
    assert [loss.what for loss in rendered.losses] == ["strict tool", "strict schema"]


def test_json_is_asked_for_in_words_too() -> None:
    """The servers refuse the option without the word."""
    assert "JSON" in said(HI, options={"output": "json"})[0]["content"]
    assert len(said(user(Text("as json")), options={"output": "json"})) == 1


def test_a_choice_needs_a_tool() -> None:
    """Without tools it is left out, and so is one that names none of them."""
    rendered = render(HI, options={"tool_choice": "required", "parallel_tool_calls": False})
    unknown = render(HI, tools=[ToolSpec(name="f")], options={"tool_choice": {"name": "g"}})

    assert not {"tool_choice", "parallel_tool_calls"} & set(rendered.body)
    assert [loss.what for loss in unknown.losses] == ["tool choice"]


def test_options_that_a_model_refuses_are_left_out_and_reported() -> None:
    """Reasoning models take no sampling options; plain ones no effort."""
    options: dict[str, Any] = {"temperature": 0.2, "reasoning": {"effort": "low"}, "max_tokens": 5}

    reasons = render(HI, model="gpt-5-codex", options=options)
    plain = render(HI, model="gpt-5-chat-latest", options=options)

    assert reasons.body.keys() & {"temperature", "reasoning_effort"} == {"reasoning_effort"}
    assert plain.body.keys() & {"temperature", "reasoning_effort"} == {"temperature"}
    assert reasons.body["max_completion_tokens"] == 5
    assert [loss.where for loss in (*reasons.losses, *plain.losses)] == [
        "options.temperature",
        "options.reasoning",
    ]


def test_what_only_other_formats_have_is_reported() -> None:
    """Field by field."""
    vendor = {"anthropic-messages": {"container": "c"}, "openai-chat": {"logit_bias": {"1": 1}}}

    rendered = render(HI, options={"vendor": vendor})

    assert rendered.body["logit_bias"] == {"1": 1}
    assert [loss.where for loss in rendered.losses] == ["options.vendor.anthropic-messages.container"]


def test_what_only_another_server_has_stays_there() -> None:
    """Fields of OpenRouter's mean nothing to OpenAI."""
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "provider": {"order": ["x"]},
        "stream_options": {},
    }
    context = ADAPTER.read_request(body, provider="openrouter")

    assert ADAPTER.render(context, model="m", provider="openrouter").body["provider"] == {"order": ["x"]}
    other = ADAPTER.render(context, model="m", provider="openai")
    assert "provider" not in other.body
    assert [loss.what for loss in other.losses] == ["provider"]


def test_cache_marks_are_derived_where_they_are_known() -> None:
    """They are never stored, and never sent to servers that refuse them."""
    marked = {
        "role": "user",
        "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
    }
    context = ADAPTER.read_request({"messages": [marked]}, provider="openrouter")

    assert "cache_control" not in str(context.messages)
    assert "cache_control" in str(ADAPTER.render(context, model="m", provider="openrouter").body)
    assert "cache_control" not in str(ADAPTER.render(context, model="m", provider="openai").body)


def test_details_of_parts_come_back() -> None:
    """Names, details and file names are kept for the server that was told them."""
    parts = [
        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "high"}},
        {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
        {"type": "hologram", "hologram": 1},
    ]
    body = {"messages": [{"role": "user", "name": "ann", "content": parts}]}

    rendered = ADAPTER.render(ADAPTER.read_request(body), model="m")

    assert rendered.body["messages"] == body["messages"]
    assert rendered.losses == ()
