"""Capabilities have one set of names: every adapter answers for each, by the truth of what it renders."""

from __future__ import annotations

from importlib import import_module

import pytest

from perdure.providers import adapter, catalog, profile, registry
from perdure.providers.capabilities import MEANINGS, Capability, Level, Levels, least
from perdure.providers.contract import Rendered
from perdure.providers.openai_chat.servers import SERVERS
from perdure.testing.adapters.histories import SHOWN
from perdure.testing.adapters.subject import covers

CHAT = adapter("openai-chat")


def data(api: str) -> Levels:
    """Return the table in an adapter's folder: in its own module, or in that of its models."""
    module = registry._MODULES[api]
    table = getattr(import_module(module), "CAPABILITIES", None)
    return table or import_module(f"{module.removesuffix('adapter')}capabilities").CAPABILITIES


def untrue(level: Level, rendered: Rendered, where: str) -> bool:
    """Whether a request belies a level: lost though `full`, or not reported though `none`."""
    told = [loss for loss in rendered.losses if covers(loss, where)]
    lost = [loss for loss in told if loss.kind != "repaired"]
    return bool(lost) if level == "full" else not told if level == "none" else False


@pytest.mark.parametrize("api", registry.APIS)
def test_every_format_says_each_capability_and_no_other(api: str) -> None:
    """None is missing, none is unknown, and `supports` answers by the data."""
    known = data(api)

    assert set(known) == set(Capability)
    assert {each: adapter(api).supports(each) for each in Capability} == dict(known)


def test_every_capability_says_what_it_means() -> None:
    """In one sentence, each another."""
    assert list(MEANINGS) == list(Capability)
    assert all(words.endswith(".") and words.count(".") == 1 for words in MEANINGS.values())
    assert len(set(MEANINGS.values())) == len(Capability)


@pytest.mark.parametrize("server", SERVERS)
def test_what_is_said_of_a_server_is_true_of_its_requests(server: str) -> None:
    """Where it does a thing fully nothing of it is lost, and where it does not the report says so."""
    found = {
        capability: CHAT.supports(capability, model="model-1", provider=server)
        for capability, (context, where) in SHOWN.items()
        if untrue(
            CHAT.supports(capability, model="model-1", provider=server),
            CHAT.render(context, model="model-1", provider=server),
            where,
        )
    }

    assert found == {}


def test_a_level_that_is_belied_is_seen() -> None:
    """The control: what OpenAI says of itself is not true of Groq, which hears nothing."""
    context, where = SHOWN["audio"]

    assert untrue(CHAT.supports("audio"), CHAT.render(context, model="m", provider="groq"), where)
    assert not untrue(
        CHAT.supports("audio", provider="groq"), CHAT.render(context, model="m", provider="groq"), where
    )


@pytest.mark.parametrize(
    ("api", "model"),
    [
        ("anthropic-messages", "claude-3-haiku-20240307"),
        ("anthropic-messages", "claude-opus-4-8"),
        ("gemini-generate", "gemini-3-pro-preview"),
        ("bedrock-converse", "us.anthropic.claude-haiku-4-5-20251001-v1:0"),
        ("bedrock-converse", "meta.llama3-1-70b-instruct-v1:0"),
        ("openai-chat", "o3"),
        ("openai-responses", "gpt-5"),
    ],
)
def test_what_is_said_of_a_model_is_true_of_its_requests(api: str, model: str) -> None:
    """The same for models that differ from the others of their format."""
    asked = adapter(api)
    shown = {name: it for name, it in SHOWN.items() if asked.supports(name, model=model) != "lossy"}

    found = [
        name
        for name, (context, where) in shown.items()
        if untrue(asked.supports(name, model=model), asked.render(context, model=model), where)
    ]

    assert found == []


def test_a_backend_does_what_its_format_and_its_model_both_do() -> None:
    """The catalog narrows what the format can; an unknown model narrows nothing."""
    models = catalog.shipped()

    plain = profile.of(registry.target("openai-chat:gpt-4o-mini"), models)
    unknown = profile.of(registry.target("openai-chat:nobody-1"), models)

    assert set(plain) == set(unknown) == set(Capability)
    assert plain[Capability.REASONING] == "none"
    assert unknown[Capability.REASONING] == "lossy"
    assert plain[Capability.TOOLS] == unknown[Capability.TOOLS] == "full"


def test_a_chain_does_no_more_than_its_weakest_link() -> None:
    """Of several levels the lowest counts."""
    assert least("full", "lossy") == "lossy"
    assert least("lossy", "none", "full") == "none"
    assert least("full") == "full"
