"""Estimates of tokens against the `usage` that vendors reported for recorded requests.

Only requests of text are compared: no pictures or files, no tools that the server runs, no context
that the server keeps, cuts or adds, and no sealed reasoning, whose size is unknown.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from perdure.model.context import Context
from perdure.providers import tokens
from perdure.providers.registry import APIS
from perdure.providers.token_measures import FAMILIES, Family, family
from tests.recorded.pairs import context_of
from tests.recorded.wire import Record, Wire

COVERED = 0.95
NOT_TEXT = {
    *("images", "documents", "audio", "video", "file_ids", "file_uri", "image_output", "audio_output"),
    *("tool_result_media", "builtin_tools", "builtin_tool_history", "previous_response_id", "citations"),
}
SERVED = {  # requests whose context is not all in the request
    *("context_management", "conversation", "prompt", "preset", "plugins", "usage", "web_search_options"),
    *("truncation", "container", "tools"),
}
CACHE_COUNTERS = {  # that are not part of the input tokens
    "anthropic-messages": ("cache_read_input_tokens", "cache_creation_input_tokens"),
    "bedrock-converse": ("cacheReadInputTokens", "cacheWriteInputTokens"),
}


class Measured(NamedTuple):
    """One request: what was estimated and what was reported."""

    record: Record
    tooled: bool
    estimate: tokens.Tokens
    reported: float

    @property
    def held(self) -> bool:
        """Whether the stated margin covers the difference."""
        return abs(self.estimate.count - self.reported) <= self.estimate.margin


def is_text(record: Record, context: Context) -> bool:
    """Whether all that the model is shown stands in the request, in words."""
    vendor: Any = context.options.get("vendor") or {}
    beside = {key for fields in vendor.values() for key, value in fields.items() if value}
    sealed = "sealed" in tokens.count(context, model="").how
    return not (NOT_TEXT & set(record.features) or SERVED & beside or sealed)


def reported(record: Record, counted: float) -> float:
    """The input tokens, those of the cache included."""
    text = record.response if isinstance(record.response, str) else json.dumps(record.response)
    for name in CACHE_COUNTERS.get(record.api, ()):
        counted += max((int(found) for found in re.findall(rf'"{name}":\s*(\d+)', text)), default=0)
    return counted


def measured(wire: Wire) -> Iterator[Measured]:
    """Every request of text whose tokens were reported."""
    for record in wire.requests(*APIS):
        facts = wire.facts.get(record.id)
        if facts is None or not facts.input_tokens or not record.model or record.request is None:
            continue
        context = context_of(record)
        if is_text(record, context):
            tooled = bool(context.tools or isinstance(context.options.get("output"), dict))
            estimate = tokens.count(context, model=f"{record.provider}:{record.model}")
            yield Measured(record, tooled, estimate, reported(record, facts.input_tokens))


@cache
def by_family(wire: Wire) -> dict[tuple[str, bool], list[Measured]]:
    """The requests of each family, those with tools apart."""
    groups: dict[tuple[str, bool], list[Measured]] = defaultdict(list)
    for each in measured(wire):
        groups[family(each.record.model or "").name, each.tooled].append(each)
    return groups


@pytest.mark.parametrize("tooled", [False, True], ids=["plain", "tooled"])
@pytest.mark.parametrize("known", FAMILIES, ids=lambda known: known.name)
def test_the_stated_margin_covers_95_of_100_requests(wire: Wire, known: Family, tooled: bool) -> None:
    """For each family, and where there are few at most one is outside."""
    found = by_family(wire).get((known.name, tooled), [])
    held = sum(each.held for each in found)
    errors = sorted(abs(each.estimate.count - each.reported) / each.reported for each in found)
    if found:
        print(f"{known.name}: {held} of {len(found)} held; median error {errors[len(errors) // 2]:.1%}")
    assert len(found) - held <= max(1, (1 - COVERED) * len(found))


def test_all_requests_together_are_covered(wire: Wire) -> None:
    """And there are enough of them that this says something."""
    every = [each for found in by_family(wire).values() for each in found]
    held = sum(each.held for each in every)
    errors = sorted(abs(each.estimate.count - each.reported) / each.reported for each in every)
    print(
        f"{held} of {len(every)} held ({held / len(every):.1%}); median error {errors[len(errors) // 2]:.1%}"
    )

    assert len(every) > 2_000
    assert held / len(every) >= COVERED


def test_a_margin_of_a_quarter_would_not_do(wire: Wire) -> None:
    """The control: the stated margins are not so wide that anything would fit."""
    every = [each for found in by_family(wire).values() for each in found]
    held = sum(abs(each.estimate.count - each.reported) <= each.estimate.margin / 4 for each in every)

    assert held / len(every) < COVERED
