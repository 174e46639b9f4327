"""Telemetry: the spans and counters of a store, made from its history, for any tracing system.

    from perdure import telemetry

    with telemetry.enable(store):       # with perdure[otel]: sends spans and metrics as the OTEL_* environment says
        ...
    telemetry.thread_spans(thread)      # the same spans of a thread of any age, with the same ids

Nothing here is imported unless a program asks for it; OpenTelemetry's packages are imported by `enable` and `send`.
"""

from __future__ import annotations

from perdure.telemetry.enable import Exporting, enable, send
from perdure.telemetry.history import thread_spans
from perdure.telemetry.metrics import Metric, StoreMetrics
from perdure.telemetry.otlp import otlp_document
from perdure.telemetry.spans import Span, SpanEvent, SpanLink, SpanRef

__all__ = [
    "Exporting",
    "Metric",
    "Span",
    "SpanEvent",
    "SpanLink",
    "SpanRef",
    "StoreMetrics",
    "enable",
    "otlp_document",
    "send",
    "thread_spans",
]
