"""What `perdure export --format otlp` writes is read back by the official protocol package."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

import perdure
from perdure import Store
from perdure.errors import Unsupported
from perdure.telemetry import Span, otlp_document, thread_spans
from tests.coded import raises
from tests.surfaces.shell import Shell
from tests.telemetry import scenes
from tests.telemetry.scenes import SECRET

IDS = ("traceId", "spanId", "parentSpanId")


def read(text: str) -> ExportTraceServiceRequest:
    """Read a request; OTLP writes ids in hexadecimal digits where the JSON of protobuf has base64."""

    def proto(value: Any) -> Any:
        if isinstance(value, list):
            return [proto(each) for each in value]
        if isinstance(value, dict):
            return {
                key: base64.b64encode(bytes.fromhex(each)).decode() if key in IDS else proto(each)
                for key, each in value.items()
            }
        return value

    return json_format.ParseDict(proto(json.loads(text)), ExportTraceServiceRequest())


def spans_in(text: str) -> list[trace_pb2.Span]:
    """The spans of requests, one a line."""
    return [
        span
        for line in text.splitlines()
        for resource in read(line).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def value_of(span: trace_pb2.Span, key: str) -> Any:
    """The value of an attribute."""
    (found,) = [each.value for each in span.attributes if each.key == key]
    return getattr(found, str(found.WhichOneof("value")))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every scene."""
    path = tmp_path_factory.mktemp("otlp") / "perdure.db"
    with perdure.open(path) as store:
        for scene in scenes.SCENES:
            scene(store)
    return path


@pytest.fixture
def shell(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    """A shell in an empty directory, whose commands use the store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERDURE_STORE", str(place))
    return Shell(tmp_path, capsys, monkeypatch)


def spans_of(place: Path) -> list[Span]:
    """The spans of the store, thread by thread."""
    with perdure.open(place, read_only=True) as store:
        return scenes.all_spans(store)


def test_the_official_package_reads_every_span(shell: Shell, place: Path) -> None:
    """Ids, times, kinds, parents, links, events and attributes are those of the spans."""
    text = shell.ok("export", "--format", "otlp").out

    read_back, spans = spans_in(text), spans_of(place)

    assert len(read_back) == len(spans) > 30
    for found, span in zip(read_back, spans, strict=True):
        assert (found.trace_id.hex(), found.span_id.hex()) == (span.ref.trace, span.ref.span)
        assert found.parent_span_id.hex() == (span.parent.span if span.parent else "")
        assert (found.start_time_unix_nano, found.end_time_unix_nano) == (span.start * 1000, span.end * 1000)
        assert found.kind == (
            trace_pb2.Span.SPAN_KIND_CLIENT if span.is_client else trace_pb2.Span.SPAN_KIND_INTERNAL
        )
        assert (found.status.code == trace_pb2.Status.STATUS_CODE_ERROR) == span.is_error
        assert [link.span_id.hex() for link in found.links] == [link.to.span for link in span.links]
        assert [event.name for event in found.events] == [event.name for event in span.events]
        assert {each.key: value_of(found, each.key) for each in found.attributes} == span.attributes


def test_a_second_export_has_the_same_bytes(shell: Shell) -> None:
    """Exported twice, to a file or to the output: no id is new, and none occurs twice."""
    first = shell.ok("export", "--format", "otlp").out
    shell.ok("export", "--format", "otlp", "--output", "spans.jsonl")

    assert Path("spans.jsonl").read_text() == first
    ids = [span.span_id for span in spans_in(first)]
    assert len(set(ids)) == len(ids)


def test_one_thread_is_one_request(shell: Shell) -> None:
    """A thread that is named is exported alone."""
    text = shell.ok("export", "approval", "--format", "otlp").out

    assert {value_of(span, "gen_ai.conversation.id") for span in spans_in(text)} == {"approval"}
    assert len(text.splitlines()) == 1


def test_content_is_exported_only_if_it_is_asked_for(shell: Shell) -> None:
    """Without --content no text of the conversation is written; with `text` it is."""
    plain = shell.ok("export", "--format", "otlp").out
    asked = shell.ok("export", "--format", "otlp", "--content", "text").out

    assert SECRET not in plain
    assert SECRET in asked


def test_a_file_that_exists_is_not_overwritten(shell: Shell) -> None:
    """The export is refused, and the file stays as it is."""
    Path("mine.txt").write_text("mine")

    ended = shell("export", "--format", "otlp", "--output", "mine.txt", "--json")

    assert (ended.code, ended.error["error"]) == (4, "Conflict")
    assert Path("mine.txt").read_text() == "mine"


def test_content_belongs_to_spans_alone(shell: Shell) -> None:
    """`--content` with another format is refused."""
    ended = shell("export", "tool", "--format", "openai-chat", "--content", "text")

    assert ended.code == 2


def test_text_that_utf8_cannot_express_is_replaced(store: Store) -> None:
    """A lone surrogate in a span becomes a question mark, and the rest is written."""
    (span, *_) = thread_spans(scenes.with_tool(store))
    strange = Span(
        ref=span.ref, parent=None, name="a\ud800b", start=1, end=2, attributes={"perdure.run.id": "\udfff"}
    )

    (found,) = spans_in(json.dumps(otlp_document([strange])))

    assert (found.name, value_of(found, "perdure.run.id")) == ("a?b", "?")


OFF = """
import sys
import perdure
from perdure import telemetry
from perdure.server.app import HttpServer
from tests.telemetry import scenes

with perdure.open(sys.argv[1]) as store:
    thread = scenes.with_tool(store)
    telemetry.thread_spans(thread)
    telemetry.StoreMetrics(store).read()
    HttpServer(store)


def loaded():
    return [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]


print(loaded())
import opentelemetry
print(loaded())
"""


def test_off_imports_nothing_of_opentelemetry(tmp_path: Path) -> None:
    """Runs, spans, numbers and the server need none of its packages; the control would be found."""
    ended = subprocess.run(
        [sys.executable, "-c", OFF, str(tmp_path / "store.db")],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )

    off, control = ended.stdout.splitlines()
    assert off == "[]"
    assert "opentelemetry" in control


def test_a_missing_package_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the packages `enable` says what to install, and sends nothing."""
    from perdure import telemetry

    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics.export", None)

    with raises(Unsupported, "package_missing", package="opentelemetry.sdk.metrics.export"):
        telemetry.enable(store)
