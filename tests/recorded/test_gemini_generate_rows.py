"""The Gemini API against recorded traffic: what was answered is read, and what was asked is asked again."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, cast

import pytest

from perdure.errors import Invalid
from perdure.model.message import ReasoningSummary
from perdure.providers.contract import Reply
from perdure.providers.gemini.adapter import ADAPTER
from tests.coded import raises
from tests.crash.campaign import sized
from tests.recorded.wire import Facts, Record, Wire, pieces

API = "gemini-generate"

# Answers that are read otherwise than the fact sheet says, each with the reason.  In all of them the recording
# bears out what is read: `test_what_is_read_otherwise_is_what_the_recording_says` looks at it by hand.
PIECES = "the sheet counts every piece of a call's arguments as a call"
NUMBER = "the sheet has the number of the reason; it is read as its name"
OTHERWISE = {
    "38bb8bc5d028-s": PIECES,
    "bd02635ca282-s": PIECES,
    "d265c0212eec-s": PIECES,
    "2b82511e24ed-000": NUMBER,
    "4184f028ee93-000": NUMBER,
    "9d3cd54e0243-000": NUMBER,
    "a9cfeed16ca1-000": NUMBER,
    "bb63bfb11e94-000": NUMBER,
    "be14bd03ecdf-000": NUMBER,
}
# Requests that come back otherwise than they were sent, each with the reason.
CHANGED = {
    "25b778dcd3c8-000": "an empty turn of the model's is left out",
    "46393398b07e-001": "the results of one turn stand together",
    "862319d38348-001": "the results of one turn stand together",
    "be091c5ab999-001": "each call has its result right behind it",
    "be091c5ab999-002": "each call has its result right behind it",
    "df4b146a6686-000": "an empty user turn is all there is",
}


def read(record: Record, *, seed: int | None = None) -> Reply:
    """The answer of a record."""
    if not record.is_stream and seed is None:
        return ADAPTER.parse(record.response, provider=record.provider)
    chunks = [body_of(record)] if seed is None else pieces(body_of(record), seed=seed)
    return ADAPTER.parse_stream(chunks, provider=record.provider)


def body_of(record: Record) -> bytes:
    """The bytes of a stream: events, or one JSON list."""
    if record.is_stream:
        return record.body
    return json.dumps(record.response, indent=1, ensure_ascii=False).encode()


def accepted(wire: Wire) -> list[Record]:
    """Answers that are no errors."""
    return [each for each in wire.answers(API) if each.status == 200]


def streams(wire: Wire) -> list[Record]:
    """Answers that came in pieces."""
    return [each for each in accepted(wire) if each.is_stream or isinstance(each.response, list)]


def told(reply: Reply) -> dict[str, Any]:
    """What a fact sheet tells, of a reply."""
    message = reply.message
    kept = json.loads(message.vendor_metadata or "{}")["google"]
    return {
        "text": message.text,
        "thinking": "".join(block.text for block in message.content if isinstance(block, ReasoningSummary)),
        "calls": [(call.name, json.loads(call.args)) for call in message.tool_calls],
        "stop": reply.stop,
        "tokens": (reply.usage.input_tokens, reply.usage.output_tokens - reply.usage.reasoning_tokens),
        "response_id": kept.get("response_id"),
    }


def expected(facts: Facts) -> dict[str, Any]:
    """The same of the sheet."""
    return {
        "text": facts.text or "",
        "thinking": facts.thinking or "",
        "calls": [(call["name"], call["args"]) for call in facts.tool_calls],
        "stop": facts.stop,
        "tokens": (facts.input_tokens or 0, facts.output_tokens or 0),
        "response_id": facts.response_id,
    }


def same(value: Any) -> Any:
    """A request with names in one case, and without what says nothing."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name): same(held)
            for name, held in fields.items()
            if held is not None
        }
    return [same(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def test_every_recorded_answer_is_read_as_its_fact_sheet_says(wire: Wire) -> None:
    """Text, reasoning, calls, arguments, stop reason and tokens are those of the sheet, but for what is explained."""
    answers = accepted(wire)

    replies = {record.id: told(read(record)) for record in answers}

    sheets = {record.id: expected(wire.facts[record.id]) for record in answers}
    for record in answers:  # a sheet leaves out what Google's own tools read
        if used := re.findall(rb'"toolUsePromptTokenCount": ?([0-9]+)', body_of(record)):
            read_by_model, written = sheets[record.id]["tokens"]
            sheets[record.id]["tokens"] = (read_by_model + int(used[-1]), written)
    assert len(sheets) >= 615
    assert sorted(id for id in sheets if replies[id] != sheets[id]) == sorted(OTHERWISE)
    facts = [(id, name) for id, sheet in sheets.items() for name in sheet if replies[id][name] != sheet[name]]
    assert len(facts) <= 0.005 * 6 * len(sheets)


def by_hand(record: Record) -> dict[str, Any]:
    """What an answer says, read without the adapter: the first candidate's parts, one after the other."""
    bodies = record.response if isinstance(record.response, list) else [record.response]
    parts = [part for body in bodies for part in body["candidates"][0]["content"].get("parts", [])]
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    reason = bodies[-1]["candidates"][0]["finishReason"]
    return {
        "text": "".join(part.get("text", "") for part in parts if not part.get("thought")),
        "names": [call["name"] for call in calls if "name" in call],
        "letters": Counter("".join(map(letters, calls))),
        "stop": {1: "STOP"}.get(reason, reason),
    }


def letters(call: dict[str, Any]) -> str:
    """All texts in the arguments of a call, whole or in pieces."""
    pieces = [piece.get("stringValue", "") for piece in call.get("partialArgs", [])]
    return "".join([*pieces, *texts(call.get("args"))])


def texts(value: Any) -> list[str]:
    """All texts that a value holds."""
    if isinstance(value, dict):
        return [text for each in cast("dict[str, Any]", value).values() for text in texts(each)]
    if isinstance(value, list):
        return [text for each in cast("list[Any]", value) for text in texts(each)]
    return [value] if isinstance(value, str) else []


def test_what_is_read_otherwise_is_what_the_recording_says(wire: Wire) -> None:
    """Words, names of calls, the texts in their arguments and the reason, read by hand, are those of the adapter."""
    disputed = [each for each in accepted(wire) if each.id in OTHERWISE]

    for record in disputed:
        reply = read(record)
        args = [json.loads(call.args) for call in reply.message.tool_calls]
        assert by_hand(record) == {
            "text": reply.message.text,
            "names": [call.name for call in reply.message.tool_calls],
            "letters": Counter("".join(texts(args))),
            "stop": reply.stop,
        }


def test_arguments_that_came_in_pieces_are_put_together(wire: Wire) -> None:
    """A call whose arguments come place by place is one call with all of them."""
    (record,) = [each for each in accepted(wire) if each.id == "38bb8bc5d028-s"]

    calls = read(record).message.tool_calls

    assert [json.loads(call.args) for call in calls] == [
        {"location": "Boston"},
        {"location": "San Francisco"},
    ]


def test_an_error_is_no_answer(wire: Wire) -> None:
    """A recorded error is refused by name, not read as an empty answer."""
    errors = [each for each in wire.records(API) if each.status not in (200, None) and not each.is_stream]

    for record in errors:
        with raises(Invalid, "not_an_answer"):
            ADAPTER.parse(record.response)


@pytest.mark.parametrize("seed", sized([1], [1, 2]))
def test_a_stream_is_the_same_however_it_is_cut(wire: Wire, seed: int) -> None:
    """Chunks of any size tell the same, event for event."""
    assert [each.id for each in streams(wire) if read(each, seed=seed) != read(each)] == []


def test_a_stream_is_the_same_byte_by_byte(wire: Wire) -> None:
    """Cut everywhere, also within characters, it tells the same."""
    shortest = sorted(streams(wire), key=lambda each: len(body_of(each)))

    assert [each.id for each in shortest[: sized(20, 60)] if read(each, seed=0) != read(each)] == []


def test_a_recorded_request_is_asked_again_as_it_was(wire: Wire) -> None:
    """Read and rendered for the same owner it is the same request, part for part."""
    changed: list[str] = []
    requests = wire.requests(API)

    for record in requests:
        request: dict[str, Any] = record.request or {}
        context = ADAPTER.read_request(request, model=record.model, provider=record.provider)
        rendered = ADAPTER.render(context, model=record.model or "", provider=record.provider)
        if same(rendered.body) != same(request):
            changed.append(record.id)

    assert sorted(changed) == sorted(CHANGED)
    assert len(changed) <= 0.02 * len(requests)
