"""Every recorded request, rendered for every other format: valid there.  `test_losses` says what is lost.

A deep run renders each request for each format.  Otherwise each target takes another sixteenth of the requests of a source, so
that every second request is rendered for some format, and every pair is tried.
"""

from __future__ import annotations

import pytest

from perdure.providers import adapter
from perdure.providers.registry import APIS
from perdure.providers.validator import check
from tests.recorded.oracles import oracle
from tests.recorded.pairs import DEEP, MODELS, OTHERS, contexts, read_as
from tests.recorded.wire import Wire

# All pairs for one model of each target; in a deep run for the other one too.
PAIRS = [(*pair, number) for pair in OTHERS for number in ((0, 1) if DEEP else (0,))]
BROKEN = {
    "openai-chat": {"model": "gpt-5.6", "messages": [{"role": "user", "content": [{"type": "text"}]}]},
    "openai-responses": {"model": "gpt-5.6", "input": [{"type": "function_call", "name": "look"}]},
    "anthropic-messages": {
        "model": "x",
        "max_tokens": 1,
        "messages": [{"role": "user", "content": [{"text": ""}]}],
    },
    "gemini-generate": {"contents": [{"role": "user", "parts": [{"words": "Hello."}]}]},
    "bedrock-converse": {"messages": [{"role": "user", "content": "Hello."}]},
    "mistral-chat": {"model": "x", "messages": [{"role": "user", "content": [{"type": "words"}]}]},
    "azure-inference-chat": {"messages": [{"role": "user", "content": "Hello."}], "n": 2},
    "ollama-chat": {"model": "x", "messages": [{"role": "user", "content": "Hello."}], "top_k": 2},
    "gemini-interactions": {"model": "x", "input": [{"type": "user_input", "content": [{"type": "words"}]}]},
}


@pytest.mark.parametrize(("source", "target", "number"), PAIRS)
def test_every_request_is_valid_in_every_format(wire: Wire, source: str, target: str, number: int) -> None:
    """It breaks no rule of level error and is of the strict types of the official SDK, to the last field."""
    model, judge = MODELS[target][number], oracle(target)

    for record, context in contexts(wire, source, every=16, start=APIS.index(target)):
        body = adapter(target).render(context, model=model).body
        broken = [each for each in check(body, target, model=model) if each.level == "error"]
        assert (record.id, broken, judge(body)) == (record.id, [], [])


@pytest.mark.parametrize("api", APIS)
def test_the_same_request_keeps_its_rules_when_it_is_rendered_again(wire: Wire, api: str) -> None:
    """Also for its own format and server; each third of them where the run is not deep."""
    for record, context in contexts(wire, api, every=3):
        made = adapter(api).render(context, model=record.model or "", provider=record.provider)
        broken = check(made.body, api, provider=record.provider, model=record.model)
        assert (record.id, [each for each in broken if each.level == "error"]) == (record.id, [])


@pytest.mark.parametrize("api", APIS)
def test_a_request_of_other_types_would_be_found(api: str) -> None:
    """Control: the types of the SDK are looked at to the bottom."""
    assert oracle(api)(BROKEN[api])


def test_all_pairs_are_tried() -> None:
    """Each recorded format with each other one."""
    assert len(OTHERS) == 10 * 9 - 10
    assert all(read_as(source) != target for source, target in OTHERS)
