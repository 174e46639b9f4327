"""Telemetry that is sent while a store is used: the same spans, once each, beside the writers."""

from __future__ import annotations

import asyncio
import http.server
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import perdure
from perdure import Agent, Store, aio, telemetry
from perdure.errors import Invalid, NotFound, Unavailable
from perdure.model.run import Usage
from perdure.telemetry.convention import STEP_DURATION, TOKEN_USAGE
from perdure.telemetry.enable import content_asked, is_asked
from perdure.telemetry.history import NewHistory, new_spans
from perdure.telemetry.spans import Content, Span
from perdure.testing import Script, say
from tests.coded import raises
from tests.surfaces.shell import Shell
from tests.telemetry import scenes
from tests.telemetry.scenes import SECRET, all_spans


def ref(span: ReadableSpan) -> tuple[str, str]:
    """Trace and span, as an export writes them."""
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def ids(spans: Sequence[ReadableSpan]) -> list[tuple[str, str, str]]:
    """Trace, span and name of each span."""
    return [(*ref(each), each.name) for each in spans]


def test_live_spans_are_those_of_an_export(store: Store) -> None:
    """Every scene, sent live: the same ids, parents, links, times and attributes as the history gives, once each."""
    exporter = InMemorySpanExporter()

    with telemetry.enable(store, exporter=exporter):
        for scene in scenes.SCENES:
            scene(store)

    sent = {ref(each): each for each in exporter.get_finished_spans()}
    assert len(sent) == len(exporter.get_finished_spans())
    assert len(sent) == len(all_spans(store)) > 30
    for span in all_spans(store):
        found = sent[span.ref.trace, span.ref.span]
        assert (found.name, found.start_time, found.end_time) == (
            span.name,
            span.start * 1000,
            span.end * 1000,
        )
        assert dict(found.attributes or {}) == span.attributes
        assert (f"{found.parent.span_id:016x}" if found.parent else None) == (
            span.parent.span if span.parent else None
        )
        assert [f"{link.context.span_id:016x}" for link in found.links] == [
            link.to.span for link in span.links
        ]
        assert [event.name for event in found.events] == [event.name for event in span.events]
        assert found.status.is_ok != span.is_error


def test_what_was_there_before_is_not_sent(store: Store) -> None:
    """Telemetry begins when it is switched on; older threads are exported."""
    scenes.with_tool(store, "before")
    exporter = InMemorySpanExporter()

    with telemetry.enable(store, exporter=exporter):
        after = scenes.with_tool(store, "after")

    assert sorted(ids(exporter.get_finished_spans())) == sorted(
        (span.ref.trace, span.ref.span, span.name) for span in telemetry.thread_spans(after)
    )


def test_a_call_that_is_decided_later_is_sent_then(store: Store) -> None:
    """A run that waits when telemetry begins is sent whole when it has ended."""
    agent = scenes.helper(
        perdure.testing.use("pay", amount=1), perdure.testing.say("Paid."), tools=[scenes.pay]
    )
    thread = store.thread("waits", agent=agent)
    asked = thread.run("Pay").approvals[0]
    exporter = InMemorySpanExporter()

    with telemetry.enable(store, exporter=exporter):
        thread.decide(asked.call, "approve", by="bob")
        thread.resume()

    assert sorted(ids(exporter.get_finished_spans())) == sorted(
        (span.ref.trace, span.ref.span, span.name) for span in telemetry.thread_spans(thread)
    )


def test_runs_of_another_opening_are_sent_too(store: Store, tmp_path: Path) -> None:
    """Telemetry is read from the history, whoever wrote it."""
    exporter = InMemorySpanExporter()

    with telemetry.enable(store, exporter=exporter), perdure.open(tmp_path / "store.db") as other:
        scenes.with_tool(other)

    assert [name for *_, name in ids(exporter.get_finished_spans())].count("invoke_agent helper") == 1


