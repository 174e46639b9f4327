"""A rendered request is a copy: changing it does not change the context."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest

from perdure.model.context import Context, ToolSpec
from perdure.model.message import File, Message, Text, ToolCall, ToolResult
from perdure.providers import adapter, registry

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo"]}}}


def spoiled(value: Any) -> None:
    """Everything in a value taken out of it."""
    if isinstance(value, dict):
        for each in list(cast("dict[str, Any]", value).values()):
            spoiled(each)
        value.clear()
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            spoiled(each)
        value.clear()


@pytest.mark.parametrize("api", registry.APIS)
def test_a_request_shares_nothing_with_its_context(api: str) -> None:
    """Schemas of tools and of the answer, and options of one vendor, stay when the request is emptied."""
    vendor: Any = {api: {"knob": {"deep": [1, 2]}}}
    context = Context(
        messages=(Message("user", (Text("Hi."),)),),
        tools=(ToolSpec(name="look", parameters=copy.deepcopy(SCHEMA)),),
        options={"output": {"name": "it", "schema": copy.deepcopy(SCHEMA)}, "stop": ["x"], "vendor": vendor},
    )
    before = copy.deepcopy(context)

    body = adapter(api).render(context, model="m").body
    spoiled(body)

    assert body == {}
    assert context == before


@pytest.mark.parametrize("api", registry.APIS)
def test_what_is_lost_of_a_result_is_named_where_it_stands(api: str) -> None:
    """By message, result and block: here the second block of the second result."""
    calls = tuple(ToolCall(f"call0000{at}", "look", "{}") for at in (1, 2))
    odd = File("data:application/x-odd;base64,AAECAw==", "application/x-odd")
    results = (
        ToolResult(calls[0].id, "success", (Text("One."),)),
        ToolResult(calls[1].id, "success", (Text("Two."), odd)),
    )
    history = (
        Message("user", (Text("Look."),)),
        Message("assistant", (), calls),
        Message("tool", (), (), results),
    )

    losses = adapter(api).render(Context(messages=history), model="m").losses

    told = [loss.where for loss in losses if loss.what in ("file", "media")]
    if api == "openai-responses":  # it takes any file
        assert told == []
    else:
        assert set(told) == {"messages[2].tool_results[1].content[1]"}
