"""Sends the spans and metrics of a store while it is used, by OpenTelemetry's SDK.

One thread of the program reads what is new in the history, makes spans of it and gives them to an exporter.  It reads
after the commit, so it never delays or fails a writer, and what it could not send can be sent again at any time with
`perdure export --format otlp`: the ids are the same.

The only module that imports OpenTelemetry's packages; they are those of `perdure[otel]`.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from perdure import aio
from perdure.errors import Invalid, NotFound, PerdureError, Unavailable, Unsupported
from perdure.model import names
from perdure.store.store import Store
from perdure.telemetry import convention
from perdure.telemetry.history import HistoryFollower, new_spans
from perdure.telemetry.metrics import METRICS, StoreMetrics
from perdure.telemetry.otlp import SCOPE, SERVICE
from perdure.telemetry.spans import CONTENT, Content, Span, SpanRef
from perdure.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

__all__ = ["Exporting", "content_asked", "enable", "is_asked", "send"]

_log = logging.getLogger("perdure.telemetry")

_WAIT_SECONDS = 30.0
_PAUSE_SECONDS = 0.5  # between two looks at a history that changes all the time, or more:
_PAUSE_LOOKS = 4  # as many times as long as the look took, so that a large store does not keep a core busy
_SENT_MAX = 50_000  # spans that are remembered, so that none is sent twice
_BATCH = 512

_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ASKING = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
)


def is_asked(environment: Mapping[str, str]) -> bool:
    """True if the OTEL_* environment names a place to send telemetry to, and does not switch it off."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return any(environment.get(name, "").strip() not in ("", "none") for name in _ASKING)


def content_asked(environment: Mapping[str, str]) -> Content:
    """Return how much content the environment asks for."""
    asked = environment.get(_CAPTURE, "").strip().lower()
    if asked in ("true", "span_only", "span_and_event"):
        return "text"
    return "references" if asked == "references" else "none"


def enable(
    store: Store | aio.Store,
    *,
    exporter: SpanExporter | None = None,
    metrics: MetricReader | None = None,
    content: Content = "none",
) -> Exporting:
    """Send spans and metrics of what happens in a store from now on, whichever process does it, until closed.

    `exporter` and `metrics` say where to; if both are None the OTEL_* environment does, as for any program.
    `content` is "none", "references" (digests of messages, arguments and results, and the names of people) or "text".
    Raises `Unsupported` if OpenTelemetry's packages are missing.
    """
    names.check_choice("content", content, CONTENT)
    spans, numbers = _installed(exporter, metrics)
    return Exporting(store.target() if isinstance(store, aio.Store) else store, spans, numbers, content)


def send(spans: Iterable[Span], *, exporter: SpanExporter | None = None) -> None:
    """Send spans once, under their own ids; None: where the OTEL_* environment says.

    Raises `Unavailable` if the exporter could not deliver some of them, `Unsupported` if packages are missing.
    """
    exporter = _installed(exporter, None)[0]
    if exporter is None:
        raise Invalid(
            "the environment says that no spans are sent; nothing was sent.",
            code="exporter_missing",
            advice="Unset OTEL_TRACES_EXPORTER, or name another exporter there.",
        )
    sender = _Sender(exporter)
    sender.send(spans)
    sender.close()
    if sender.failed:
        raise Unavailable(
            f"the collector did not take {sender.failed} spans.",
            code="spans_not_delivered",
            advice="Send them again when it can be reached: their ids stay the same.",
            spans=sender.failed,
        )