class Broken(SpanExporter):
    """An exporter whose collector is away, slowly."""

    def __init__(self) -> None:
        self.entered, self.released = threading.Event(), threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Wait, and then fail."""
        self.entered.set()
        self.released.wait(60)
        raise ConnectionError("no collector")


def test_a_collector_that_hangs_delays_and_fails_no_run(store: Store) -> None:
    """While the exporter waits and then fails, runs go on as if there were none."""
    exporter = Broken()
    with telemetry.enable(store, exporter=exporter):
        scenes.with_tool(store, "first")
        assert exporter.entered.wait(60)

        second = scenes.with_tool(store, "second")
        status = second.runs()[0].state
        exporter.released.set()

    assert status == "succeeded"


def test_an_awaitable_store_is_taken_too(tmp_path: Path) -> None:
    """`enable` works where an event loop runs."""
    exporter = InMemorySpanExporter()

    async def program() -> None:
        async with aio.open(tmp_path / "store.db") as store:
            exporting = telemetry.enable(store, exporter=exporter)
            thread = await store.thread("t", agent=scenes.helper(perdure.testing.say("Hello.")))
            await thread.run("Hi")
            await asyncio.to_thread(exporting.close)

    asyncio.run(program())

    assert {name for *_, name in ids(exporter.get_finished_spans())} == {"chat test", "invoke_agent helper"}


def test_a_store_that_is_closed_first_ends_it(tmp_path: Path) -> None:
    """Closing in the wrong order hangs nothing; the follower ends by itself."""
    store = perdure.open(tmp_path / "store.db")
    exporting = telemetry.enable(store, exporter=InMemorySpanExporter(), metrics=InMemoryMetricReader())
    store.close()

    exporting.close()
    exporting.close()

    assert "perdure-telemetry" not in {each.name for each in threading.enumerate()}


def test_metrics_that_are_sent_are_those_of_the_server(store: Store) -> None:
    """The instruments read the same numbers that `/metrics` shows."""
    reader = InMemoryMetricReader()

    with telemetry.enable(store, metrics=reader) as exporting:
        scenes.with_tool(store)
        data = reader.get_metrics_data()
        read = exporting.metrics.read()

    assert data is not None
    sent = {
        (metric.name, tuple(sorted(dict(point.attributes or {}).items()))): point.value  # pyright: ignore[reportAttributeAccessIssue]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name.startswith("perdure.")
        for point in metric.data.data_points
    }
    shown = {
        (metric.name, tuple(sorted(point.attributes.items()))): point.value
        for metric in read
        for point in metric.points
    }
    assert sent == shown
    assert sent["perdure.commits", ()] == len(store.thread("tool").log())


def histograms(reader: InMemoryMetricReader) -> dict[tuple[str, str], tuple[int, float, tuple[float, ...]]]:
    """Number, sum and bounds of each histogram that was recorded, by its name and the type of tokens."""
    data = reader.get_metrics_data()
    return {
        (metric.name, str((point.attributes or {}).get("gen_ai.token.type", ""))): (
            point.count,
            point.sum,
            tuple(point.explicit_bounds),
        )
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if isinstance(point, HistogramDataPoint)
    }


def test_the_histograms_of_the_convention_have_each_step_once(store: Store) -> None:
    """How long a step took and its tokens, with the bounds that the convention asks for, also without an exporter."""
    steps = [say("One.", usage=Usage(input_tokens=100, output_tokens=7)), say("Two.")]
    reader = InMemoryMetricReader()

    with telemetry.enable(store, metrics=reader):
        thread = store.thread("chat", agent=Agent("assistant", backend=Script(*steps)))
        thread.run("One?")
        until(lambda: histograms(reader).get((STEP_DURATION, ""), (0,))[0] == 1)
        thread.run("Two?")
        until(lambda: histograms(reader)[STEP_DURATION, ""][0] == 2)
        found = histograms(reader)

    assert found[TOKEN_USAGE, "input"][:2] == (1, 100)
    assert found[TOKEN_USAGE, "output"][:2] == (1, 7)
    assert found[STEP_DURATION, ""][2][:2] == (0.01, 0.02)
    assert found[STEP_DURATION, ""][2][-1] == 81.92
    assert found[TOKEN_USAGE, "input"][2][-1] == 67_108_864


def until(is_so: Callable[[], bool]) -> None:
    """Wait for what comes at once on an idle machine."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_unknown_content_is_refused(store: Store) -> None:
    """Nothing is sent for a word that means nothing."""
    with raises(Invalid, "choice_invalid"):
        telemetry.enable(store, exporter=InMemorySpanExporter(), content="all")  # pyright: ignore[reportArgumentType]


def test_an_unknown_exporter_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exporter that the environment names and no package has is an error with its name."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")

    with raises(NotFound, "exporter_not_found", exporter="carrier-pigeon"):
        telemetry.enable(store)


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "shop"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
    ],
)
def test_the_environment_says_whether_to_send(environment: dict[str, str], asked: bool) -> None:
    """A place to send to switches telemetry on; OTEL_SDK_DISABLED switches it off."""
    assert is_asked(environment) is asked


