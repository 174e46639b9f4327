"""A backend is a plain value: what it names, and what it never shows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from perdure import Agent, Backend
from perdure.errors import Invalid, NotFound
from tests.coded import raises


def test_its_repr_shows_neither_key_nor_client() -> None:
    """Whatever prints it."""
    assert "sk-secret" not in repr(Backend("openai:gpt-5.6", api_key="sk-secret", client="sk-secret"))


@pytest.mark.parametrize(
    "address",
    ["http://ann:sk-secret@llm.example:8000/v1", "http://llm.example:8000/v1?key=sk-secret#sk-secret"],
)
def test_a_password_in_the_address_is_not_shown(address: str) -> None:
    """Nor one in the options, such as a header; the server itself is shown, also in an agent."""
    backend = Backend(
        "openai-chat:qwen3", base_url=address, options={"extra_headers": {"x-key": "sk-secret"}}
    )

    shown = repr(Agent("planner", backend=backend))

    assert "sk-secret" not in shown
    assert shown == "<agent planner on openai-chat:qwen3 at http://llm.example:8000/v1>"
    assert repr(backend) == "Backend('openai-chat:qwen3', base_url='http://llm.example:8000/v1')"


def test_it_can_be_compared_and_used_as_a_key() -> None:
    """Options count for equality, not for the hash."""
    first, second = (Backend("openai:gpt-5.6", options={"seed": 7}) for _ in range(2))

    assert first == second
    assert len({first, second}) == 1


@pytest.mark.parametrize(
    ("backend", "provider"),
    [
        (Backend("openai:gpt-5.6"), "openai"),
        (Backend("openai-chat:qwen3", base_url="http://localhost:8000/v1"), "localhost:8000"),
        (Backend("openai:gpt-5.6", base_url="https://api.openai.com/v1"), "openai"),
        (Backend("openai:gpt-5.6", base_url="https://user:pw@proxy.example/v1"), "proxy.example"),
        (Backend("openai:gpt-5.6", base_url="https://proxy.example/v1", provider="openai"), "openai"),
        (Backend("vllm:qwen3", base_url="http://gpu:8000/v1"), "vllm"),
        (Backend("foundry:phi-4", base_url="https://x.services.ai.azure.com/models"), "azure"),
    ],
    ids=str,
)
def test_another_address_is_another_issuer(backend: Backend, provider: str) -> None:
    """What one server signs another cannot read; a user who knows better says so."""
    assert backend.target.provider == provider


def test_what_names_no_backend_is_refused() -> None:
    """At once, where it is written."""
    with raises(Invalid, "backend_name_invalid"):
        Backend("")
    with raises(NotFound, "provider_not_found"):
        Backend("nobody:model")


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"timeout": -1}, {"retries": -1}], ids=str)
def test_numbers_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    """Nothing is declared."""
    (field,) = wrong
    with raises(Invalid, f"{field}_invalid", **wrong):
        Backend("openai:gpt-5.6", **wrong)  # pyright: ignore[reportArgumentType]


def test_declaring_one_imports_no_sdk() -> None:
    """Nor does asking what model an agent has."""
    program = (
        "import sys\nfrom perdure import Agent, Backend\nfrom perdure.runtime.agent.agent import model_of\n"
        "for name in ('openai:m', 'anthropic:m', 'google:m', 'bedrock:m', 'mistral:m', 'foundry:m', 'local:m'):\n"
        "    model_of(Agent('a', backend=Backend(name)))\n"
        "assert not {'openai', 'anthropic', 'google.genai', 'boto3', 'mistralai', 'xllamacpp'} & set(sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


IMPORTS = """
import asyncio, os, sys, threading
from perdure import Backend
from perdure.errors import PerdureError
from perdure.model.context import Context
from perdure.model.message import Message, Text
from perdure.providers.client import Speaker

name, package = sys.argv[1:]
found = {}

class Recorder:
    def find_spec(self, module, path=None, target=None):
        if module.startswith(package):
            found[module] = threading.current_thread() is threading.main_thread()

async def ask():
    backend = Backend(name, base_url="http://127.0.0.1:9", api_key="none", retries=0, timeout=5)
    try:
        async for _ in Speaker(backend).step(Context(messages=(Message(role="user", content=(Text("Hi"),)),))):
            pass
    except PerdureError as error:
        print(error.code)

sys.meta_path.insert(0, Recorder())
asyncio.run(ask())
print(len(found) > 10, sum(found.values()) < len(found) / 20)
"""


@pytest.mark.parametrize(
    ("backend", "package"),
    [
        ("openai:gpt-5.6", "openai"),
        pytest.param("openai-responses:gpt-5.6", "openai", marks=pytest.mark.deep),
        pytest.param("anthropic:claude-opus-5", "anthropic", marks=pytest.mark.deep),
        pytest.param("google:gemini-3-pro", "google.genai", marks=pytest.mark.deep),
        pytest.param("mistral:mistral-large", "mistralai", marks=pytest.mark.deep),
    ],
)
def test_the_sdk_is_imported_beside_the_event_loop(backend: str, package: str) -> None:
    """It takes seconds, in which other requests of a server would wait; a few late modules may remain."""
    asked = subprocess.run(
        [sys.executable, "-c", IMPORTS, backend, package], check=False, capture_output=True, text=True
    )

    assert asked.stdout.split("\n")[-2] == "True True", asked
