"""Controls of the recorded tests: each comparison shows a difference where there is one."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest

from perdure.errors import Invalid
from perdure.providers import adapter
from perdure.providers.contract import Reply
from tests.recorded import (
    chat_rows,
    test_anthropic_messages_rows,
    test_bedrock_converse_rows,
    test_gemini_generate_rows,
    test_openai_responses_rows,
)
from tests.recorded.wire import Facts, Record, Wire

APIS = (
    "openai-chat",
    "openai-responses",
    "anthropic-messages",
    "gemini-generate",
    "bedrock-converse",
    "mistral-chat",
    "azure-inference-chat",
    "ollama-chat",
    "gemini-interactions",
)
WITHOUT_SHEETS = ("ollama-chat", "gemini-interactions")
SAMPLE = 12  # records a format


class Rows(NamedTuple):
    """How the rows of one format read an answer, and compare it with its fact sheet."""

    read: Any
    same: Any  # of a reply and a sheet

    @classmethod
    def of(cls, api: str) -> Rows:
        """The ones that the tests of that format use."""
        modules: dict[str, Any] = {
            "anthropic-messages": test_anthropic_messages_rows,
            "bedrock-converse": test_bedrock_converse_rows,
            "gemini-generate": test_gemini_generate_rows,
            "openai-responses": test_openai_responses_rows,
        }
        if api not in modules:
            return cls(
                lambda record: chat_rows.read(adapter(api), record),
                lambda reply, sheet: chat_rows.unlike(reply, sheet) == [],
            )
        module = modules[api]
        return cls(module.read, lambda reply, sheet: module.told(reply) == module.expected(sheet))


def sampled(wire: Wire, api: str) -> list[tuple[Record, Reply, Facts]]:
    """Some answers of a format that say what their sheets say."""
    rows = Rows.of(api)
    found: list[tuple[Record, Reply, Facts]] = []
    for record in wire.answers(api):
        if record.status == 200 and record.id in wire.facts and len(found) < SAMPLE:
            reply = rows.read(record)
            if rows.same(reply, wire.facts[record.id]):
                found.append((record, reply, wire.facts[record.id]))
    assert found, f"there is no recorded answer of {api}"
    return found


@pytest.mark.parametrize("api", APIS)
def test_an_answer_of_another_format_is_not_read(wire: Wire, api: str) -> None:
    """Control: reading is no matter of course; what another family of formats answered is refused."""
    other = "anthropic-messages" if api != "anthropic-messages" else "gemini-generate"
    strange = [each for each in wire.answers(other) if each.status == 200 and not each.is_stream][:SAMPLE]

    assert strange
    for record in strange:
        with pytest.raises(Invalid):
            adapter(api).parse(
                record.response if isinstance(record.response, dict) else {"all": record.response}
            )


@pytest.mark.parametrize("field", ["text", "thinking", "stop", "input_tokens", "output_tokens", "tool_calls"])
@pytest.mark.parametrize("api", [each for each in APIS if each not in WITHOUT_SHEETS])
def test_a_sheet_that_says_something_else_is_told_apart(wire: Wire, api: str, field: str) -> None:
    """Control: each fact by itself makes a difference."""
    rows = Rows.of(api)
    calls = [{"id": "c", "name": "other", "args": {}}]
    others: dict[str, Any] = {"input_tokens": 999_999, "output_tokens": 999_999, "tool_calls": calls}

    for _, reply, sheet in sampled(wire, api):
        changed = msgspec.structs.replace(sheet, **{field: others.get(field, "something else")})

        assert not rows.same(reply, changed)


@pytest.mark.parametrize("api", [each for each in APIS if each != "azure-inference-chat"])
def test_a_stream_that_lost_its_middle_is_not_the_same(wire: Wire, api: str) -> None:
    """Control: pieces are not equal by being pieces; without one of three, most streams say something else."""
    rows = Rows.of(api)
    streams = [each for each in wire.answers(api) if each.status == 200 and each.is_stream][:SAMPLE]
    differ = 0

    for record in streams:
        body = body_of(record, api)
        third = len(body) // 3
        try:
            short = adapter(api).parse_stream([body[:third], body[2 * third :]])
        except Invalid:
            differ += 1
            continue
        differ += short != rows.read(record)

    assert streams
    assert differ > len(streams) // 2


def body_of(record: Record, api: str) -> bytes:
    """The bytes of a streamed answer, as the rows of its format read them."""
    if api == "bedrock-converse":
        return test_bedrock_converse_rows.raw_bytes(record)
    return test_gemini_generate_rows.body_of(record) if api == "gemini-generate" else record.body


@pytest.mark.parametrize(
    "api", [each for each in APIS if each != "gemini-interactions"]
)  # has one message each
def test_a_request_that_lost_a_message_does_not_come_back(wire: Wire, api: str) -> None:
    """Control: rendered without its last message, hardly any request is what it was."""
    requests = [each for each in wire.requests(api) if each.request][: 3 * SAMPLE]
    differ = compared = 0

    for record in requests:
        request: dict[str, Any] = record.request or {}
        model = request.get("model") or record.model or ""
        provider = chat_rows.provider_of(record)
        read = adapter(api).read_request(request, model=model, provider=provider)
        if len(read.messages) < 2:
            continue
        whole = adapter(api).render(read, model=model, provider=provider).body
        less = msgspec.structs.replace(read, messages=tuple(read.messages)[:-1])
        compared += 1
        differ += adapter(api).render(less, model=model, provider=provider).body != whole

    assert compared
    assert differ == compared
