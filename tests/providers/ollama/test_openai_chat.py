"""Where Ollama's native chat differs from OpenAI's Chat."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.model.context import Context, ToolSpec
from perdure.model.message import Image, Message, Text, ToolCall, ToolResult
from perdure.providers.contract import Rendered
from perdure.providers.ollama.adapter import ADAPTER

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SHOWN = Image(f"data:image/png;base64,{PNG}", "image/png")
HI = Message(role="user", content=(Text("hi"),))
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}


def rendered(*messages: Message, model: str = "qwen3:8b", **more: Any) -> Rendered:
    """The request for these messages."""
    return ADAPTER.render(Context(messages=messages or (HI,), **more), model=model)


def places(made: Rendered) -> list[str]:
    """Where something was lost."""
    return [loss.where for loss in made.losses]


@pytest.mark.parametrize(
    ("model", "reasoning", "think", "lost"),
    [
        ("gpt-oss:20b", {"effort": "high"}, "high", []),
        ("library/gpt-oss:120b", {"effort": "xhigh"}, "high", ["options.reasoning.effort"]),
        ("gpt-oss:20b", {"budget_tokens": 2_000}, "medium", ["options.reasoning.budget_tokens"]),
        ("gpt-oss:20b", {"enabled": False}, "low", ["options.reasoning.enabled"]),
        ("gpt-oss:20b", {"effort": "frantic"}, None, ["options.reasoning.effort"]),
        ("qwen3:8b", {"effort": "high"}, True, ["options.reasoning.effort"]),
        ("qwen3:8b", {"effort": "none"}, False, []),
        ("qwen3:8b", {"enabled": True}, True, []),
        ("qwen3:8b", {"budget_tokens": 2_000}, True, ["options.reasoning.budget_tokens"]),
        ("qwen3:8b", {"summary": "auto"}, None, ["options.reasoning.summary"]),
        ("not-gptossified", {"effort": "low"}, True, ["options.reasoning.effort"]),
    ],
)
def test_a_level_of_thinking_goes_to_the_models_that_have_levels(
    model: str, reasoning: dict[str, Any], think: object, lost: list[str]
) -> None:
    """Other models refuse a level, and are told to think or not."""
    made = rendered(model=model, options={"reasoning": reasoning})

    assert made.body.get("think") == think
    assert places(made) == lost


def test_a_schema_stands_alone() -> None:
    """Its name, its description and `strict` are lost, and said to be."""
    output = {"schema": SCHEMA, "name": "place", "description": "Where.", "strict": True}

    made = rendered(options={"output": output})

    assert made.body["format"] == SCHEMA
    assert places(made) == [f"options.output.{name}" for name in ("name", "description", "strict")]


def test_a_schema_of_its_own_comes_back_without_a_loss() -> None:
    """Control: the adapter invents no name for it."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "format": SCHEMA, "stream": False}

    made = ADAPTER.render(ADAPTER.read_request(body), model="m")

    assert (made.body, made.losses) == (body, ())


@pytest.mark.parametrize("choice", ["none", "required", {"name": "look"}])
def test_a_choice_of_tools_is_lost(choice: object) -> None:
    """There is none; `strict` of a tool is none either."""
    tools = [ToolSpec(name="look", parameters=SCHEMA, strict=True)]

    made = rendered(tools=tools, options={"tool_choice": choice})

    assert "tool_choice" not in made.body
    assert sorted(places(made)) == ["options.tool_choice", "tools[0].strict"]


def test_images_stand_behind_the_words() -> None:
    """An image that stood before words has moved; one behind all words has not."""
    words = (Text("Before."), SHOWN, Text("After."), SHOWN)

    made = rendered(Message(role="user", content=words))

    assert made.body["messages"] == [{"role": "user", "content": "Before.\n\nAfter.", "images": [PNG, PNG]}]
    assert places(made) == ["messages[0].content[1]"]


def test_a_result_names_its_tool() -> None:
    """For calls of any model: the templates of models show the name."""
    call = Message(role="assistant", tool_calls=(ToolCall("toolu_1", "look", '{"city": "Rome"}'),))
    result = Message(role="tool", tool_results=(ToolResult("toolu_1", "success", (Text("sunny"),)),))

    called, answered = rendered(HI, call, result).body["messages"][1:]

    assert called["tool_calls"] == [
        {"id": "toolu_1", "function": {"name": "look", "arguments": {"city": "Rome"}}}
    ]
    assert answered == {"role": "tool", "content": "sunny", "tool_call_id": "toolu_1", "tool_name": "look"}


@pytest.mark.parametrize(
    ("results", "told"),
    [
        ([{"content": "1"}, {"content": "2"}], ["1", "2"]),
        ([{"content": "2", "tool_name": "listen"}, {"content": "1"}], ["1", "2"]),
        ([{"content": "2", "tool_name": "listen"}, {"content": "1", "tool_name": "look"}], ["1", "2"]),
    ],
)
def test_a_result_without_an_id_is_that_of_the_first_open_call(
    results: list[dict[str, Any]], told: list[str]
) -> None:
    """Of its tool, where it names one."""
    calls = [{"function": {"name": name, "arguments": {}}} for name in ("look", "listen")]
    messages = [{"role": "assistant", "content": "", "tool_calls": calls}]

    read = ADAPTER.read_request({"messages": [*messages, *({"role": "tool", **each} for each in results)]})

    ids = [call.id for call in read.messages[0].tool_calls]
    texts = {each.call_id: each.content for message in read.messages for each in message.tool_results}
    assert [texts[id] for id in ids] == [(Text(text),) for text in told]


def test_options_go_back_where_they_stood() -> None:
    """Those that other vendors have are canonical; the rest is Ollama's."""
    options = {"num_ctx": 4_096, "num_predict": -1, "stop": ["x"], "seed": 3, "mirostat": 1}
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "options": options,
        "keep_alive": 0,
    }

    read = ADAPTER.read_request(body)

    assert {name: read.options[name] for name in ("stop", "seed")} == {"stop": ["x"], "seed": 3}
    assert "max_tokens" not in read.options  # -1 is no number of tokens
    assert ADAPTER.render(read, model="m").body == {**body, "stream": True}


@pytest.mark.parametrize("line", [b"[]", b"{"])
def test_a_line_that_is_no_piece_of_an_answer_is_refused(line: bytes) -> None:
    """What is no object."""
    piece = b'{"model": "m", "message": {"role": "assistant", "content": "a"}, "done": false}'

    with pytest.raises(Invalid):
        ADAPTER.parse_stream([piece + b"\n" + line + b"\n"])


def test_a_stream_that_is_cut_off_has_no_end() -> None:
    """What was said is kept, and no reason is made up for the end."""
    piece = b'{"model": "m", "message": {"role": "assistant", "content": "a"}, "done": false}\n'

    reply = ADAPTER.parse_stream([piece, b'{"model": "m", "mess'])

    assert (reply.message.text, reply.stop) == ("a", None)
