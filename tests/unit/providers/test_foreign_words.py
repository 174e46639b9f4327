"""Options in another vendor's words are left out with a loss, not sent on."""

from __future__ import annotations

import pytest

from holdfast.model.context import Context
from holdfast.model.message import Message, Text
from holdfast.providers import adapter

HELLO = (Message("user", (Text("Hello."),)),)


@pytest.mark.parametrize("api", ["openai-chat", "openai-responses", "azure-inference-chat"])
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
    options = {"service_tier": "flex", "reasoning": {"effort": "low"}}

    rendered = adapter("openai-responses").render(Context(messages=HELLO, options=options), model="gpt-5")

    assert rendered.body["service_tier"] == "flex"
    assert rendered.body["reasoning"] == {"effort": "low"}
    assert rendered.losses == ()
