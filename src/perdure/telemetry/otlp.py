"""Writes spans in the JSON encoding of OTLP, the protocol of OpenTelemetry.

Every collector that takes OTLP over HTTP takes this document; it needs no package.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.telemetry.convention import SCHEMA_URL
from perdure.telemetry.spans import Span, SpanAttributes
from perdure.version import __version__

__all__ = ["SCOPE", "SERVICE", "otlp_document"]

SCOPE = "perdure"
SERVICE = "perdure"  # the name of the service, unless the caller gives another

_INTERNAL, _CLIENT = 1, 3  # kinds of spans
_ERROR = 2  # a status


def otlp_document(spans: Iterable[Span], *, service: str = SERVICE) -> dict[str, Any]:
    """Return an `ExportTraceServiceRequest` with these spans, as JSON data."""
    scope = {"name": SCOPE, "version": __version__}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes({"service.name": service})},
                "scopeSpans": [
                    {"scope": scope, "spans": [_span(each) for each in spans], "schemaUrl": SCHEMA_URL}
                ],
                "schemaUrl": SCHEMA_URL,
            }
        ]
    }


def _span(span: Span) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traceId": span.ref.trace,
        "spanId": span.ref.span,
        "name": _text(span.name),
        "kind": _CLIENT if span.is_client else _INTERNAL,
        "startTimeUnixNano": _nanoseconds(span.start),
        "endTimeUnixNano": _nanoseconds(span.end),
        "attributes": _attributes(span.attributes),
        "status": {"code": _ERROR} if span.is_error else {},
    }
    if span.parent is not None:
        found["parentSpanId"] = span.parent.span
    if span.events:
        found["events"] = [
            {
                "timeUnixNano": _nanoseconds(event.at),
                "name": event.name,
                "attributes": _attributes(event.attributes),
            }
            for event in span.events
        ]
    if span.links:
        found["links"] = [
            {
                "traceId": link.to.trace,
                "spanId": link.to.span,
                "attributes": _attributes({"perdure.link": link.relation}),
            }
            for link in span.links
        ]
    return found


def _nanoseconds(microseconds: int) -> str:
    return str(microseconds * 1_000)  # 64-bit numbers are strings in this encoding


def _attributes(attributes: SpanAttributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: str | int | float | bool | tuple[str, ...]) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": _text(value)}
        case tuple():
            return {"arrayValue": {"values": [_value(each) for each in value]}}


def _text(text: str) -> str:
    """Return text that UTF-8 can express."""
    return text.encode("utf-8", "replace").decode()
