"""Ollama's native chat against recorded traffic: answers, facts, chunks, round trips."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.model.message import ReasoningSummary
from perdure.providers import adapter
from tests.crash.campaign import sized
from tests.recorded.chat_rows import chunked, read, round_trip
from tests.recorded.wire import Record, Wire

API = "ollama-chat"

# Requests that come back in another form, each with the reason.
OTHERWISE = {"2d8506534478-000": "its call and its result have no id, and get one"}


def raw(record: Record) -> dict[str, Any]:
    """What the server said, put together from the JSON alone."""
    lines: list[dict[str, Any]] = (
        [json.loads(line) for line in record.body.splitlines()] if record.is_stream else [record.response]
    )
    said = [line["message"] for line in lines]
    return {
        "text": "".join(each.get("content", "") for each in said),
        "thinking": "".join(each.get("thinking", "") for each in said),
        "calls": [
            (call["function"]["name"], call["function"]["arguments"])
            for each in said
            for call in each.get("tool_calls", [])
        ],
        "usage": (lines[-1].get("prompt_eval_count"), lines[-1].get("eval_count")),
        "stop": lines[-1]["done_reason"],
    }


def test_an_answer_is_what_its_json_says(wire: Wire) -> None:
    """Words, thinking, calls, tokens and the reason of the end, for every answer that was given."""
    answers = wire.answers(API)

    for record in answers:
        reply = read(adapter(API), record)
        thought = [block.text for block in reply.message.content if isinstance(block, ReasoningSummary)]
        told = {
            "text": reply.message.text,
            "thinking": "".join(thought),
            "calls": [(call.name, json.loads(call.args)) for call in reply.message.tool_calls],
            "usage": (reply.usage.input_tokens, reply.usage.output_tokens),
            "stop": reply.stop,
        }
        assert (record.id, told) == (record.id, raw(record))

    assert len(answers) == 9


@pytest.mark.parametrize("seed", sized([0, 1], [0, 1, 2, 3]))
def test_a_stream_cut_anywhere_is_the_same_answer(wire: Wire, seed: int) -> None:
    """Pieces of any size tell the same, in the same order, as the whole; with seed 0 each byte is one."""
    streams = [each for each in wire.answers(API) if each.is_stream]

    differ = [each.id for each in streams if chunked(adapter(API), each, seed) != read(adapter(API), each)]

    assert differ == []
    assert streams


def test_a_stream_that_lost_a_line_is_another_answer(wire: Wire) -> None:
    """Control: without one of its words an answer is not the same."""
    for record in (each for each in wire.answers(API) if each.is_stream):
        lines = record.body.splitlines(keepends=True)
        short = adapter(API).parse_stream([*lines[:5], *lines[6:]])
        assert short.message != read(adapter(API), record).message


def test_a_request_comes_back_with_the_same_meaning(wire: Wire) -> None:
    """Read and rendered for the server that took it, a request says the same; every exception is in the list."""
    changed = [each.id for each in wire.requests(API) if round_trip(adapter(API), each)]

    assert changed == list(OTHERWISE)


def test_an_answer_that_is_an_error_is_refused(wire: Wire) -> None:
    """A server that has no such model says so in words, which are no answer."""
    (record,) = [each for each in wire.records(API) if each.status == 404]

    with pytest.raises(Invalid):
        adapter(API).parse(record.response)
