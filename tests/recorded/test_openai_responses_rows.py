"""The Responses API against recorded traffic: what was answered is read, and what was asked is asked again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.model.context import VENDOR_TOOLS
from perdure.model.message import ReasoningSummary
from perdure.providers.contract import Reply
from perdure.providers.openai_responses.adapter import ADAPTER
from tests.coded import raises
from tests.crash.campaign import sized
from tests.recorded.wire import Facts, Record, Wire, pieces

API = "openai-responses"

# Requests that come back otherwise than they were sent, each with the reason.
CHANGED = {
    "1cdf5283e48a-001": "an empty user message between a call and its result is left out",
    "2f31b5c2a681-002": "an empty message is left out",
    "2f31b5c2a681-003": "an empty message is left out",
    "4713143e5625-000": "an empty user message is all there is",
}


def read(record: Record, *, seed: int | None = None) -> Reply:
    """The answer of a record."""
    if not record.is_stream:
        return ADAPTER.parse(record.response, provider=record.provider)
    chunks = [record.body] if seed is None else pieces(record.body, seed=seed)
    return ADAPTER.parse_stream(chunks, provider=record.provider)


def accepted(wire: Wire) -> list[Record]:
    """Answers that are no errors."""
    return [each for each in wire.answers(API) if each.status == 200]


def told(reply: Reply) -> dict[str, Any]:
    """What a fact sheet tells, of a reply."""
    message = reply.message
    kept = json.loads(message.vendor_metadata or "{}")["openai"]
    return {
        "text": message.text,
        "thinking": "".join(block.text for block in message.content if isinstance(block, ReasoningSummary)),
        "calls": [
            (call.id, call.name, parsed(call.args))
            for call in message.tool_calls
            if call.name not in VENDOR_TOOLS  # the sheet lists them among OpenAI's own items
        ],
        "stop": reply.stop,
        "tokens": (reply.usage.input_tokens, reply.usage.output_tokens),
        "response_id": kept.get("response_id"),
    }


def expected(facts: Facts) -> dict[str, Any]:
    """The same of the sheet."""
    return {
        "text": facts.text or "",
        "thinking": facts.thinking or "",
        "calls": [(call["id"], call["name"], call["args"]) for call in facts.tool_calls],
        "stop": facts.stop,
        "tokens": (facts.input_tokens or 0, facts.output_tokens or 0),
        "response_id": facts.response_id,
    }


def parsed(args: str) -> object:
    """Arguments, or their text where they are no JSON."""
    try:
        return json.loads(args)
    except ValueError:
        return args


def same(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request without what says nothing."""
    return {key: value for key, value in body.items() if (key, value) != ("tools", [])}


def test_every_recorded_answer_is_read_as_its_fact_sheet_says(wire: Wire) -> None:
    """Text, reasoning, calls, arguments, stop reason and tokens are those of the sheet, without exception."""
    answers = accepted(wire)

    replies = {record.id: read(record) for record in answers}

    sheets = [wire.facts[record.id] for record in answers if record.id in wire.facts]
    assert len(sheets) >= 830
    assert [each.id for each in sheets if told(replies[each.id]) != expected(each)] == []


def test_an_error_is_no_answer(wire: Wire) -> None:
    """A recorded error is refused by name, not read as an empty answer."""
    errors = [each for each in wire.records(API) if each.status not in (200, None)]

    for record in errors:
        with raises(Invalid, "not_an_answer"):
            ADAPTER.parse(record.response)


@pytest.mark.parametrize("seed", sized([1], [1, 2]))
def test_a_stream_is_the_same_however_it_is_cut(wire: Wire, seed: int) -> None:
    """Chunks of any size tell the same, event for event."""
    streams = [record for record in accepted(wire) if record.is_stream]

    assert [each.id for each in streams if read(each, seed=seed) != read(each)] == []


def test_a_stream_is_the_same_byte_by_byte(wire: Wire) -> None:
    """Cut everywhere, also within characters, it tells the same."""
    streams = sorted((each for each in accepted(wire) if each.is_stream), key=lambda each: len(each.body))

    assert [each.id for each in streams[: sized(20, 60)] if read(each, seed=0) != read(each)] == []


def test_a_recorded_request_is_asked_again_as_it_was(wire: Wire) -> None:
    """Read and rendered for the same owner it is the same request, item for item."""
    changed: list[str] = []
    requests = wire.requests(API)

    for record in requests:
        request: dict[str, Any] = record.request or {}
        context = ADAPTER.read_request(request, model=record.model, provider=record.provider)
        rendered = ADAPTER.render(context, model=request["model"], provider=record.provider)
        if same(rendered.body) != same(request):
            changed.append(record.id)

    assert sorted(changed) == sorted(CHANGED)
    assert len(changed) <= 0.02 * len(requests)
