"""With all vendorMetadata removed beforehand, every vendor but its issuer is sent the same request."""

from __future__ import annotations

import json

import pytest

from perdure import Message
from tests.context.lines import BACKENDS
from tests.crash.campaign import sized
from tests.recorded.wire import FOLDER
from tests.switching.test_without_vendor_metadata import recorded, stripped, told

VENDORS = {  # whose metadata each format may give back
    "openai": {"openai"},
    "openai-chat": {"openai"},
    "anthropic": {"anthropic"},
    "google": {"google", "gemini"},
    "bedrock": {"bedrock", "amazon"},
    "mistral": {"mistral"},
    "foundry": {"azure", "foundry"},
    "ollama-chat": {"ollama"},
    "gemini-interactions": {"google-interactions"},
}


def vendors(messages: list[Message]) -> set[str]:
    """Whose metadata there is."""
    found = [json.loads(message.vendor_metadata) for message in messages if message.vendor_metadata]
    return {vendor for each in found for vendor in each}


@pytest.mark.skipif(not FOLDER.exists(), reason="the recorded traffic is not there")
def test_every_other_vendor_is_sent_the_same() -> None:
    """Recorded conversations of every format, for every backend that is not the issuer's."""
    compared = 0

    for id, context in recorded()[:: sized(8, 2)]:
        whole, bare = told(context.messages), told(stripped(context.messages))
        issuers = vendors(list(context.messages))
        for backend in BACKENDS:
            if VENDORS[backend.partition(":")[0]] & issuers:
                continue
            assert whole.render(backend).body == bare.render(backend).body, (id, backend)
            compared += 1

    assert compared >= 100


@pytest.mark.skipif(not FOLDER.exists(), reason="the recorded traffic is not there")
def test_the_issuer_gets_back_what_is_its_own() -> None:
    """The control: for the issuer itself the metadata makes a difference in most conversations."""
    different = same = 0

    for _, context in recorded()[:: sized(4, 2)]:
        whole, bare = told(context.messages), told(stripped(context.messages))
        issuers = vendors(list(context.messages))
        for backend in BACKENDS:
            if VENDORS[backend.partition(":")[0]] & issuers:
                is_same = whole.render(backend).body == bare.render(backend).body
                same, different = same + is_same, different + (not is_same)

    assert different > same / 4
