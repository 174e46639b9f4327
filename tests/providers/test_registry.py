"""From names to adapters, and from backends to wire formats."""

from __future__ import annotations

import subprocess
import sys

import pytest

from perdure.errors import Invalid, NotFound
from perdure.providers import adapter
from perdure.providers.registry import APIS, Target, target
from tests.coded import raises


@pytest.mark.parametrize("api", APIS)
def test_every_shipped_adapter_goes_by_its_own_name(api: str) -> None:
    """What is found under a name says that it is that."""
    assert adapter(api).api == api


def test_an_unknown_wire_format_is_not_found() -> None:
    """The error names what there is."""
    with raises(NotFound, "adapter_not_found", api="smoke-signals", known=sorted(APIS)):
        adapter("smoke-signals")


@pytest.mark.parametrize(
    ("backend", "meant"),
    [
        ("openai:gpt-5.6", Target("openai-responses", "openai", "gpt-5.6")),
        ("openai-chat:gpt-5.4", Target("openai-chat", "openai", "gpt-5.4")),
        ("anthropic:claude-sonnet-5-5", Target("anthropic-messages", "anthropic", "claude-sonnet-5-5")),
        ("google:gemini-3-pro", Target("gemini-generate", "google", "gemini-3-pro")),
        ("gemini:gemini-3-pro", Target("gemini-generate", "google", "gemini-3-pro")),
        ("bedrock:us.amazon.nova-pro-v1:0", Target("bedrock-converse", "bedrock", "us.amazon.nova-pro-v1:0")),
        ("mistral:mistral-large", Target("mistral-chat", "mistral", "mistral-large")),
        ("foundry:phi-4", Target("azure-inference-chat", "azure", "phi-4")),
        ("azure:phi-4", Target("azure-inference-chat", "azure", "phi-4")),
        ("ollama-chat:qwen3:8b", Target("ollama-chat", "ollama", "qwen3:8b")),
        ("gemini-interactions:gemini-3-pro", Target("gemini-interactions", "google", "gemini-3-pro")),
        ("ollama:qwen3:8b", Target("openai-chat", "ollama", "qwen3:8b")),
        ("groq:llama-3.3-70b", Target("openai-chat", "groq", "llama-3.3-70b")),
        ("azure-openai:gpt-5.4", Target("openai-chat", "azure-openai", "gpt-5.4")),
    ],
)
def test_a_backend_name_says_format_server_and_model(backend: str, meant: Target) -> None:
    """The first colon parts the provider from the model, which may hold more of them."""
    assert target(backend) == meant


@pytest.mark.parametrize("backend", ["no-such-model", ":gpt-5.6", "openai:", ""])
def test_what_names_no_backend_is_refused(backend: str) -> None:
    """Both halves have to be there."""
    with raises(Invalid, "backend_name_invalid", backend=backend):
        target(backend)


def test_an_unknown_provider_is_not_found() -> None:
    """The error names what there is."""
    with raises(NotFound, "provider_not_found", provider="nobody"):
        target("nobody:model")


LISTING = """
import sys
import perdure
from perdure.providers import registry
from perdure.testing import Script, say

registry.providers()
with perdure.open("memory:") as store:
    store.thread("t", agent=perdure.Agent("a", backend=Script(say("Hi.")))).run("Hello.")
print(*(name for name in sys.modules if name.startswith("perdure.providers.")))
"""


def test_neither_the_list_of_providers_nor_a_run_loads_rules_or_unused_adapters() -> None:
    """The validator is for its own commands, and an adapter is loaded for the format that is used."""
    ended = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, check=True)

    loaded = ended.stdout.split()
    assert [name for name in loaded if name.endswith(".adapter") or ".validator" in name] == []
    assert "perdure.providers.registry" in loaded
