"""A key in a variable goes to its owner's address, and elsewhere only if the user says so."""

from __future__ import annotations

import pytest

from perdure import Backend
from perdure.providers.openai_chat import transport
from perdure.providers.transport.contract import Request
from tests.providers.asking import ask
from tests.providers.playing import playing
from tests.providers.vendors import VENDORS

CHAT = next(vendor for vendor in VENDORS if vendor.api == "openai-chat")
RESPONSES = next(vendor for vendor in VENDORS if vendor.api == "openai-responses")
MINE, OTHERS = "sk-of-openai-000000", "gsk-of-groq-0000000"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of two vendors in the environment."""
    monkeypatch.setenv("OPENAI_API_KEY", MINE)
    monkeypatch.setenv("GROQ_API_KEY", OTHERS)


@pytest.mark.parametrize("name", ["openai-chat:m", "openai:m", "groq:m", "vllm:m"])
def test_a_key_is_not_sent_to_an_address_that_is_not_its_owners(name: str) -> None:
    """Whatever stands before the colon of the backend."""
    vendor = RESPONSES if name == "openai:m" else CHAT
    with playing(vendor.streamed()) as place:
        ask(Backend(name, base_url=f"{place.url}/v1"))
        sent = place.requests[0].headers

    assert not {MINE, OTHERS} & set(" ".join(sent.values()).split())


@pytest.mark.parametrize("said", [{"api_key": MINE}, {"provider": "openai"}])
def test_a_key_is_sent_where_the_user_says_so(said: dict[str, str]) -> None:
    """By giving it, or by saying that the address is a way to its owner."""
    with playing(CHAT.streamed()) as place:
        ask(
            Backend(
                "openai-chat:m",
                base_url=f"{place.url}/v1",
                api_key=said.get("api_key"),
                provider=said.get("provider"),
            )
        )
        sent = place.requests[0].headers

    assert MINE in " ".join(sent.values()).split()


@pytest.mark.parametrize(
    ("name", "address", "key"),
    [
        ("openai-chat:m", "https://api.openai.com/v1", MINE),
        ("openai-chat:m", "https://eu.api.openai.com/v1", MINE),
        ("openai-chat:m", "https://evil-openai.com/v1", None),
        ("openai-chat:m", "https://openai.com.example/v1", None),
        ("groq:m", "https://api.groq.com/openai/v1", OTHERS),
        ("groq:m", "https://api.openai.com/v1", MINE),
        ("groq:m", "https://groq.example/v1", None),
    ],
)
def test_whose_address_it_is_decides_which_key_is_meant(name: str, address: str, key: str | None) -> None:
    """By its host as a whole, not by how it looks."""
    backend = Backend(name, base_url=address)
    request = Request(name, provider=backend.target.provider, model="m", body={}, base_url=address)

    _, sent = transport._whereabouts(request)

    assert sent == (key or "none")
