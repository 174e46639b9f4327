"""Bedrock Converse against recorded traffic: what was answered is read, and what was asked is asked again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from perdure.model.context import Context
from perdure.model.message import Message, ReasoningSummary, Text
from perdure.providers.bedrock.adapter import ADAPTER
from perdure.providers.contract import Reply
from tests.crash.campaign import sized
from tests.recorded.frames import frames_of
from tests.recorded.wire import Facts, Record, Wire, beside_cache, pieces

API = "bedrock-converse"

# Answers that say something else than their fact sheets, each with the reason.
DIFFERENT = {
    "3a6ab73b7818-000": "the sheet leaves out the words that cite a document; they are words of the answer",
}

# Requests that come back otherwise than they were sent, each with the reason.
CHANGED = {
    "774c4bcc3036-000": "two user messages in a row are one: some models refuse them",
    "a782e39e6c64-000": "two user messages in a row are one: some models refuse them",
    "fcc427014501-000": "a text of white space only is left out: Claude refuses it",
    "fcc427014501-001": "a text of white space only is left out: Claude refuses it",
}


def raw_bytes(record: Record) -> bytes:
    """The bytes of a stream."""
    return frames_of(record.response) if record.response_format == "json-events" else record.body


def read(record: Record, *, seed: int | None = None) -> Reply:
    """The answer of a record."""
    if not record.is_stream:
        return ADAPTER.parse(record.response, provider=record.provider)
    body = raw_bytes(record)
    chunks = [body] if seed is None else pieces(body, seed=seed)
    return ADAPTER.parse_stream(chunks, provider=record.provider)


def accepted(wire: Wire) -> list[Record]:
    """Answers that are no errors."""
    return [each for each in wire.answers(API) if each.status == 200]


def told(reply: Reply) -> dict[str, Any]:
    """What a fact sheet tells, of a reply."""
    message = reply.message
    thoughts = [block.text for block in message.content if isinstance(block, ReasoningSummary)]
    return {
        "text": message.text,
        "thinking": "".join(thoughts),
        "calls": [(call.id, call.name, call.arguments) for call in message.tool_calls],
        "stop": reply.stop,
        "tokens": beside_cache(reply.usage),
    }


def expected(facts: Facts) -> dict[str, Any]:
    """The same of the sheet."""
    return {
        "text": facts.text or "",
        "thinking": facts.thinking or "",
        "calls": [(call["id"], call["name"], call["args"]) for call in facts.tool_calls],
        "stop": facts.stop,
        "tokens": (facts.input_tokens or 0, facts.output_tokens or 0),
    }


def plain(value: Any) -> Any:
    """A request without marks for the prompt cache and what says what its absence says."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value).items()
        return {key: plain(each) for key, each in fields if (key, each) != ("status", "success")}
    if isinstance(value, list):
        return [plain(each) for each in cast("list[Any]", value) if "cachePoint" not in each]
    return value


def meaning(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a request means."""
    made = cast("dict[str, Any]", plain(body))
    return {key: value for key, value in made.items() if value not in ({}, [])}


def again(record: Record) -> dict[str, Any]:
    """The request of a record, read and written."""
    assert record.request is not None
    assert record.model is not None
    context = ADAPTER.read_request(record.request, model=record.model, provider=record.provider)
    return meaning(ADAPTER.render(context, model=record.model, provider=record.provider).body)


def test_every_answer_is_read(wire: Wire) -> None:
    """No recorded answer is refused, none loses anything, and the last event is the end."""
    for record in accepted(wire):
        reply = read(record)

        assert reply.losses == ()
        assert reply.events[-1].message is reply.message  # pyright: ignore[reportAttributeAccessIssue]


def test_answers_say_what_others_read_in_them(wire: Wire) -> None:
    """Words, thinking, calls, stop reasons and counts are those of the fact sheets, but for the list."""
    sheets = wire.facts
    answers = [each for each in accepted(wire) if each.id in sheets]

    differ = {each.id for each in answers if told(read(each)) != expected(sheets[each.id])}

    assert differ == set(DIFFERENT)
    assert len(differ) <= 0.005 * len(answers)


@pytest.mark.parametrize("seed", sized([0, 1], [0, 1, 2, 3]))
def test_a_stream_cut_anywhere_is_the_same(wire: Wire, seed: int) -> None:
    """The size of the pieces does not matter, nor where they are cut; every byte may come alone."""
    for record in accepted(wire):
        if record.is_stream:
            assert read(record, seed=seed) == read(record)


def test_a_request_comes_back_as_it_was_sent(wire: Wire) -> None:
    """Read and written, it means the same; every exception is in the list, and nothing else."""
    requests = [each for each in wire.requests(API) if each.status == 200]

    changed = {each.id for each in requests if again(each) != meaning(each.request or {})}

    assert changed == set(CHANGED)
    assert len(changed) <= 0.02 * len(requests)


def test_an_answer_goes_back_block_for_block(wire: Wire) -> None:
    """What a model said, thinking and server-side tools included, is given back to it as it came."""
    hello = Message(role="user", content=(Text("Hello."),))
    for record in accepted(wire):
        if record.is_stream or not record.response["output"]["message"]["content"]:
            continue
        context = Context(messages=[hello, read(record).message, hello])
        body = ADAPTER.render(context, model=record.model or "its-model", provider=record.provider).body

        assert body["messages"][1]["content"] == sent_back(record)


def sent_back(record: Record) -> Any:
    """The blocks of an answer as a request holds them: no empty text, no type but of server-side tools, signed thinking for Claude."""
    made: list[Any] = []
    for block in record.response["output"]["message"]["content"]:
        block = {
            key: dict(value) if isinstance(value, dict) else value
            for key, value in block.items()
            if key != "type"
        }
        if block.get("text") == "":
            continue
        if block.get("toolUse", {}).get("type") == "tool_use":
            del block["toolUse"]["type"]
        made.append(block)
    return made
