"""Clients that the user already has: of every SDK, sync or async."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import boto3  # pyright: ignore[reportMissingTypeStubs]
import openai
import pytest
from google import genai
from mistralai.client import Mistral

from perdure import Backend
from perdure.errors import Unsupported
from perdure.providers.transport.errors import BackendUnavailable
from tests.coded import raises
from tests.providers.asking import asked, finished
from tests.providers.playing import Place, playing, whole
from tests.providers.vendors import KEY, TEXT, VENDORS

BY_API = {vendor.api: vendor for vendor in VENDORS}


async def close_sync(client: Any) -> None:
    """Close a client that blocks."""
    client.close()


async def close_genai(client: genai.Client) -> None:
    """Close both halves."""
    await client.aio.aclose()
    client.close()


async def close_mistral(client: Mistral) -> None:
    """Close both halves."""
    await client.__aexit__(None, None, None)
    client.__exit__(None, None, None)


def boto(place: Place) -> Any:
    """A client of boto3."""
    return boto3.client("bedrock-runtime", endpoint_url=place.url)


def google(place: Place) -> genai.Client:
    """A client of google-genai."""
    return genai.Client(api_key=KEY, http_options=genai.types.HttpOptions(base_url=place.url))


CLIENTS: dict[str, tuple[str, Callable[[Place], Any], Callable[[Any], Awaitable[None]]]] = {
    "openai async": (
        "openai-chat",
        lambda place: openai.AsyncOpenAI(api_key=KEY, base_url=place.url + "/v1", max_retries=1),
        openai.AsyncOpenAI.close,
    ),
    "openai sync": (
        "openai-chat",
        lambda place: openai.OpenAI(api_key=KEY, base_url=place.url + "/v1", max_retries=1),
        close_sync,
    ),
    "responses sync": (
        "openai-responses",
        lambda place: openai.OpenAI(api_key=KEY, base_url=place.url + "/v1"),
        close_sync,
    ),
    "anthropic async": (
        "anthropic-messages",
        lambda place: anthropic.AsyncAnthropic(api_key=KEY, base_url=place.url),
        anthropic.AsyncAnthropic.close,
    ),
    "anthropic sync": (
        "anthropic-messages",
        lambda place: anthropic.Anthropic(api_key=KEY, base_url=place.url),
        close_sync,
    ),
    "google": ("gemini-generate", google, close_genai),
    "interactions": ("gemini-interactions", google, close_genai),
    "boto3": ("bedrock-converse", boto, close_sync),
    "mistral": (
        "mistral-chat",
        lambda place: Mistral(api_key=KEY, server_url=place.url),
        close_mistral,
    ),
    "foundry": (
        "azure-inference-chat",
        lambda place: openai.OpenAI(api_key=KEY, base_url=place.url + "/models"),
        close_sync,
    ),
    "ollama async": (
        "ollama-chat",
        lambda place: openai.AsyncOpenAI(api_key=KEY, base_url=place.url),
        openai.AsyncOpenAI.close,
    ),
    "ollama sync": (
        "ollama-chat",
        lambda place: openai.OpenAI(api_key=KEY, base_url=place.url),
        close_sync,
    ),
}


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "whole"])
def test_a_client_of_the_users_is_used(name: str, *, is_stream: bool) -> None:
    """It is asked in the place of one of ours."""
    api, made, close = CLIENTS[name]
    vendor = BY_API[api]

    async def go(place: Place) -> str:
        client = made(place)
        try:
            backend = Backend(vendor.backend, client=client, options={"stream": is_stream})
            return finished(await asked(backend)).message.text
        finally:
            await close(client)

    with playing(vendor.streamed() if is_stream else vendor.whole()) as place:
        assert asyncio.run(go(place)) == TEXT


def _requests_with(retries: int | None) -> int:
    """How often a busy server is asked by a client that would ask twice by itself."""
    vendor = BY_API["openai-chat"]
    with playing(whole({"error": {"message": "busy"}}, status=503, headers={"retry-after-ms": "1"})) as place:
        client = openai.OpenAI(api_key=KEY, base_url=place.url + "/v1", max_retries=1)
        with client, pytest.raises(BackendUnavailable):
            asyncio.run(asked(Backend(vendor.backend, client=client, retries=retries)))
    return len(place.requests)


def test_a_client_of_the_users_repeats_as_it_was_told() -> None:
    """Attempts do not multiply."""
    assert _requests_with(None) == 2


def test_retries_that_are_given_are_ours() -> None:
    """Then the client repeats nothing by itself."""
    assert _requests_with(0) == 1
    assert _requests_with(2) == 3


def test_what_a_given_client_signs_belongs_to_its_server() -> None:
    """Another server cannot read it, so it is another issuer."""
    at_home = openai.OpenAI(api_key=KEY)
    elsewhere = openai.OpenAI(api_key=KEY, base_url="https://proxy.example/v1")

    with at_home, elsewhere:
        assert Backend("openai:gpt-5.6", client=at_home).target.provider == "openai"
        assert Backend("openai:gpt-5.6", client=elsewhere).target.provider == "proxy.example"


def test_a_client_of_another_kind_is_refused() -> None:
    """For Google the SDK's own is needed."""
    with raises(Unsupported, "client_unsupported", wanted="google.genai.Client"):
        asyncio.run(asked(Backend("google:gemini-m", client=object())))


def test_every_vendor_is_tried() -> None:
    """No transport is left out."""
    assert {api for api, _, _ in CLIENTS.values()} == {vendor.api for vendor in VENDORS}
