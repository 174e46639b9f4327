"""Options that a target does not take are left out with a loss, and a loss names its place."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model.context import Context
from holdfast.model.message import Image, Message, Text, ToolCall, ToolResult
from holdfast.providers import adapter

HELLO = (Message("user", (Text("Hello."),)),)


@pytest.mark.parametrize(
    "api", ["openai-chat", "openai-responses", "azure-inference-chat", "gemini-generate"]
)
def test_an_effort_that_only_others_know_is_left_out(api: str) -> None:
    """Groq's `default` is no word of OpenAI's."""
    context = Context(messages=HELLO, options={"reasoning": {"effort": "default"}})

    rendered = adapter(api).render(context, model="gpt-5")

    assert "default" not in str(rendered.body)
    assert [(loss.kind, loss.where) for loss in rendered.losses] == [("dropped", "options.reasoning.effort")]


@pytest.mark.parametrize("api", ["openai-chat", "openai-responses", "azure-inference-chat"])
def test_a_tier_that_only_others_know_is_left_out(api: str) -> None:
    """Groq's `on_demand` is no tier of OpenAI's."""
    rendered = adapter(api).render(
        Context(messages=HELLO, options={"service_tier": "on_demand"}), model="gpt-5"
    )

    assert "service_tier" not in rendered.body
    assert [(loss.kind, loss.where) for loss in rendered.losses] == [("dropped", "options.service_tier")]


def test_words_that_are_known_stay() -> None:
    """Control: efforts and tiers of its own are sent."""
    options: dict[str, Any] = {"service_tier": "flex", "reasoning": {"effort": "low"}}

    rendered = adapter("openai-responses").render(Context(messages=HELLO, options=options), model="gpt-5")

    assert rendered.body["service_tier"] == "flex"
    assert rendered.body["reasoning"] == {"effort": "low"}
    assert rendered.losses == ()


@pytest.mark.parametrize(("name", "value"), [("temperature", 0.0), ("top_p", 0), ("seed", 0)])
def test_zero_is_no_default(name: str, value: float) -> None:
    """What a thinking model does not take is a loss, also where it is nothing in Python's eyes."""
    rendered = adapter("openai-chat").render(Context(messages=HELLO, options={name: value}), model="gpt-5")

    assert rendered.body.get(name, None) == value or [loss.where for loss in rendered.losses] == [
        f"options.{name}"
    ]


def test_a_loss_in_a_result_names_the_result() -> None:
    """Of several in one message."""
    picture = Image("data:image/png;base64,iVBORw0KGgo=", "image/png")
    calls = (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))
    results = (ToolResult("a", "success", (Text("dark"),)), ToolResult("b", "success", (picture,)))
    told = Context(messages=[*HELLO, Message("assistant", (), calls), Message("tool", (), (), results)])

    losses = adapter("openai-chat").render(told, model="gpt-5").losses

    assert "messages[2].tool_results[1].content[0]" in [loss.where for loss in losses]


def test_a_whole_number_is_whole_for_everybody() -> None:
    """Gemini's 40.0 is 40."""
    asked = {
        "contents": [{"role": "user", "parts": [{"text": "Hello."}]}],
        "generationConfig": {"topK": 40.0},
    }

    options = adapter("gemini-generate").read_request(asked).options

    assert type(options["top_k"]) is int