class Exporting:
    """Telemetry that is being sent.  Use it in a `with` statement, or close it, before the store is closed."""

    def __init__(
        self, store: Store, exporter: SpanExporter | None, reader: MetricReader | None, content: Content
    ) -> None:
        """Begin; programs call `enable`."""
        self.metrics = StoreMetrics(store)
        self._store = store
        self._content: Content = content
        self._sender = None if exporter is None else _Sender(exporter)
        self._meter = None if reader is None else _metered(self.metrics, reader)
        self._histograms = None if self._meter is None else _StepHistograms(self._meter)
        self._sent: OrderedDict[SpanRef, None] = OrderedDict()
        self._ready, self._woken, self._stopped = Event(), Event(), Event()
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._follow, name="perdure-telemetry", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        """Give the object itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Send what has happened until now, and end.  Closing again is no error."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._woken.set()
            self._thread.join()
            if self._sender is not None:
                self._sender.close()
            if self._meter is not None:
                self._meter.shutdown()

    def _follow(self) -> None:
        try:
            follower = HistoryFollower(self._store)
            self.metrics.read()  # it counts from here on
        except BaseException as error:  # noqa: BLE001  # it is raised by `enable`
            self._failure = error
            return
        finally:
            self._ready.set()
        while not self._stopped.is_set():
            began = time.thread_time()
            self._woken.clear()  # the engine sets it too, and a wait that finds it set does not look
            if self._stopped.is_set():
                break
            if not self._look(follower, _WAIT_SECONDS):
                return
            self._stopped.wait(max(_PAUSE_SECONDS, _PAUSE_LOOKS * (time.thread_time() - began)))
        self._look(follower, 0)

    def _look(self, follower: HistoryFollower, seconds: float) -> bool:
        """Send what is new; return False if the store was closed."""
        try:
            for news in follower.read(seconds, woken=self._woken if seconds else None):
                self._take(new_spans(news, content=self._content))
        except PerdureError as error:
            if error.code == "store_closed":
                return False
            _log.warning("a part of the history was not sent: %s", error)
        except Exception as error:  # noqa: BLE001  # of one span: the next ones are sent
            _log.warning("a part of the history was not sent: %s", type(error).__name__)
        return True

    def _take(self, spans: Iterable[Span]) -> None:
        """Send and measure the spans that are new."""
        unsent = [span for span in spans if span.ref not in self._sent]
        if self._histograms is not None:
            self._histograms.record(unsent)
        if self._sender is not None:
            self._send(self._sender, unsent)
        self._sent.update((span.ref, None) for span in unsent)
        while len(self._sent) > _SENT_MAX:
            self._sent.popitem(last=False)

    def _send(self, sender: _Sender, spans: Iterable[Span]) -> None:
        failed = sender.failed
        sender.send(spans)
        if sender.failed > failed:
            lost = sender.failed - failed
            _log.warning(
                "%d spans were not delivered; `perdure export --format otlp --send` sends them", lost
            )


class _Sender:
    """Gives spans to an exporter, under the ids that they have."""

    def __init__(self, exporter: SpanExporter) -> None:
        from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
        from opentelemetry.sdk.trace.id_generator import IdGenerator

        class Counting(SpanExporter):
            """Counts the spans that an exporter could not deliver."""

            failed = 0

            def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
                result = SpanExportResult.FAILURE
                try:
                    result = exporter.export(spans)
                finally:
                    if result is SpanExportResult.FAILURE:
                        self.failed += len(spans)
                return result

            def shutdown(self) -> None:
                exporter.shutdown()

            def force_flush(self, timeout_millis: int = 30_000) -> bool:
                return exporter.force_flush(timeout_millis)

        class GivenIds(IdGenerator):
            """Returns the ids of the span that is being sent."""

            ref = SpanRef("", "")

            def generate_span_id(self) -> int:
                return int(self.ref.span, 16)

            def generate_trace_id(self) -> int:
                return int(self.ref.trace, 16)

        self._ids, self._counting = GivenIds(), Counting()
        self._provider = TracerProvider(id_generator=self._ids, resource=_resource())
        self._provider.add_span_processor(BatchSpanProcessor(self._counting))
        self._tracer = self._provider.get_tracer(SCOPE, __version__)

    @property
    def failed(self) -> int:
        """The number of spans that could not be delivered."""
        return self._counting.failed

    def send(self, spans: Iterable[Span]) -> None:
        """Give spans to the exporter, and wait until it has tried to send them."""
        number = 0
        for number, span in enumerate(spans, 1):
            self._give(span)
            if number % _BATCH == 0:
                self._provider.force_flush()
        if number % _BATCH:
            self._provider.force_flush()

    def close(self) -> None:
        """End the exporter."""
        self._provider.shutdown()

    def _give(self, span: Span) -> None:
        from opentelemetry import trace

        self._ids.ref = span.ref
        links = [trace.Link(self._context(each.to), {"perdure.link": each.relation}) for each in span.links]
        started = self._tracer.start_span(
            span.name,
            context=self._inside(span.parent),
            kind=trace.SpanKind.CLIENT if span.is_client else trace.SpanKind.INTERNAL,
            attributes=span.attributes,
            links=links,
            start_time=span.start * 1_000,
            record_exception=False,
        )
        for event in span.events:
            started.add_event(event.name, event.attributes, event.at * 1_000)
        if span.is_error:
            started.set_status(trace.StatusCode.ERROR)
        started.end(span.end * 1_000)

    def _inside(self, parent: SpanRef | None) -> Context:
        from opentelemetry import trace
        from opentelemetry.context import Context

        if parent is None:
            return Context()
        return trace.set_span_in_context(trace.NonRecordingSpan(self._context(parent)), Context())

    def _context(self, ref: SpanRef) -> SpanContext:
        from opentelemetry import trace

        trace_id = int(ref.trace, 16)
        is_sampled = self._provider.sampler.should_sample(None, trace_id, "").decision.is_sampled()
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if is_sampled else trace.TraceFlags.DEFAULT)
        return trace.SpanContext(trace_id, int(ref.span, 16), is_remote=False, trace_flags=flags)


def _metered(metrics: StoreMetrics, reader: MetricReader) -> MeterProvider:
    """Return a provider whose instruments read the numbers of the store when they are collected."""
    from opentelemetry.metrics import Observation
    from opentelemetry.sdk.metrics import MeterProvider

    provider = MeterProvider([reader], resource=_resource())
    meter = provider.get_meter(SCOPE, __version__)

    read = metrics.read()
    described = {each.name: each for each in (*METRICS, *read)}
    first, numbers = next(iter(described)), {each.name: each for each in read}

    def observe(name: str) -> list[Observation]:
        if name == first:  # instruments are asked in the order in which they were made: one read is for all
            with suppress(PerdureError):  # of a store that was closed
                numbers.update((each.name, each) for each in metrics.read())
        points = numbers[name].points if name in numbers else ()
        return [Observation(point.value, point.attributes) for point in points]

    for metric in described.values():
        is_counter = metric.kind == "counter"
        make = meter.create_observable_counter if is_counter else meter.create_observable_gauge

        def callback(options: CallbackOptions, name: str = metric.name) -> list[Observation]:
            return observe(name)

        make(metric.name, callbacks=[callback], unit=metric.unit, description=metric.description)
    return provider


class _StepHistograms:
    """Records how long the steps of models took and how many tokens, as the GenAI convention asks of a client."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter(SCOPE, __version__)
        self._duration = meter.create_histogram(
            convention.STEP_DURATION,
            unit="s",
            description="The time from the commit before a step to the commit of the model's message.",
            explicit_bucket_boundaries_advisory=convention.STEP_DURATION_BUCKETS,
        )
        self._tokens = meter.create_histogram(
            convention.TOKEN_USAGE,
            unit="{token}",
            description="Tokens that a step read (input) and wrote (output).",
            explicit_bucket_boundaries_advisory=convention.TOKEN_USAGE_BUCKETS,
        )

    def record(self, spans: Iterable[Span]) -> None:
        """Record each step among these spans."""
        for span in spans:
            if span.attributes.get(convention.OPERATION) != convention.CHAT:
                continue
            of = {name: span.attributes[name] for name in _STEP_ATTRIBUTES if name in span.attributes}
            self._duration.record((span.end - span.start) / 1e6, of)
            for kind in ("input", "output"):
                tokens = span.attributes.get(convention.USAGE[f"{kind}_tokens"])
                if isinstance(tokens, int):
                    self._tokens.record(tokens, {**of, convention.TOKEN_TYPE: kind})


