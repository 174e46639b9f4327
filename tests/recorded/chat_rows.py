"""The rows of the Chat family: recorded answers read, compared with their fact sheets, streams cut, requests sent round.

class TestMistral(ChatRows):
    api = "mistral-chat"
    answers = 90
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from perdure.errors import Invalid
from perdure.model.message import ReasoningSummary
from perdure.providers import Adapter
from perdure.providers import adapter as adapter_of
from perdure.providers.contract import Reply
from tests.crash.campaign import sized
from tests.recorded.chat_meaning import differences
from tests.recorded.pairs import sampled
from tests.recorded.wire import Facts, Record, Wire, pieces

__all__ = ["ChatRows", "chunked", "provider_of", "read", "round_trip", "unlike", "unread", "unread_facts"]


def provider_of(record: Record) -> str:
    """Whose server it was, by our names."""
    return "azure" if record.provider == "azure-foundry" else record.provider


def read(adapter: Adapter, record: Record) -> Reply:
    """The answer of a record, read once."""
    key = (adapter.api, record.id)
    if key not in _read:
        provider = provider_of(record)
        if record.is_stream:
            _read[key] = adapter.parse_stream([record.body], provider=provider)
        else:
            _read[key] = adapter.parse(record.response, provider=provider)
    return _read[key]


_read: dict[tuple[str, str], Reply] = {}


def unread(adapter: Adapter, wire: Wire, *apis: str) -> set[str]:
    """The records whose answers are refused."""
    refused: set[str] = set()
    for record in wire.answers(*apis):
        try:
            read(adapter, record)
        except Invalid:
            refused.add(record.id)
    return refused


def unread_facts(adapter: Adapter, wire: Wire, *apis: str, but: set[str]) -> tuple[dict[str, list[str]], int]:
    """The records that are read otherwise than their fact sheets say, each with how; and how many were compared."""
    compared = [record for record in wire.answers(*apis) if record.id in wire.facts and record.id not in but]
    found = {record.id: unlike(read(adapter, record), wire.facts[record.id]) for record in compared}
    return {id: how for id, how in found.items() if how}, len(compared)


def unlike(reply: Reply, facts: Facts) -> list[str]:
    """In what a reply differs from a fact sheet.  A refusal is words of the message; missing ids are ours."""
    thinking = "".join(block.text for block in reply.message.content if isinstance(block, ReasoningSummary))
    calls = [(call.id, call.name, _arguments(call.args)) for call in reply.message.tool_calls]
    ids = {at: call.id for at, call in enumerate(reply.message.tool_calls)}
    told = [
        (call["id"] or ids.get(at), call["name"], call["args"] or {})
        for at, call in enumerate(facts.tool_calls)
    ]
    same = {
        "text": reply.message.text == _words(facts.text) + (facts.refusal or ""),
        "thinking": thinking == (facts.thinking or ""),
        "calls": calls == told,
        "stop": reply.stop == facts.stop,
        # What a server counts beside them is added: `test_usage.py` compares the sums with the totals.
        "input tokens": (facts.input_tokens or 0) <= reply.usage.input_tokens,
        "output tokens": (facts.output_tokens or 0) <= reply.usage.output_tokens,
    }
    return [name for name, equal in same.items() if not equal]


def chunked(adapter: Adapter, record: Record, seed: int) -> Reply:
    """A streamed answer, read in pieces, with what was told on the way."""
    stream = adapter.stream(provider=provider_of(record))
    told = [event for piece in pieces(record.body, seed=seed) for event in stream.feed(piece)]
    reply = stream.close()
    assert list(reply.events[: len(told)]) == told
    return reply


def round_trip(adapter: Adapter, record: Record) -> list[str]:
    """Where a recorded request, read and rendered for the server that took it, means something else."""
    assert record.request is not None
    provider, model = provider_of(record), record.request.get("model") or record.model or ""
    context = adapter.read_request(record.request, model=model, provider=provider)
    rendered = adapter.render(context, model=model, provider=provider)
    return differences({"model": model} | record.request, rendered.body)


def _words(text: Any) -> str:
    if isinstance(text, str):
        return text
    return json.dumps(text, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _arguments(text: str) -> Any:
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return {"__unparsed__": text}


class ChatRows:
    """What must hold of one format of the family; every exception is in a list that is checked."""

    api: ClassVar[str]  # the adapter
    apis: ClassVar[Sequence[str]]  # whose records it reads
    records: ClassVar[int]  # how many there are at the least, of answers and of requests
    no_answers: ClassVar[Mapping[str, str]] = {}  # those that are none of the format, and are refused
    otherwise: ClassVar[Mapping[str, tuple[list[str], str]]] = {}  # what a fact sheet says otherwise, and why
    other_requests: ClassVar[Mapping[str, str]] = {}  # those that come back in another form, and why

    @pytest.fixture
    def adapter(self) -> Adapter:
        """The adapter under test."""
        return adapter_of(self.api)

    @pytest.fixture
    def streams(self, wire: Wire) -> list[Record]:
        """The answers that were streamed."""
        return [record for record in wire.answers(*self.apis) if record.is_stream]

    def test_every_recorded_answer_is_read(self, adapter: Adapter, wire: Wire) -> None:
        """What the servers answered is understood, all of it."""
        assert unread(adapter, wire, *self.apis) == set(self.no_answers)

    def test_answers_say_what_their_fact_sheets_say(self, adapter: Adapter, wire: Wire) -> None:
        """Words, reasoning, calls, stop reasons and tokens are equal, but for a list that is checked."""
        unlike, compared = unread_facts(adapter, wire, *self.apis, but=set(self.no_answers))

        assert unlike == {id: list(fields) for id, (fields, _) in self.otherwise.items()}
        assert compared > self.records

    @pytest.mark.parametrize("seed", sized([1], [1, 2, 3]))
    def test_a_stream_cut_anywhere_is_the_same_answer(
        self, adapter: Adapter, streams: list[Record], seed: int
    ) -> None:
        """Pieces of any size tell the same, in the same order, as the whole."""
        differ = [
            each.id
            for each in sampled(streams, every=3)
            if chunked(adapter, each, seed) != read(adapter, each)
        ]

        assert differ == []

    def test_a_stream_read_byte_by_byte_is_the_same_answer(
        self, adapter: Adapter, streams: list[Record]
    ) -> None:
        """Even characters that are cut in two are put together."""
        short = [record for record in streams if len(record.body) < 20_000][: sized(15, 40)]

        assert short
        assert [each.id for each in short if chunked(adapter, each, 0) != read(adapter, each)] == []

    def test_a_request_comes_back_with_the_same_meaning(self, adapter: Adapter, wire: Wire) -> None:
        """Read and rendered for the server that took it, a request says the same."""
        requests = wire.requests(*self.apis)

        assert [each.id for each in requests if round_trip(adapter, each)] == list(self.other_requests)
        assert len(requests) > self.records
