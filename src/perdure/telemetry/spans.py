"""Spans: their ids and their parts, as they are made from a history.

The ids are digests of the ids of the run, message, call or item that a span is about.  So each reader of the same
history, live or years later, makes the same spans with the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "CONTENT",
    "Attributes",
    "Content",
    "Span",
    "SpanAttributes",
    "SpanEvent",
    "SpanLink",
    "SpanRef",
    "call_ref",
    "run_ref",
    "span_id",
    "trace_id",
]

Content: TypeAlias = Literal["none", "references", "text"]
CONTENT: tuple[Content, ...] = ("none", "references", "text")
SpanAttributes: TypeAlias = Mapping[str, str | int | float | bool | tuple[str, ...]]
Attributes: TypeAlias = dict[str, str | int | float | bool | tuple[str, ...]]


class SpanRef(msgspec.Struct, frozen=True):
    """The two ids of a span, in hexadecimal digits."""

    trace: str  # 32 digits
    span: str  # 16 digits


class SpanLink(msgspec.Struct, frozen=True):
    """Another span that this one goes on from: `fork`, `retry`, `switch`, `continue` or `parent`."""

    to: SpanRef
    relation: str


class SpanEvent(msgspec.Struct, frozen=True):
    """Something that happened at one moment of a span."""

    name: str
    at: int  # µs since 1970, UTC
    attributes: SpanAttributes


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A span that has ended."""

    ref: SpanRef
    parent: SpanRef | None
    name: str
    is_client: bool = False  # it is a request to a model's server
    start: int  # µs since 1970, UTC
    end: int
    attributes: SpanAttributes
    links: tuple[SpanLink, ...] = ()
    events: tuple[SpanEvent, ...] = ()
    is_error: bool = False


def run_ref(root: str, run: str, attempt: int = 1) -> SpanRef:
    """Return the ids of a run's span; `attempt` counts its starts, from 1."""
    return SpanRef(trace_id("run", root), span_id("run", run, str(attempt)))


def call_ref(trace: str, space: str, call: str) -> SpanRef:
    """Return the ids of a call's span within a trace."""
    return SpanRef(trace, span_id("call", space, call))


def trace_id(*ids: str) -> str:
    """Return the id of the trace that begins with the thing that these ids name."""
    return _named("trace", *ids)[:32]


def span_id(*ids: str) -> str:
    """Return the id of the span that is about the thing that these ids name."""
    return _named("span", *ids)[:16]


def _named(*ids: str) -> str:
    return sha256("\0".join(("perdure", *ids)).encode("utf-8", "surrogatepass")).hexdigest()
