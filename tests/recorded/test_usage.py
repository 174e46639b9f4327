"""Usage means the same for every vendor: with the cache in the input, and the reasoning in the output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.model.run import Usage
from perdure.providers import adapter
from tests.recorded.wire import Record, Wire

TOTALS = {  # the field with which a vendor adds up what it counted
    "gemini-generate": "totalTokenCount",
    "gemini-interactions": "total_tokens",
    "openai-chat": "total_tokens",
    "openai-responses": "total_tokens",
    "bedrock-converse": "totalTokens",
}


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of a JSON value, in order."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(each)


def answers(wire: Wire, api: str, field: str) -> Iterator[tuple[Record, dict[str, Any], Usage]]:
    """Answers in one piece that count their tokens, each with the vendor's counts and with ours."""
    for record in wire.answers(api):
        if record.is_stream or not isinstance(record.response, dict):
            continue
        own = record.response.get("usage") or record.response.get("usageMetadata") or {}
        told = [each for each in (own, *objects(record.response)) if isinstance(each.get(field), int)]
        if told:
            yield record, told[0], adapter(api).parse(record.response, provider=record.provider).usage


@pytest.mark.parametrize("api", TOTALS)
def test_input_and_output_are_the_total_that_the_vendor_reports(wire: Wire, api: str) -> None:
    """Nothing is counted twice, and nothing that is paid for is left out."""
    found = list(answers(wire, api, TOTALS[api]))

    wrong = [
        (record.id, json.dumps(told), usage)
        for record, told, usage in found
        if usage.input_tokens + usage.output_tokens != told[TOTALS[api]]
    ]
    assert found
    assert wrong == []


def test_what_anthropic_counts_beside_the_input_is_a_part_of_it(wire: Wire) -> None:
    """Reads from the cache and writes to it; some answers have them, else this would prove nothing."""
    found = list(answers(wire, "anthropic-messages", "input_tokens"))

    for _, told, usage in found:
        beside = [told.get(f"cache_{name}_input_tokens") or 0 for name in ("read", "creation")]
        assert usage.input_tokens == told["input_tokens"] + sum(beside)
        assert [usage.cached_tokens, usage.cache_write_tokens] == beside
    assert any(usage.cached_tokens or usage.cache_write_tokens for _, _, usage in found)
