"""Gemini's Interactions API against recorded traffic: answers, chunks, round trips."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.model.context import Context
from perdure.model.message import Message, ReasoningSummary, Text
from perdure.providers import adapter
from tests.crash.campaign import sized
from tests.recorded.chat_rows import chunked, read
from tests.recorded.wire import Record, Wire

API = "gemini-interactions"


def events_of(record: Record) -> list[dict[str, Any]]:
    """The events of a stream, read without the adapter."""
    lines = record.body.decode().splitlines()
    datas = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(data) for data in datas if data != "[DONE]"]


def raw(record: Record) -> dict[str, Any]:
    """What the server said, put together from the JSON alone."""
    if not record.is_stream:
        body, steps = record.response, record.response.get("steps", [])
        said = [content for step in steps for content in step.get("content", [])]
        signatures = [step["signature"] for step in steps if step.get("signature")]
        thoughts = [each["text"] for step in steps for each in step.get("summary", [])]
    else:
        deltas = [each["delta"] for each in events_of(record) if "delta" in each]
        body = events_of(record)[-1]["interaction"]
        said = [delta for delta in deltas if delta["type"] == "text"]
        signatures = [each["signature"] for each in deltas if each.get("signature")]
        thoughts = [each["content"]["text"] for each in deltas if each["type"] == "thought_summary"]
    usage = body.get("usage", {})
    return {
        "text": "".join(each["text"] for each in said),
        "thinking": thoughts,
        "signatures": signatures,
        "usage": tuple(usage.get(f"total_{name}_tokens", 0) for name in ("input", "output", "thought")),
        "stop": body["status"],
    }


def test_an_answer_is_what_its_json_says(wire: Wire) -> None:
    """Words, thinking, signatures, tokens and the status, for every answer that was given."""
    answers = wire.answers(API)

    for record in answers:
        reply = read(adapter(API), record)
        thought = [each.text for each in reply.message.content if isinstance(each, ReasoningSummary)]
        steps = json.loads(reply.message.vendor_metadata or "")["google-interactions"]["steps"]
        usage = reply.usage
        told = {
            "text": reply.message.text,
            "thinking": thought,
            "signatures": [step["signature"] for step in steps if step.get("signature")],
            "usage": (
                usage.input_tokens,
                usage.output_tokens - usage.reasoning_tokens,
                usage.reasoning_tokens,
            ),
            "stop": reply.stop,
        }
        assert (record.id, told) == (record.id, raw(record))

    assert len(answers) == 16


def test_an_answer_that_is_being_worked_on_is_pending(wire: Wire) -> None:
    """The id of a background interaction is the one by which it is fetched; all other answers are here."""
    pending = {each.id: read(adapter(API), each).pending for each in wire.answers(API)}

    (record,) = [each for each in wire.answers(API) if each.id == "adc241863fa9-000"]
    assert pending.pop(record.id) == record.response["id"]
    assert set(pending.values()) == {None}


@pytest.mark.parametrize("seed", sized([0, 1], [0, 1, 2, 3]))
def test_a_stream_cut_anywhere_is_the_same_answer(wire: Wire, seed: int) -> None:
    """Pieces of any size tell the same, in the same order, as the whole; with seed 0 each byte is one."""
    streams = [each for each in wire.answers(API) if each.is_stream]

    differ = [each.id for each in streams if chunked(adapter(API), each, seed) != read(adapter(API), each)]

    assert differ == []
    assert len(streams) == 8


def test_a_stream_that_lost_its_words_is_another_answer(wire: Wire) -> None:
    """Control: without one of its events an answer is not the same."""
    for record in (each for each in wire.answers(API) if each.is_stream):
        lost = next(at for at, each in enumerate(events_of(record)) if each.get("delta", {}).get("text"))
        rest = [event for at, event in enumerate(events_of(record)) if at != lost]
        short = adapter(API).parse_stream([f"data: {json.dumps(event)}\n\n".encode() for event in rest])
        assert short.message != read(adapter(API), record).message


def test_a_recorded_request_is_asked_again_as_it_was(wire: Wire) -> None:
    """Read and rendered for the server that took it, a request is the same JSON, agents and images included."""
    requests = wire.requests(API)

    for record in requests:
        model = record.model or ""
        context = adapter(API).read_request(record.request or {}, model=model, provider=record.provider)
        made = adapter(API).render(context, model=model, provider=record.provider)
        assert (record.id, made.body) == (record.id, record.request)

    assert len(requests) == 4


def test_the_steps_of_an_answer_go_back_as_they_came(wire: Wire) -> None:
    """Put behind a question, each recorded answer is sent back to its server step by step, signatures included."""
    question, next_one = Message("user", (Text("Go on."),)), Message("user", (Text("And then?"),))

    for record in (each for each in wire.answers(API) if each.response_format == "json" and each.model):
        answer = read(adapter(API), record).message
        context = Context(messages=[question, answer, next_one])
        body = adapter(API).render(context, model=record.model or "", provider=record.provider).body
        assert (record.id, body["input"][1:-1]) == (record.id, record.response["steps"])


def test_an_error_is_no_answer() -> None:
    """A body that holds an error is refused, not read as an empty answer."""
    with pytest.raises(Invalid):
        adapter(API).parse({"error": {"code": 404, "status": "NOT_FOUND", "message": "no such model"}})