@pytest.mark.parametrize(
    ("value", "content"),
    [("", "none"), ("false", "none"), ("references", "references"), ("true", "text"), ("SPAN_ONLY", "text")],
)
def test_the_environment_says_how_much_content(value: str, content: str) -> None:
    """Content is sent only on request."""
    assert content_asked({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": value}) == content


class Collector(http.server.ThreadingHTTPServer):
    """A collector that keeps what it is sent."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        bodies = self.bodies

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                bodies.append((self.path, gzip_or_not(self.headers.get("Content-Encoding"), body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        super().__init__(("127.0.0.1", 0), Handler)


def gzip_or_not(encoding: str | None, body: bytes) -> bytes:
    """The body as it was before it was packed."""
    import gzip

    return gzip.decompress(body) if encoding == "gzip" else body


@contextmanager
def collecting() -> Generator[Collector]:
    """A collector on a port of its own."""
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def received(collector: Collector) -> list[str]:
    """The ids of the spans that a collector was sent."""
    return [
        span.span_id.hex()
        for path, body in collector.bodies
        if path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def test_an_old_thread_is_sent_again_with_the_same_ids(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`perdure export --send`, twice: the collector gets the ids that it knows, and no other."""
    thread = scenes.with_tool(store)
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
        shell = Shell(tmp_path, capsys, monkeypatch)
        words = ("export", "--format", "otlp", "--send", "--store", str(tmp_path / "store.db"))
        assert "Sent 5 spans." in shell(*words).out
        first = received(collector)
        shell(*words)
        both = received(collector)

    assert sorted(first) == sorted(span.ref.span for span in telemetry.thread_spans(thread))
    assert (len(both), set(both)) == (2 * len(first), set(first))


class Away(SpanExporter):
    """An exporter whose collector takes nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Fail."""
        return SpanExportResult.FAILURE


def test_spans_that_are_not_delivered_are_an_error(store: Store) -> None:
    """`send` says how many were not taken."""
    spans = telemetry.thread_spans(scenes.with_tool(store))

    with raises(Unavailable, "spans_not_delivered", spans=5):
        telemetry.send(spans, exporter=Away())


def test_the_environment_leads_to_a_collector(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_EXPORTER_OTLP_ENDPOINT alone: the official exporter sends spans and metrics there, without content."""
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
        with telemetry.enable(store):
            thread = scenes.with_tool(store)

    traces = [body for path, body in collector.bodies if path == "/v1/traces"]
    numbers = [
        ExportMetricsServiceRequest.FromString(body)
        for path, body in collector.bodies
        if path == "/v1/metrics"
    ]
    assert sorted(received(collector)) == sorted(span.ref.span for span in telemetry.thread_spans(thread))
    assert numbers
    assert all(b"shop" in body for body in traces)
    assert not any(SECRET.encode() in body for _, body in collector.bodies)


class NamedServer(Script):
    """A model whose server has a name that is no address."""

    server = "https://gateway:prod"


def test_a_server_whose_name_is_no_address_has_no_address(store: Store) -> None:
    """Its port is no number; the span is sent without."""
    exporter = InMemorySpanExporter()

    with telemetry.enable(store, exporter=exporter):
        store.thread("odd", agent=Agent("odd", backend=NamedServer(say("1")))).run("hi")

    spans = exporter.get_finished_spans()
    assert len(spans) == 2
    assert not any("server.address" in (each.attributes or {}) for each in spans)


def test_spans_that_cannot_be_made_do_not_stop_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What fails is logged by its kind alone, and what comes later is sent."""
    exporter, failed = InMemorySpanExporter(), threading.Event()

    def failing(news: NewHistory, *, content: Content) -> list[Span]:
        if not failed.is_set():
            failed.set()
            raise ZeroDivisionError(SECRET)
        return new_spans(news, content=content)

    monkeypatch.setattr(import_module("perdure.telemetry.enable"), "new_spans", failing)
    with telemetry.enable(store, exporter=exporter):
        store.thread("first", agent=Agent("a", backend=Script(say("1")))).run("hi")
        assert failed.wait(60)
        store.thread("second", agent=Agent("a", backend=Script(say("1")))).run("hi")

    assert len(exporter.get_finished_spans()) >= 2  # those of the second run, and perhaps of the first
    assert "ZeroDivisionError" in caplog.text
    assert SECRET not in caplog.text
