"""Mistral's chat against recorded traffic: answers, facts, chunks, round trips."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.model.message import ReasoningSummary
from holdfast.providers import Adapter
from holdfast.providers import adapter as adapter_of
from tests.recorded.chat_rows import chunked, read, round_trip, unread, unread_facts
from tests.recorded.wire import Record, Wire

APIS = ("mistral-chat",)

# Answers that are none of this format, and are refused.
NO_ANSWERS = {"ac0c08045cfc-j": "a transcript of sound, which is another endpoint"}

# Where the fact sheets say something else, and why ours is right: `by_hand` reads the same in the recording.
OTHERWISE = {
    "4cdafd332109-000": (["thinking"], "thinking that is streamed in parts is thinking too"),
    "77b57ec2047a-000": (["text", "thinking"], "words that are streamed in parts are words too"),
}

# Requests that come back in another form, and why.
OTHER_REQUESTS: dict[str, str] = {}


@pytest.fixture(scope="module")
def adapter() -> Adapter:
    """The adapter under test."""
    return adapter_of("mistral-chat")


def test_every_recorded_answer_is_read(adapter: Adapter, wire: Wire) -> None:
    """What the servers answered is understood, all of it."""
    assert unread(adapter, wire, *APIS) == set(NO_ANSWERS)


def test_answers_say_what_their_fact_sheets_say(adapter: Adapter, wire: Wire) -> None:
    """Words, reasoning, calls, stop reasons and tokens are equal, but for a list that is checked."""
    unlike, compared = unread_facts(adapter, wire, *APIS, but=set(NO_ANSWERS))

    assert unlike == {id: list(fields) for id, (fields, _) in OTHERWISE.items()}
    assert compared > 90


def by_hand(record: Record) -> tuple[str, str]:
    """The words and the thinking of a streamed answer, put together without the adapter."""
    words, thoughts = "", ""
    for line in record.body.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        for content in [choice["delta"].get("content") for choice in json.loads(line[6:])["choices"]]:
            parts: list[dict[str, Any]] = (
                [{"type": "text", "text": content}] if isinstance(content, str) else content or []
            )
            for part in parts:
                words += part.get("text", "")
                thoughts += "".join(each["text"] for each in part.get("thinking", []))
    return words, thoughts


def test_what_is_read_otherwise_is_what_the_recording_says(adapter: Adapter, wire: Wire) -> None:
    """Where a fact sheet says less, the recording read by hand says what the adapter does."""
    disputed = [record for record in wire.answers(*APIS) if record.id in OTHERWISE]

    for record in disputed:
        message = read(adapter, record).message
        thoughts = "".join(block.text for block in message.content if isinstance(block, ReasoningSummary))
        assert (message.text, thoughts) == by_hand(record)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_stream_cut_anywhere_is_the_same_answer(adapter: Adapter, wire: Wire, seed: int) -> None:
    """Pieces of any size tell the same, in the same order, as the whole."""
    streams = [record for record in wire.answers(*APIS) if record.is_stream]

    assert [record.id for record in streams if chunked(adapter, record, seed) != read(adapter, record)] == []


def test_a_stream_read_byte_by_byte_is_the_same_answer(adapter: Adapter, wire: Wire) -> None:
    """Even characters that are cut in two are put together."""
    streams = [record for record in wire.answers(*APIS) if record.is_stream and len(record.body) < 20_000][
        :40
    ]

    assert streams
    assert [record.id for record in streams if chunked(adapter, record, 0) != read(adapter, record)] == []


def test_a_request_comes_back_with_the_same_meaning(adapter: Adapter, wire: Wire) -> None:
    """Read and rendered for the server that took it, a request says the same."""
    requests = wire.requests(*APIS)

    assert [record.id for record in requests if round_trip(adapter, record)] == list(OTHER_REQUESTS)
    assert len(requests) > 90
