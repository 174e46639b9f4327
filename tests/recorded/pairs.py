"""Recorded requests as contexts, and the models for which the tests render them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TypeVar

from perdure.model.context import Context
from perdure.providers import adapter
from perdure.providers.contract import Reply
from perdure.providers.registry import APIS
from tests.recorded.wire import Record, Wire

__all__ = ["DEEP", "MODELS", "OTHERS", "SOURCES", "context_of", "contexts", "read_as", "reply", "sampled"]

DEEP = bool(os.environ.get("PERDURE_DEEP"))
SOURCES = (*APIS, "groq-chat")

# For each target, one model that thinks and one that does not.
MODELS = {
    "openai-chat": ("gpt-5", "gpt-4o"),
    "openai-responses": ("gpt-5", "gpt-4o"),
    "anthropic-messages": ("claude-sonnet-4-5", "claude-opus-4-6"),
    "gemini-generate": ("gemini-3-pro", "gemini-2.5-flash"),
    "bedrock-converse": ("anthropic.claude-sonnet-4-5", "amazon.nova-pro"),
    "mistral-chat": ("mistral-large-latest", "magistral-medium-latest"),
    "azure-inference-chat": ("gpt-4o", "DeepSeek-R1"),
    "ollama-chat": ("gpt-oss:20b", "qwen3:8b"),
    "gemini-interactions": ("gemini-3-pro", "gemini-2.5-flash"),
}

T = TypeVar("T")


def read_as(source: str) -> str:
    """The format by which a recorded one is read: Groq's is Chat."""
    return "openai-chat" if source == "groq-chat" else source


OTHERS = [(source, target) for source in SOURCES for target in APIS if target != read_as(source)]


def contexts(wire: Wire, source: str, *, every: int = 1, start: int = 0) -> Iterator[tuple[Record, Context]]:
    """What was asked in a format and taken, as contexts: all in a deep run, else each `every`-th from `start` on."""
    taken = [record for record in wire.requests(source) if record.status == 200]
    for record in taken if DEEP else taken[start::every]:
        yield record, context_of(record)


_read: dict[str, Context] = {}


def context_of(record: Record) -> Context:
    """What a record asked, read once."""
    if record.id not in _read:
        body = record.request or {}
        reading = adapter(read_as(record.api))
        _read[record.id] = reading.read_request(body, model=record.model, provider=record.provider)
    return _read[record.id]


_replies: dict[str, Reply] = {}


def reply(record: Record) -> Reply:
    """The answer of a record, read once."""
    if record.id not in _replies:
        reading = adapter(read_as(record.api))
        if record.is_stream:
            _replies[record.id] = reading.parse_stream([record.body], provider=record.provider)
        else:
            _replies[record.id] = reading.parse(record.response, provider=record.provider)
    return _replies[record.id]


def sampled(found: Sequence[T], *, every: int) -> Sequence[T]:
    """All of them in a deep run, else each `every`-th."""
    return found if DEEP else found[::every]
