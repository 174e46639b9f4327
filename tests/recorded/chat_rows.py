"""What the tests of the Chat family share: recorded answers read, held against their fact sheets, requests sent round."""

from __future__ import annotations

import json
from typing import Any

from holdfast.errors import Invalid
from holdfast.model.message import ReasoningSummary
from holdfast.providers import Adapter
from holdfast.providers.contract import Reply
from tests.recorded.chat_meaning import differences
from tests.recorded.wire import Facts, Record, Wire, pieces

__all__ = ["chunked", "provider_of", "read", "round_trip", "unlike", "unread", "unread_facts"]


def provider_of(record: Record) -> str:
    """Whose server it was, by our names."""
    return "azure" if record.provider == "azure-foundry" else record.provider


def read(adapter: Adapter, record: Record) -> Reply:
    """The answer of a record."""
    provider = provider_of(record)
    if record.is_stream:
        return adapter.parse_stream([record.body], provider=provider)
    return adapter.parse(record.response, provider=provider)


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
        "input tokens": facts.input_tokens in (None, reply.usage.input_tokens),
        "output tokens": facts.output_tokens in (None, reply.usage.output_tokens),
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
