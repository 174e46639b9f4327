"""Options that a target does not take are left out with a loss, and a loss names its place."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from perdure.model.context import Context, ToolSpec
from perdure.model.message import Image, Message, Text, ToolCall, ToolResult
from perdure.providers import adapter

HELLO = (Message("user", (Text("Hello."),)),)


@pytest.mark.parametrize(
    "api", ["openai-chat", "openai-responses", "azure-inference-chat", "gemini-generate"]
)
def test_an_effort_that_only_others_know_is_left_out(api: str) -> None:
    """Groq's `default` is no word of OpenAI's."""
    context = Context(messages=HELLO, options={"reasoning": {"effort": "default"}})

    rendered = adapter(api).render(context, model="gpt-5.6")

    assert "default" not in str(rendered.body)
    assert [(loss.kind, loss.where) for loss in rendered.losses] == [("dropped", "options.reasoning.effort")]


@pytest.mark.parametrize("api", ["openai-chat", "openai-responses", "azure-inference-chat"])
def test_a_tier_that_only_others_know_is_left_out(api: str) -> None:
    """Groq's `on_demand` is no tier of OpenAI's."""
    rendered = adapter(api).render(
        Context(messages=HELLO, options={"service_tier": "on_demand"}), model="gpt-5.6"
    )

    assert "service_tier" not in rendered.body
    assert [(loss.kind, loss.where) for loss in rendered.losses] == [("dropped", "options.service_tier")]


def test_words_that_are_known_stay() -> None:
    """Control: efforts and tiers of its own are sent."""
    options: dict[str, Any] = {"service_tier": "flex", "reasoning": {"effort": "low"}}

    rendered = adapter("openai-responses").render(Context(messages=HELLO, options=options), model="gpt-5.6")

    assert rendered.body["service_tier"] == "flex"
    assert rendered.body["reasoning"] == {"effort": "low"}
    assert rendered.losses == ()


@pytest.mark.parametrize(("name", "value"), [("temperature", 0.0), ("top_p", 0), ("seed", 0)])
def test_zero_is_no_default(name: str, value: float) -> None:
    """What a thinking model does not take is a loss, also where it is nothing in Python's eyes."""
    rendered = adapter("openai-chat").render(Context(messages=HELLO, options={name: value}), model="gpt-5.6")

    assert rendered.body.get(name, None) == value or [loss.where for loss in rendered.losses] == [
        f"options.{name}"
    ]


def test_a_loss_in_a_result_names_the_result() -> None:
    """Of several in one message."""
    picture = Image("data:image/png;base64,iVBORw0KGgo=", "image/png")
    calls = (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))
    results = (ToolResult("a", "success", (Text("dark"),)), ToolResult("b", "success", (picture,)))
    told = Context(messages=[*HELLO, Message("assistant", (), calls), Message("tool", (), (), results)])

    losses = adapter("openai-chat").render(told, model="gpt-5.6").losses

    assert "messages[2].tool_results[1].content[0]" in [loss.where for loss in losses]


def test_a_whole_number_is_whole_for_everybody() -> None:
    """Gemini's 40.0 is 40."""
    asked = {
        "contents": [{"role": "user", "parts": [{"text": "Hello."}]}],
        "generationConfig": {"topK": 40.0},
    }

    options = adapter("gemini-generate").read_request(asked).options

    assert type(options["top_k"]) is int


CHAT_FIELDS: dict[str, Any] = {"provider": {"order": ["x"]}, "usage": {"include": True}}


@pytest.mark.parametrize(
    ("provider", "taken"), [("openrouter", True), ("openai", False), ("together", False)]
)
def test_routing_goes_to_the_router_alone(provider: str, taken: bool) -> None:
    """OpenRouter's `provider` is sent there; another server of the same format would refuse it."""
    context = Context(messages=HELLO, options={"vendor": {"openai-chat": CHAT_FIELDS}})

    rendered = adapter("openai-chat").render(context, model="m", provider=provider)

    lost = {loss.where for loss in rendered.losses}
    assert ("provider" in rendered.body) is taken
    assert ("options.vendor.openai-chat.provider" in lost) is not taken


@pytest.mark.parametrize(
    ("provider", "taken"), [("google-vertex", True), ("anthropic", False), (None, False)]
)
def test_the_version_that_vertex_wants_goes_to_vertex_alone(provider: str | None, taken: bool) -> None:
    """Anthropic's own server refuses a body with it."""
    options: dict[str, Any] = {"vendor": {"anthropic-messages": {"anthropic_version": "vertex-2023-10-16"}}}

    rendered = adapter("anthropic-messages").render(
        Context(messages=HELLO, options=options), model="claude-sonnet-5-5", provider=provider
    )

    lost = [loss.where for loss in rendered.losses]
    assert ("anthropic_version" in rendered.body) is taken
    assert lost == ([] if taken else ["options.vendor.anthropic-messages.anthropic_version"])