_STEP_ATTRIBUTES = (convention.OPERATION, convention.PROVIDER, convention.REQUEST_MODEL)


def _resource() -> Resource:
    """Return the resource that the environment describes, named after us if it has no name."""
    from opentelemetry.sdk.resources import Resource

    found = Resource.create()
    if str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        return found.merge(Resource({"service.name": SERVICE}))
    return found


def _installed(
    exporter: SpanExporter | None, reader: MetricReader | None
) -> tuple[SpanExporter | None, MetricReader | None]:
    try:
        return _exporters(exporter, reader)
    except ImportError as error:
        raise Unsupported(
            f"telemetry needs a package that is missing ({error.name}); nothing is sent.",
            code="package_missing",
            advice="Install it with `pip install 'perdure[otel]'`.",
            package=str(error.name),
        ) from error


def _exporters(
    exporter: SpanExporter | None, reader: MetricReader | None
) -> tuple[SpanExporter | None, MetricReader | None]:
    """Return where spans and metrics go: to what was given, or to what the environment names."""
    import os

    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    if exporter is not None or reader is not None:
        return exporter, reader
    spans, numbers = _named(os.environ, "traces"), _named(os.environ, "metrics")
    return spans, None if numbers is None else PeriodicExportingMetricReader(numbers)


def _named(environment: Mapping[str, str], signal: str) -> Any:
    """Return the exporter that the environment names for a signal; None if it names `none`."""
    name = environment.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip() or "otlp"
    if name == "none":
        return None
    if name == "otlp":
        general = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
        protocol = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "") or general
        name = "otlp_proto_grpc" if protocol.strip() == "grpc" else "otlp_proto_http"
    for found in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
        return found.load()()
    raise NotFound(
        f"no package has an exporter of {signal} called '{name}'; nothing is sent.",
        code="exporter_not_found",
        advice="Install the package that OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER or the protocol names.",
        exporter=name,
    )
