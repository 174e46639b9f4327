"""What the tests of transports share: an environment without keys, and no waiting between attempts."""

from __future__ import annotations

import os

import pytest

from perdure.providers import client

_PREFIXES = ("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_", "AWS_", "MISTRAL_", "AZURE_", "OLLAMA_")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the keys of the user who runs the tests; AWS has made-up ones, since it signs even for a local server."""
    for name in [each for each in os.environ if each.startswith(_PREFIXES)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMADEUP0123456789")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "made-up-secret-made-up-secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt comes at once."""
    monkeypatch.setattr(client, "_FIRST_SECONDS", 0.001)
