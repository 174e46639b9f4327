"""Mistral's chat against recorded traffic: answers, facts, chunks, round trips."""

from __future__ import annotations

import pytest

from holdfast.providers import Adapter
from holdfast.providers import adapter as adapter_of
from tests.recorded.chat_rows import chunked, read, round_trip, unread, unread_facts
from tests.recorded.wire import Wire

APIS = ("mistral-chat",)

# Answers that are none of this format, and are refused.
NO_ANSWERS = {"ac0c08045cfc-j": "a transcript of sound, which is another endpoint"}

# Where the fact sheets say something else, and why ours is right.
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
