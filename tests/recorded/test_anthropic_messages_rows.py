"""Anthropic Messages against recorded traffic: what was answered is read, and what was asked is asked again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from perdure.model.context import Context
from perdure.model.message import Message, ReasoningSummary, Text
from perdure.providers.anthropic.adapter import ADAPTER
from perdure.providers.contract import CallDelta, Reply, TextChunk
from tests.crash.campaign import sized
from tests.recorded.wire import Facts, Record, Wire, beside_cache, pieces

API = "anthropic-messages"

# Requests that come back otherwise than they were sent, each with the reason.
CHANGED = {
    "923302182fbe-001": "a text of white space only is left out: Claude refuses it",
    "a811780ca03b-000": "empty system words are left out",
    "d7acee5dc42f-001": "a text of white space only is left out: Claude refuses it",
    "d704b5cc32ec-003": "a call id of another vendor is used twice; the second one gets its own",
    "d704b5cc32ec-004": "a call id of another vendor is used twice; the second one gets its own",
}

# Records that hold several answers, one after the other; the last one is read, the loss of the others told.
SEVERAL = {"e9e4b2d9bf95-s"}


def read(record: Record, *, seed: int | None = None) -> Reply:
    """The answer of a record."""
    if not record.is_stream:
        return ADAPTER.parse(record.response, provider=record.provider)
    chunks = [record.body] if seed is None else pieces(record.body, seed=seed)
    return ADAPTER.parse_stream(chunks, provider=record.provider)


def accepted(wire: Wire) -> list[Record]:
    """Answers that are no errors."""
    return [each for each in wire.answers(API) if each.status == 200]


def is_whole(record: Record) -> bool:
    """Whether the record holds one answer, with nothing left out."""
    return record.id not in SEVERAL and not (record.notes or {}).get("abridged")


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
        "id": json.loads(message.vendor_metadata or "{}")["anthropic"].get("message_id"),
    }


def expected(facts: Facts) -> dict[str, Any]:
    """The same of the sheet."""
    return {
        "text": facts.text or "",
        "thinking": facts.thinking or "",
        "calls": [(call["id"], call["name"], call["args"]) for call in facts.tool_calls],
        "stop": facts.stop,
        "tokens": (facts.input_tokens or 0, facts.output_tokens or 0),
        "id": facts.response_id,
    }


def plain(value: Any) -> Any:
    """A request without marks for the prompt cache, absent values, and empty lists of citations."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value).items()
        return {key: plain(each) for key, each in fields if not is_default(key, each)}
    return [plain(each) for each in value] if isinstance(value, list) else value


def is_default(key: str, value: object) -> bool:
    """Whether a field says what its absence says."""
    if key in ("stream", "is_error", "disable_parallel_tool_use"):
        return value is False
    return key == "cache_control" or value is None or (key == "citations" and value == [])


def meaning(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a request means: texts as blocks, defaults left out."""
    made = cast("dict[str, Any]", plain(body))
    if "system" in made:
        made["system"] = blocks(made["system"])
    made["messages"] = [each | {"content": blocks(each["content"])} for each in made["messages"]]
    if "tools" in made:
        made["tools"] = [each | {"type": each.get("type", "custom")} for each in made["tools"]]
    return {key: value for key, value in made.items() if (key, value) != ("tools", [])}


def blocks(content: Any) -> list[Any]:
    """Content as blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [
        each | {"content": blocks(each.get("content") or [])} if each.get("type") == "tool_result" else each
        for each in content
    ]


def again(record: Record) -> dict[str, Any]:
    """The request of a record, read and written."""
    assert record.request is not None
    assert record.model is not None
    context = ADAPTER.read_request(record.request, model=record.model, provider=record.provider)
    body = ADAPTER.render(context, model=record.model, provider=record.provider).body
    if "model" not in record.request:  # it stands in the address
        del body["model"]
    return meaning(body)


def test_every_answer_is_read(wire: Wire) -> None:
    """No recorded answer is refused, none loses anything, and the last event is the end."""
    for record in accepted(wire):
        reply = read(record)

        assert reply.losses == () or not is_whole(record)
        assert reply.events[-1].message is reply.message  # pyright: ignore[reportAttributeAccessIssue]


def test_answers_say_what_others_read_in_them(wire: Wire) -> None:
    """Words, thinking, calls, stop reasons, counts and ids are those of the fact sheets, without exception."""
    sheets = wire.facts
    answers = [each for each in accepted(wire) if each.id in sheets]

    differ = [each.id for each in answers if told(read(each)) != expected(sheets[each.id])]

    assert differ == []


@pytest.mark.parametrize("seed", sized([1], [1, 2, 3]))
def test_a_stream_cut_anywhere_is_the_same(wire: Wire, seed: int) -> None:
    """The size of the pieces does not matter, nor where they are cut."""
    for record in accepted(wire):
        if record.is_stream:
            assert read(record, seed=seed) == read(record)


def test_a_stream_byte_by_byte_is_the_same(wire: Wire) -> None:
    """Every byte may come alone."""
    streams = [each for each in accepted(wire) if each.is_stream and len(each.body) < 30_000]

    for record in streams[:: sized(12, 4)]:
        assert read(record, seed=0) == read(record)


def test_the_events_of_a_stream_are_its_words(wire: Wire) -> None:
    """What was told on the way is what the message holds in the end."""
    for record in filter(is_whole, accepted(wire)):
        reply = read(record)
        words = [each.text for each in reply.events if isinstance(each, TextChunk)]
        calls: dict[int, str] = {}
        for each in reply.events:
            if isinstance(each, CallDelta):
                calls[each.index] = calls.get(each.index, "") + each.arguments

        assert "".join(words) == reply.message.text
        assert [text or "{}" for text in calls.values()] == [call.args for call in reply.message.tool_calls]


def test_a_request_comes_back_as_it_was_sent(wire: Wire) -> None:
    """Read and written, it means the same; every exception is in the list, and nothing else."""
    requests = [each for each in wire.requests(API) if each.status == 200]

    changed = {each.id for each in requests if again(each) != meaning(each.request or {})}

    assert changed == set(CHANGED)
    assert len(changed) <= 0.02 * len(requests)


def test_an_answer_goes_back_block_for_block(wire: Wire) -> None:
    """What Anthropic said, thinking and server-side tools included, is given back to it as it came."""
    for record in accepted(wire):
        if record.is_stream or not record.response["content"]:
            continue
        message = read(record).message
        content = written(message, record)

        assert content == sent_back(record.response["content"])


def written(message: Message, record: Record) -> Any:
    """An answer as a turn of the next request to the same model."""
    hello = Message(role="user", content=(Text("Hello."),))
    context = Context(messages=[hello, message, hello])
    body = ADAPTER.render(context, model=record.response["model"], provider=record.provider).body
    return plain(body["messages"][1]["content"])


def sent_back(content: list[dict[str, Any]]) -> Any:
    """The blocks of an answer that may be sent back by itself: calls and results of Anthropic's own tools in pairs."""
    calls = {each.get("id") for each in content}
    results = {each.get("tool_use_id") for each in content}
    results |= {(each.get("caller") or {}).get("tool_id") for each in content}
    kept = [
        each
        for each in content
        if (each.get("text") is None or each["text"].strip())
        and not (each["type"] == "server_tool_use" and each["id"] not in results)
        and not (each["type"].endswith("_tool_result") and each["tool_use_id"] not in calls)
    ]
    return plain(kept)
