"""Spans in a real tracing system: Phoenix, where its command is installed (`pip install arize-phoenix`)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path
from urllib.error import URLError

import pytest

from perdure import Store, telemetry
from tests.telemetry import scenes
from tests.telemetry.scenes import all_spans

PHOENIX = shutil.which("phoenix")
WAIT_SECONDS = 300

pytestmark = pytest.mark.skipif(PHOENIX is None, reason="Phoenix (arize-phoenix) is not installed")


def free_port() -> int:
    """A port that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.fixture
def phoenix(tmp_path: Path) -> Generator[str]:
    """The address of a Phoenix with an empty database."""
    port = free_port()
    environment = os.environ | {
        "PHOENIX_WORKING_DIR": str(tmp_path / "phoenix"),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
    }
    environment.pop("PYTHONPATH", None)
    address = f"http://127.0.0.1:{port}"
    quiet = subprocess.DEVNULL
    with subprocess.Popen([str(PHOENIX), "serve"], env=environment, stdout=quiet, stderr=quiet) as process:
        try:
            wait_for(lambda: fetched(f"{address}/healthz") is not None)
            yield address
        finally:
            process.terminate()


def fetched(address: str) -> bytes | None:
    """What an address answers; None while it does not."""
    try:
        with urllib.request.urlopen(address) as answer:
            return bytes(answer.read())
    except URLError:
        return None


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is true."""
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.2)


def found(address: str) -> list[tuple[str, str, str]]:
    """The spans that Phoenix has: trace, span and parent."""
    answer = json.loads(fetched(f"{address}/v1/projects/default/spans?limit=1000") or b'{"data": []}')
    return sorted(
        (each["context"]["trace_id"], each["context"]["span_id"], each["parent_id"] or "")
        for each in answer["data"]
    )


def test_phoenix_finds_every_span_once(store: Store, phoenix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent live and then exported twice, it has each span once, with its parent."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", phoenix)
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    with telemetry.enable(store):
        for scene in scenes.SCENES:
            scene(store)
    spans = all_spans(store)

    wait_for(lambda: len(found(phoenix)) >= len(spans))
    telemetry.send(spans)
    telemetry.send(spans)
    last = telemetry.thread_spans(scenes.with_tool(store, "last"))
    telemetry.send(last)
    wait_for(lambda: len(found(phoenix)) >= len(spans) + len(last))

    assert found(phoenix) == sorted(
        (span.ref.trace, span.ref.span, span.parent.span if span.parent else "") for span in spans + last
    )
