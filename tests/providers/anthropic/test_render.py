"""What Anthropic is sent: valid whatever the history looks like, with every loss told."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from perdure.model.context import Context, ToolSpec
from perdure.model.message import File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers.anthropic.adapter import ADAPTER
from perdure.providers.anthropic.capabilities import EFFORT_BUDGETS
from perdure.providers.contract import Rendered
from perdure.providers.wire.server_tools import account

MODEL = "claude-haiku-4-5"
PNG = "data:image/jpeg;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
HELLO = Message(role="user", content=(Text("Hello."),))
THOUGHT = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-haiku-4-5-20251001",
    "content": [
        {"type": "thinking", "thinking": "", "signature": "c2lnbmF0dXJl"},
        {"type": "redacted_thinking", "data": "aGlkZGVu"},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


def asks(*calls: str) -> Message:
    """An assistant that calls tools."""
    return Message(role="assistant", tool_calls=tuple(ToolCall(id, "look", "{}") for id in calls))


def answers(*calls: str) -> Message:
    """What the tools gave."""
    results = tuple(ToolResult(id, "success", (Text(f"of {id}"),)) for id in calls)
    return Message(role="tool", tool_results=results)


def render(*messages: Message, model: str = MODEL, **more: Any) -> Rendered:
    """The request for these messages."""
    return ADAPTER.render(Context(messages=messages, **more), model=model)


def lost(rendered: Rendered) -> set[tuple[str, str]]:
    """What was lost, and how."""
    return {(loss.kind, loss.what) for loss in rendered.losses}


def test_results_stand_together_behind_their_calls_and_before_words() -> None:
    """Two results and the words of the next user message are one turn, in that order."""
    user = Message(role="user", content=(Text("And?"),), tool_results=answers("a", "b").tool_results)

    body = render(HELLO, asks("a", "b"), user).body

    kinds = [block["type"] for block in body["messages"][2]["content"]]
    assert kinds == ["tool_result", "tool_result", "text"]


def test_a_call_without_a_result_gets_one() -> None:
    """And the report says so."""
    rendered = render(HELLO, asks("a"), HELLO)

    assert rendered.body["messages"][2]["content"][0]["tool_use_id"] == "a"
    assert ("repaired", "tool call") in lost(rendered)


def test_ids_of_other_vendors_become_legal_and_stay_pairs() -> None:
    """Anthropic takes letters, digits, _ and - only; repeated ids become different."""
    rendered = render(
        HELLO,
        asks("functions.look:0"),
        answers("functions.look:0"),
        asks("x"),
        answers("x"),
        asks("x"),
        answers("x"),
    )

    uses = [each["content"][0]["id"] for each in rendered.body["messages"][1::2]]
    results = [each["content"][0]["tool_use_id"] for each in rendered.body["messages"][2::2]]
    assert uses == results
    assert len(set(uses)) == 3
    assert uses[0].startswith("toolu_")


def test_thinking_goes_back_to_its_model_byte_for_byte() -> None:
    """Also thinking without words, and encrypted thinking; an alias is the same model."""
    reply = ADAPTER.parse(THOUGHT)

    rendered = render(HELLO, reply.message, answers("toolu_1"))

    assert rendered.body["messages"][1]["content"] == THOUGHT["content"]
    assert rendered.losses == ()


def test_thinking_goes_to_no_other_model_or_server() -> None:
    """A signature is bound to its model; what is left out is told."""
    message = ADAPTER.parse(THOUGHT).message

    other = render(HELLO, message, answers("toolu_1"), model="claude-opus-4-5")
    elsewhere = ADAPTER.render(Context(messages=[HELLO, message]), model=MODEL, provider="google-vertex")

    assert [block["type"] for block in other.body["messages"][1]["content"]] == ["tool_use"]
    assert ("dropped", "reasoning") in lost(other)
    assert [block["type"] for block in elsewhere.body["messages"][1]["content"]] == ["tool_use"]


def test_thinking_is_off_where_a_loop_has_none() -> None:
    """Anthropic demands thinking at the start of a turn that tools have just answered."""
    rendered = render(HELLO, asks("a"), answers("a"), options={"reasoning": {"budget_tokens": 2000}})

    assert "thinking" not in rendered.body
    assert ("dropped", "reasoning") in lost(rendered)


@pytest.mark.parametrize(
    ("reasoning", "limit", "thinking"),
    [
        ({"budget_tokens": 100}, 4_000, {"type": "enabled", "budget_tokens": 1_024}),
        ({"budget_tokens": 9_000}, 4_000, {"type": "enabled", "budget_tokens": 2_000}),
        ({"budget_tokens": 3_999}, 4_000, {"type": "enabled", "budget_tokens": 3_999}),
        ({"budget_tokens": 9_000}, 1_000, None),
        ({"effort": "low"}, 8_000, {"type": "enabled", "budget_tokens": 2_048}),
        ({"enabled": False}, 8_000, {"type": "disabled"}),
    ],
)
def test_a_thinking_budget_fits(reasoning: Any, limit: int, thinking: object) -> None:
    """At least 1024 and below max_tokens, or none."""
    rendered = render(HELLO, options={"reasoning": reasoning, "max_tokens": limit})

    assert rendered.body.get("thinking") == thinking


@pytest.mark.parametrize(
    ("model", "limit"),
    [
        ("claude-sonnet-5-5", 128_000),
        ("claude-opus-4-5", 50_000),
        ("claude-haiku-4-5-20251001", 50_000),  # its window is 200,000
        ("qwen3", 8_192),
    ],
)
def test_room_for_an_answer_comes_from_the_catalog(model: str, limit: int) -> None:
    """The model's output limit, at most a quarter of its window; careful where the model is none of Claude's."""
    assert render(HELLO, model=model).body["max_tokens"] == limit


@pytest.mark.parametrize("reasoning", [{"effort": effort} for effort in EFFORT_BUDGETS] + [{"enabled": True}])
@pytest.mark.parametrize("limit", [{}, {"max_tokens": 8_192}, {"max_tokens": 16_384}])
def test_thinking_leaves_room_for_an_answer(reasoning: dict[str, Any], limit: dict[str, int]) -> None:
    """Half of a small limit, 8192 tokens of a large one."""
    body = render(HELLO, model="claude-opus-4-5", options={"reasoning": reasoning, **limit}).body

    left = body["max_tokens"] - body["thinking"]["budget_tokens"]
    assert left >= min(8_192, body["max_tokens"] // 2)


def test_new_models_think_as_they_like_and_take_no_sampling() -> None:
    """An effort and adaptive thinking; temperature is left out, and told."""
    options = {"reasoning": {"effort": "xhigh"}, "temperature": 0.5}
    rendered = render(HELLO, model="claude-opus-4-8", options=options)

    assert rendered.body["thinking"] == {"type": "adaptive"}
    assert rendered.body["output_config"] == {"effort": "xhigh"}
    assert lost(rendered) == {("dropped", "temperature")}


def test_thinking_and_a_forced_tool_exclude_each_other() -> None:
    """The tool is what counts."""
    options = {"reasoning": {"budget_tokens": 2000}, "tool_choice": "required"}
    rendered = render(HELLO, tools=[ToolSpec(name="look")], options=options)

    assert rendered.body["tool_choice"] == {"type": "any"}
    assert "thinking" not in rendered.body


def test_an_image_is_declared_as_what_it_is() -> None:
    """A PNG that is called a JPEG is sent as a PNG; what is no image Anthropic takes is told in words."""
    user = Message(role="user", content=(Image(PNG, "image/jpeg"), Image("artifact://1", "image/png")))

    rendered = render(user)

    first, second = rendered.body["messages"][0]["content"]
    assert first["source"]["media_type"] == "image/png"
    assert second["type"] == "text"
    assert ("converted", "image") in lost(rendered)


def test_documents_are_shown_as_pdf_or_text() -> None:
    """By address, by bytes, as words; audio in words."""
    text = "data:text/plain;base64," + base64.b64encode(b"words").decode()
    files = (
        "https://a.example/b.pdf",
        "data:application/pdf;base64,JVBERi0xLjQK",
        text,
        "data:audio/wav;base64,UklGRg==",
    )
    user = Message(role="user", content=tuple(File(uri, "application/pdf") for uri in files))

    content = render(user).body["messages"][0]["content"]

    assert [block.get("source", {}).get("type") for block in content] == ["url", "base64", "text", None]


def test_tools_have_legal_names_of_their_own() -> None:
    """Renamed alike in declarations, calls and choices."""
    call = Message(role="assistant", tool_calls=(ToolCall("a", "files.read", '{"a": 1}'),))
    tools = [ToolSpec(name="files.read"), ToolSpec(name="files_read", parameters={"properties": {}})]

    body = render(HELLO, call, tools=tools, options={"tool_choice": {"name": "files.read"}}).body

    assert [tool["name"] for tool in body["tools"]] == ["files_read_2", "files_read"]
    assert all(tool["input_schema"]["type"] == "object" for tool in body["tools"])
    assert body["messages"][1]["content"][0]["name"] == "files_read_2"
    assert body["tool_choice"] == {"type": "tool", "name": "files_read_2"}


@pytest.mark.parametrize("args", ["[1]", "{broken", '{"a": NaN}', "[" * 100_000])
def test_arguments_that_are_no_object_become_one(args: str) -> None:
    """Whatever a model wrote."""
    call = Message(role="assistant", tool_calls=(ToolCall("a", "look", args),))

    rendered = render(HELLO, call)

    assert list(rendered.body["messages"][1]["content"][0]["input"]) == ["arguments"]
    assert ("repaired", "arguments") in lost(rendered)


def test_an_output_schema_is_closed_and_without_limits() -> None:
    """Each rule that is not kept is told."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    rendered = render(HELLO, options={"output": {"schema": schema, "name": "N"}})

    form = rendered.body["output_config"]["format"]["schema"]
    assert form == {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    assert {"schema rule minimum", "open object", "output.name"} <= {what for _, what in lost(rendered)}


def test_json_without_a_schema_is_asked_for_in_words() -> None:
    """Anthropic has no other way, nor have its old models for a schema."""
    rendered = render(HELLO, system="Be brief.", options={"output": "json"})

    assert rendered.body["system"] == "Be brief.\n\nAnswer with one JSON object and nothing else."
    assert ("converted", "output") in lost(rendered)


def test_marks_for_the_cache_are_four_at_most() -> None:
    """Behind tools, system words and the last two turns of the user."""
    tools = [ToolSpec(name="a"), ToolSpec(name="b")]
    said = Message(role="assistant", content=(Text("Yes?"),))

    body = render(
        HELLO, said, HELLO, said, HELLO, system="Be brief.", tools=tools, options={"cache": True}
    ).body

    assert str(body).count("cache_control") == 4
    assert "cache_control" in body["tools"][1]


def test_a_last_assistant_turn_is_trimmed_or_followed() -> None:
    """Old models go on with it, new ones are asked to."""
    said = Message(role="assistant", content=(Text("So: \n"),))

    assert render(HELLO, said).body["messages"][1]["content"][0]["text"] == "So:"
    assert render(HELLO, said, model="claude-opus-4-8").body["messages"][2]["role"] == "user"


def test_a_history_of_nothing_is_still_a_request() -> None:
    """Empty messages go; something is asked."""
    rendered = render(Message(role="assistant"), Message(role="user", content=(Text(" "),)))

    assert rendered.body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Begin."}]}]


def test_server_tools_and_reasoning_of_others_are_told() -> None:
    """The one in words, the other not at all; both are losses."""
    block = account("web_search_call", "web_search", input={"query": "tides"})
    said = Message(role="assistant", content=(ReasoningSummary("Hm."), block, Text("Noon.")))

    rendered = render(HELLO, said, HELLO)

    texts = [block["text"] for block in rendered.body["messages"][1]["content"]]
    assert texts == ['[web_search: {"query": "tides"}]', "Noon."]
    assert lost(rendered) == {("converted", "server-side tool"), ("dropped", "reasoning")}


def test_options_that_anthropic_lacks_are_losses() -> None:
    """Seeds, penalties, other vendors' fields; a temperature above 1 is 1."""
    options = {"seed": 1, "temperature": 1.5, "vendor": {"openai-chat": {"store": True}}}
    rendered = render(HELLO, options=options)

    assert rendered.body["temperature"] == 1
    assert {loss.where for loss in rendered.losses} == {
        "options.seed",
        "options.temperature",
        "options.vendor.openai-chat.store",
    }


def test_system_messages_are_placed_by_model() -> None:
    """First ones are system words; later ones are the user's, or of the new role."""
    note = Message(role="system", content=(Text("Be kind."),))

    old, new = render(note, HELLO, note), render(note, HELLO, note, model="claude-opus-4-8")

    assert old.body["system"] == "Be kind."
    assert [turn["role"] for turn in old.body["messages"]] == ["user", "user"]
    assert [turn["role"] for turn in new.body["messages"]] == ["user", "system"]
