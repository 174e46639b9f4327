"""What others wrote comes back byte for byte; our own values keep our rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure import Message, Text, Thread, ToolCall, ToolResult
from perdure.errors import Invalid
from perdure.model.message import view
from tests.coded import raises

RAW = [
    '{"big":9007199254740993,"bigger":123456789012345678901234567890}',
    '{"one":1.0,"ten":1e1,"minus":-0.0}',
    '{"b":1,"a":2}',
    '{ "spaces" :  [ 1 ,2 ] }',
    '{"twice":1,"twice":2}',
    '{"lone":"\\ud800"}',
    '{"lone":"\ud800 and \udfff"}',
    '{"unicode":"Ångström 𝄞"}',
    "not JSON at all",
    "",
]


@pytest.mark.parametrize("raw", RAW, ids=range(len(RAW)))
def test_arguments_and_vendor_metadata_come_back_byte_for_byte(thread: Thread, raw: str) -> None:
    """Raw text is one string, never encoded again."""
    with thread.change("step") as change:
        change.say("assistant", "…", tool_calls=[ToolCall("call-1", "book", raw)], vendor_metadata=raw)

    said = thread.transcript()[0].message

    assert said.tool_calls[0].args == raw
    assert said.vendor_metadata == raw


def test_a_result_keeps_its_text_and_lone_surrogates_in_words_are_replaced(thread: Thread) -> None:
    """Words are text, so half a character becomes U+FFFD; the raw arguments beside them stay as they came."""
    lone = '{"x":"\ud83d"}'
    with thread.change("step") as change:
        change.say("assistant", "half \ud83d", tool_calls=[ToolCall("call-1", "book", lone)])
        change.say("tool", tool_results=[ToolResult("call-1", "success", (Text("half \ud83d"),))])

    asked, answered = (entry.message for entry in thread.transcript())

    assert asked.text == "half \ufffd"
    assert asked.tool_calls[0].args == lone
    assert answered.tool_results[0].content == (Text("half \ufffd"),)


def test_the_documents_shape_is_restored_by_a_view(thread: Thread) -> None:
    """Parsed views put arguments and vendorMetadata in their place, big integers exact."""
    with thread.change("step") as change:
        message = Message(
            "assistant", (), (ToolCall("c", "t", RAW[0]),), vendor_metadata='{"openai":{"id":1}}'
        )
        change.add(message)

    shape = view(thread.transcript()[0].message)

    assert shape["toolCalls"][0]["args"] == json.loads(RAW[0])
    assert shape["vendorMetadata"] == {"openai": {"id": 1}}


def deep(levels: int) -> Any:
    """A list in a list in a list …"""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


REFUSED: dict[str, tuple[Any, str]] = {
    "too large": (2**53, "json_integer_too_large"),
    "too small": (-(2**53), "json_integer_too_large"),
    "nan": (float("nan"), "json_not_finite"),
    "infinity": (float("inf"), "json_not_finite"),
    "minus infinity": (float("-inf"), "json_not_finite"),
    "lone surrogate": ("\ud800", "lone_surrogate"),
    "lone surrogate in a key": ({"\udfff": 1}, "lone_surrogate"),
    "tuple": ((1, 2), "json_type_unsupported"),
    "set": ({1}, "json_type_unsupported"),
    "object": (object(), "json_type_unsupported"),
    "key that is no string": ({1: 1}, "json_key_not_text"),
    "too deep": (deep(65), "json_too_deep"),
}


@pytest.mark.parametrize(("value", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_our_own_values_are_refused_before_anything_is_written(thread: Thread, value: Any, code: str) -> None:
    """By themselves and inside a document, by put, replace and document ops."""
    thread.put("/list.json", [])
    before = thread.head

    with raises(Invalid, code):
        thread.put("/bad.json", value)
    with raises(Invalid, code):
        thread.put("/bad.json", {"inside": [value]})
    with raises(Invalid, code), thread.change("append") as change:
        change.append("/list.json", value)
    with raises(Invalid, code), thread.change("replace") as change:
        change.replace({"/a.json": value})

    assert thread.head == before


@pytest.mark.parametrize(
    "value",
    [2**53 - 1, -(2**53) + 1, 0.1, 1e300, 5e-324, -0.0, deep(64), "𝄞", "\ufffd", "", None, [], {}],
    ids=repr,
)
def test_what_the_rules_allow_comes_back_the_same(thread: Thread, value: Any) -> None:
    """Control: the edges of what is allowed are not refused."""
    thread.put("/good.json", value)

    found = thread.get("/good.json")

    assert found == value
    assert type(found) is type(value)


def test_one_and_one_point_nought_are_two_values(thread: Thread) -> None:
    """So are true and 1; -0.0 is 0.0."""
    roots = {thread.put("/n.json", value) and thread.root for value in (1, 1.0, True, 0.0, -0.0)}

    assert len(roots) == 4
