"""What the tests of transports share: an environment without keys, and no waiting between attempts."""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import certifi
import pytest

from perdure.providers import client

_PREFIXES = ("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_", "AWS_", "MISTRAL_", "AZURE_", "OLLAMA_")


@pytest.fixture(scope="session")
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with one of the certificates that clients trust: to read all of them takes a client longer than to ask."""
    first, end, _ = Path(certifi.where()).read_text(encoding="utf-8").partition("-----END CERTIFICATE-----")
    file = tmp_path_factory.mktemp("certificates") / "one.pem"
    file.write_text(f"{first}{end}\n", encoding="utf-8")
    return str(file)


@pytest.fixture(scope="session", autouse=True)
def descriptions_of_aws() -> Generator[None]:
    """The descriptions of AWS's services, read once: each session of boto3 would parse megabytes of JSON again."""
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("botocore"):
            from botocore.loaders import JSONFileLoader  # pyright: ignore[reportMissingTypeStubs]

            loaded = cache(cast("Any", JSONFileLoader()).load_file)
            patch.setattr(JSONFileLoader, "load_file", lambda _, path: loaded(path))
        yield


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, one_certificate: str) -> None:
    """Remove the keys of the user who runs the tests; AWS has made-up ones, since it signs even for a local server."""
    for name in [each for each in os.environ if each.startswith(_PREFIXES)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMADEUP0123456789")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "made-up-secret-made-up-secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv(
        "SSL_CERT_FILE", one_certificate
    )  # every server here is one of ours, without encryption


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt comes at once."""
    monkeypatch.setattr(client, "_FIRST_SECONDS", 0.001)
