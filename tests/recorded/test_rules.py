"""The rules against recorded traffic: what an API has taken breaks none of its rules."""

from __future__ import annotations

import pytest

from perdure.providers.validator import BrokenRule, check
from tests.recorded.wire import Record, Wire

APIS = {
    "openai-chat": 1_500,
    "groq-chat": 50,
    "openai-responses": 750,
    "anthropic-messages": 500,
    "gemini-generate": 580,
    "bedrock-converse": 220,
    "mistral-chat": 95,
    "azure-inference-chat": 20,
    "ollama-chat": 9,
    "gemini-interactions": 4,
}

# Requests that were taken although a rule refuses them, each with the reason.
TAKEN: dict[str, str] = {}


def errors(record: Record) -> list[BrokenRule]:
    """The errors that the rules find in the request of a record."""
    api = "openai-chat" if record.api == "groq-chat" else record.api
    broken = check(record.request or {}, api, provider=record.provider, model=record.model)
    return [each for each in broken if each.level == "error"]


@pytest.mark.parametrize("api", APIS)
def test_what_was_taken_breaks_no_rule(wire: Wire, api: str) -> None:
    """No request with a 200 answer is called wrong; every exception is in the list, and nothing else."""
    taken = [each for each in wire.requests(api) if each.status == 200]

    refused = {each.id for each in taken if errors(each)}

    assert len(taken) >= APIS[api]
    assert refused == {id for id in TAKEN if id in {each.id for each in taken}}


def test_what_was_refused_for_its_form_is_often_found(wire: Wire) -> None:
    """Control: some of the recorded 400s break a rule, so the rules are not silent."""
    refused = [each for each in wire.records(*APIS) if each.status == 400 and each.request]

    found = [each.id for each in refused if errors(each)]

    assert len(found) >= 3, found
