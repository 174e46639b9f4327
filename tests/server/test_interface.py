"""The interface as a document: it is what the handlers say, and the server keeps to it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from perdure.server import openapi
from perdure.store.store import Store
from tests.crash.campaign import DEEP, SEED, sized
from tests.forked import ForkServer
from tests.server.client import TOKEN, Client, assistant, serving

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
STREAMS = "events"  # they never end


def test_the_checked_in_document_is_what_the_handlers_say() -> None:
    """`python -m perdure.server.openapi > docs/reference/openapi.json` writes it again."""
    assert (REFERENCE / "openapi.json").read_bytes() == openapi.document() + b"\n"


def test_the_reference_page_is_what_the_handlers_say() -> None:
    """`python -m perdure.server.openapi page > docs/reference/http.md` writes it again."""
    assert (REFERENCE / "http.md").read_text() == openapi.page()


def test_every_shape_that_is_named_is_described() -> None:
    """No reference in the document leads nowhere."""
    text = openapi.document().decode()
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}

    assert named <= set(openapi.schema()["components"]["schemas"])


@pytest.mark.parametrize("secret", [TOKEN, pytest.param(None, marks=pytest.mark.deep)])
def test_generated_requests_meet_no_surprise(
    forks: ForkServer, store: Store, secret: str | None, tmp_path: Path
) -> None:
    """Whatever the document allows, and much that it does not: only statuses and shapes that it names, and no 5xx."""
    with serving(store, assistant()) as client:
        store.thread("0", agent="assistant", owner="ann").put("/0", [1])

        found = generated(forks, client, secret, tmp_path)

    assert found.returncode == 0, found.stdout[-5_000:]
    assert "passed" in found.stdout


def test_an_answer_that_fails_is_found(
    forks: ForkServer, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Control: a handler with a defect makes the same requests fail."""
    module = import_module("perdure.server.app")
    encoded = module.encoded

    def broken(found: Any) -> bytes:
        raise ValueError("a defect") if "Health" in type(found).__name__ else encoded(found)

    monkeypatch.setattr(module, "encoded", broken)

    with serving(store) as client:
        found = generated(forks, client, TOKEN, tmp_path, "--include-path", "/healthz")

    assert found.returncode != 0
    assert "Server error" in found.stdout


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    """Processes that have imported schemathesis."""
    with ForkServer("schemathesis.cli", "schemathesis.engine") as server:
        yield server


def generated(
    forks: ForkServer, client: Client, secret: str | None, place: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """Let schemathesis make requests, by themselves and in sequences, and check every answer."""
    headers = [] if secret is None else ["-H", f"Authorization: Bearer {secret}"]
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    return forks.run(
        [
            *("-c", "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())", "run"),
            f"http://127.0.0.1:{client.port}{openapi.ADDRESS}",
            *headers,
            *("--exclude-path-regex", STREAMS, "--checks", checks, "--no-color"),
            *("--max-examples", str(sized(1, 50)), "--seed", str(SEED)),
            *(
                "--phases",
                "coverage,fuzzing,stateful" if DEEP else "fuzzing,stateful" if secret else "fuzzing",
            ),
            *("--generation-database", "none"),
            *options,
        ],
        cwd=place,
    )
