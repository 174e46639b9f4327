"""Builds the adapter for `gemini-interactions`, and states the capabilities of the Interactions API."""

from __future__ import annotations

from perdure.providers.capabilities import Capability, Level, Levels
from perdure.providers.gemini.capabilities import CAPABILITIES as OF_GENERATE
from perdure.providers.gemini_interactions.parse import VENDOR, Stream, parse
from perdure.providers.gemini_interactions.render import render
from perdure.providers.gemini_interactions.request import read_request
from perdure.providers.wire.format import Format

__all__ = ["CAPABILITIES", "supports", "ADAPTER"]

# The models are those of generateContent.  Media need no type here; requests have no fields for choices, logprobs
# and top_k, and no status reports a refusal.
CAPABILITIES: Levels = {
    **OF_GENERATE,
    Capability.IMAGE_URLS: "full",
    Capability.DOCUMENT_URLS: "full",
    Capability.REFUSALS: "lossy",
    Capability.CHOICES: "none",
    Capability.LOGPROBS: "none",
    Capability.TOP_K: "none",
}


def supports(capability: str, *, model: str | None = None, provider: str | None = None) -> Level:
    """Return the level of a capability for the format; unknown ones are `none`."""
    return CAPABILITIES.get(capability, "none")


ADAPTER = Format(
    api="gemini-interactions",
    vendor=VENDOR,
    renders=render,
    reads=read_request,
    parses=parse,
    opens=Stream,
    can=supports,
)
