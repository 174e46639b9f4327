"""Options of Gemini's Interactions API, in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.model.context import Context, ToolSpec
from perdure.model.message import Message, Text
from perdure.providers.contract import Rendered
from perdure.providers.gemini_interactions.adapter import ADAPTER

HI = Message(role="user", content=(Text("hi"),))
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
LOOK = ToolSpec(name="look", description="Looks.", parameters=SCHEMA)
AGENT = "deep-research-pro-preview-12-2025"


def rendered(model: str = "gemini-3-pro", **more: Any) -> Rendered:
    """The request for one question."""
    return ADAPTER.render(Context(messages=(HI,), **more), model=model)


def places(made: Rendered) -> list[str]:
    """Where something was lost."""
    return [loss.where for loss in made.losses]


@pytest.mark.parametrize(
    ("reasoning", "level", "lost"),
    [
        ({"effort": "low"}, "low", []),
        ({"effort": "none"}, "minimal", ["options.reasoning.effort"]),
        ({"effort": "xhigh"}, "high", ["options.reasoning.effort"]),
        ({"effort": "frantic"}, None, ["options.reasoning.effort"]),
        ({"budget_tokens": 4_000}, "medium", ["options.reasoning.budget_tokens"]),
        ({"enabled": False}, "minimal", ["options.reasoning.enabled"]),
        ({"summary": "detailed"}, None, ["options.reasoning.summary"]),
    ],
)
def test_how_much_a_model_thinks_is_a_level(
    reasoning: dict[str, Any], level: str | None, lost: list[str]
) -> None:
    """What has another name or no name here is reported."""
    made = rendered(options={"reasoning": reasoning})

    assert made.body.get("generation_config", {}).get("thinking_level") == level
    assert places(made) == lost


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "any"),
        ({"name": "look"}, {"allowed_tools": {"mode": "any", "tools": ["look"]}}),
    ],
)
def test_a_choice_of_tools_comes_back(choice: Any, told: Any) -> None:
    """Rendered and read again it is the same."""
    made = rendered(tools=(LOOK,), options={"tool_choice": choice})

    assert made.body["generation_config"]["tool_choice"] == told
    assert ADAPTER.read_request(made.body).options["tool_choice"] == choice
    assert made.losses == ()


def test_a_schema_stands_alone() -> None:
    """Its name and `strict` are lost, and said to be."""
    output = {"schema": SCHEMA, "name": "place", "strict": True}

    made = rendered(options={"output": output})

    assert made.body["response_format"] == {
        "type": "text",
        "mime_type": "application/json",
        "schema": SCHEMA,
    }
    assert ADAPTER.read_request(made.body).options["output"] == {"schema": SCHEMA}
    assert places(made) == ["options.output.name", "options.output.strict"]


def test_the_older_form_of_a_schema_is_read() -> None:
    """The schema itself, and its media type beside it."""
    body = {"model": "m", "input": "hi", "response_format": SCHEMA, "response_mime_type": "application/json"}

    options = ADAPTER.read_request(body).options

    assert options == {"output": {"schema": SCHEMA}}


def test_json_beside_functions_is_asked_for_in_words_before_the_third_generation() -> None:
    """Older models take no form of the answer beside functions."""
    old, new = (
        rendered(model, tools=(LOOK,), options={"output": "json"})
        for model in ("gemini-2.5-flash", "gemini-3-pro")
    )

    assert "JSON" in old.body["system_instruction"]
    assert "response_format" not in old.body
    assert new.body["response_format"] == {"type": "text", "mime_type": "application/json"}
    assert (places(old), places(new)) == (["options.output"], [])


def test_an_agent_is_asked_in_place_of_a_model() -> None:
    """It takes no settings of the generation, each of which is reported."""
    own = {"agent": AGENT, "background": True, "generation_config": {"speech_config": {"voice": "Puck"}}}
    options = {"temperature": 0.5, "vendor": {"gemini-interactions": own}}

    made = rendered(AGENT, options=options)

    asked = {"input": [{"type": "user_input", "content": [{"type": "text", "text": "hi"}]}]}
    assert made.body == {**asked, "agent": AGENT, "background": True}
    vendor = "options.vendor.gemini-interactions.generation_config.speech_config"
    assert places(made) == ["options.temperature", vendor]


@pytest.mark.parametrize(("is_background", "is_streamed"), [(True, False), (False, True)])
def test_an_answer_in_the_background_is_asked_for_whole(is_background: bool, is_streamed: bool) -> None:
    """Its id comes at once, and the answer is fetched by it."""
    vendor = {"gemini-interactions": {"background": is_background}}

    made = rendered(options={"stream": True, "vendor": vendor})

    assert made.body["stream"] is is_streamed
    assert places(made) == (["options.stream"] if is_background else [])


def test_options_of_other_apis_are_reported() -> None:
    """None of them goes out, and none goes in silence."""
    others = {"top_k": 3, "logprobs": True, "n": 2, "service_tier": "scale", "metadata": {"a": "b"}}

    made = rendered(options=others)

    assert set(made.body) == {"model", "input"}
    assert sorted(places(made)) == sorted(f"options.{name}" for name in others)


def test_fields_of_googles_own_stay() -> None:
    """What only this API has is read, kept and sent again."""
    body = {
        "model": "gemini-3-pro",
        "input": "hi",
        "store": False,
        "service_tier": "flex",
        "labels": {"team": "a"},
        "tools": [{"type": "google_search"}, {"type": "function", "name": "look", "parameters": SCHEMA}],
        "generation_config": {
            "seed": 7,
            "thinking_summaries": "none",
            "image_config": {"aspect_ratio": "1:1"},
        },
    }

    context = ADAPTER.read_request(body)

    assert ADAPTER.render(context, model="gemini-3-pro").body == body
    assert (context.options["seed"], context.options["service_tier"]) == (7, "flex")


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m"},
        {"model": "m", "input": 7},
        {"model": "m", "input": [{"content": "hi"}]},
        {"model": "m", "input": [{"type": "function_result", "result": "rain"}]},
        {"model": "m", "input": [{"type": "function_call", "id": "c1"}]},
        {"model": "m", "input": "hi", "tools": [{"name": "look"}]},
    ],
)
def test_what_is_no_request_is_refused(body: dict[str, Any]) -> None:
    """Nothing is guessed."""
    with pytest.raises(Invalid):
        ADAPTER.read_request(body)