@pytest.mark.parametrize(
    ("api", "provider", "tier", "taken"),
    [
        ("openai-chat", "groq", "on_demand", True),
        ("openai-chat", "openai", "flex", True),
        ("openai-chat", "deepseek", "flex", False),
        ("openai-chat", "a-server-of-ours", "auto", False),
        ("openai-responses", "openai", "flex", True),
        ("openai-responses", "xai", "flex", False),
        ("anthropic-messages", "anthropic", "standard_only", True),
        ("anthropic-messages", "google-vertex", "standard_only", False),
        ("mistral-chat", "mistral", "priority", False),
    ],
)
def test_a_tier_goes_where_its_word_is_known(api: str, provider: str, tier: str, taken: bool) -> None:
    """A server that is not known to have tiers is sent none."""
    context = Context(messages=HELLO, options={"service_tier": tier})

    rendered = adapter(api).render(context, model="m", provider=provider)

    assert (rendered.body.get("service_tier") == tier) is taken
    assert [loss.where for loss in rendered.losses] == ([] if taken else ["options.service_tier"])


@pytest.mark.parametrize(
    ("provider", "taken"),
    [("openrouter", True), ("vllm", True), ("groq", False), ("deepseek", False), ("a-server-of-ours", False)],
)
def test_top_k_goes_where_it_is_known(provider: str, taken: bool) -> None:
    """Most servers of the format refuse a field that OpenAI does not have, and are not called able."""
    chat = adapter("openai-chat")

    rendered = chat.render(Context(messages=HELLO, options={"top_k": 5}), model="m", provider=provider)

    assert ("top_k" in rendered.body) is taken
    assert [loss.where for loss in rendered.losses] == ([] if taken else ["options.top_k"])
    assert chat.supports("top_k", model="m", provider=provider) == ("full" if taken else "none")


@pytest.mark.parametrize(("asked", "sent"), [(1, 16), (15, 16), (16, 16), (500, 500)])
def test_responses_are_asked_for_sixteen_tokens_at_least(asked: int, sent: int) -> None:
    """The API refuses less."""
    context = Context(messages=HELLO, options={"max_tokens": asked})

    rendered = adapter("openai-responses").render(context, model="gpt-5.6")

    assert rendered.body["max_output_tokens"] == sent
    assert [loss.where for loss in rendered.losses] == ([] if asked == sent else ["options.max_tokens"])


LOOK = ToolSpec(name="look", parameters={"type": "object", "properties": {}})
FORM: dict[str, Any] = {"schema": {"type": "object", "properties": {"answer": {"type": "string"}}}}


@pytest.mark.parametrize("output", ["json", FORM])
@pytest.mark.parametrize(
    ("model", "tools", "in_words"),
    [("gemini-2.5-flash", [LOOK], True), ("gemini-2.5-flash", [], False), ("gemini-3-pro", [LOOK], False)],
)
def test_before_gemini_3_json_beside_functions_is_asked_for_in_words(
    model: str, tools: list[ToolSpec], in_words: bool, output: Any
) -> None:
    """The service refuses functions together with a form of the answer."""
    context = Context(system="Be brief.", messages=HELLO, tools=tools, options={"output": output})

    rendered = adapter("gemini-generate").render(context, model=model)

    assert ("responseMimeType" not in rendered.body.get("generationConfig", {})) is in_words
    assert ("JSON" in str(rendered.body["systemInstruction"])) is in_words
    assert ("Be brief." in str(rendered.body["systemInstruction"])) is True
    assert [loss.where for loss in rendered.losses] == (["options.output"] if in_words else [])


BLANK = (
    Message("user", (Text("Look."), Text("  "))),
    Message("assistant", (Text("\n\n"),), (ToolCall("c1", "look", "{}"),)),
    Message("tool", (), (), (ToolResult("c1", "success", (Text(" "),)),)),
    Message("assistant", (Text(" \n"),)),
    Message("user", (Text("And now?"),)),
)


@pytest.mark.parametrize(
    ("api", "model"),
    [
        ("anthropic-messages", "claude-sonnet-5-5"),
        ("anthropic-messages", "claude-opus-4-6"),
        ("bedrock-converse", "anthropic.claude-sonnet-5-5"),
    ],
)
def test_no_text_of_white_space_only_reaches_claude(api: str, model: str) -> None:
    """In no turn, no result, no system block and no stop; each is a loss."""
    vendor = {"anthropic-messages": {"system": [{"type": "text", "text": " "}]}}
    options: dict[str, Any] = {"stop": [" ", "END"], "vendor": vendor}

    rendered = adapter(api).render(Context(system=" ", messages=BLANK, options=options), model=model)

    texts = re.findall(
        r'"(?:text|content|stopSequences|stop_sequences)": ?\[?"([^"]*)"', json.dumps(rendered.body)
    )
    assert [text for text in texts if not text.replace("\\n", "").strip()] == []
    lost = {loss.where for loss in rendered.losses}
    assert lost >= {
        "messages[0].content[1]",
        "messages[1].content[0]",
        "messages[3].content[0]",
        "options.stop",
    }
    assert "messages[2].tool_results[0].content[0]" in lost


def test_a_file_of_anthropics_is_not_sent_to_vertex() -> None:
    """Its id means nothing there; the file is named in words."""
    message = Message("user", (Image("file-id://anthropic/file_1", "image/png"),))
    render = adapter("anthropic-messages").render
    context = Context(messages=(message,))

    home = render(context, model="claude-sonnet-5-5", provider="anthropic")
    vertex = render(context, model="claude-sonnet-5-5", provider="google-vertex")

    assert "file_1" in str(home.body["messages"][0]["content"][0]["source"])
    assert vertex.body["messages"][0]["content"][0]["type"] == "text"
    assert [loss.what for loss in (*home.losses, *vertex.losses)] == ["image"]
