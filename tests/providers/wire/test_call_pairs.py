"""Exchanges: each call under an id of its own, with exactly one result."""

from __future__ import annotations

from perdure.model.message import Message, Text, ToolCall, ToolResult
from perdure.providers.wire.call_pairs import exchanges


def test_calls_that_share_an_id_are_told_apart() -> None:
    """The second one gets its own, its result goes with it, and the report says so."""
    call = Message("assistant", tool_calls=(ToolCall("a", "f", "{}"),))
    results = [
        Message("tool", tool_results=(ToolResult("a", "success", (Text(word),)),)) for word in ("x", "y")
    ]

    found, losses = exchanges([call, results[0], call, results[1]])

    answers = [exchange.answers[0] for exchange in found]
    assert [answer.call.id for answer in answers] == ["a", "a~2"]
    assert [answer.result for answer in answers] == [
        ToolResult("a", "success", (Text("x"),)),
        ToolResult("a~2", "success", (Text("y"),)),
    ]
    assert [(loss.kind, loss.where) for loss in losses] == [("repaired", "messages[2].tool_calls[0]")]
