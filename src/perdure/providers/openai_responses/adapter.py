"""Builds the adapter for `openai-responses`, and states the capabilities of the Responses API."""

from __future__ import annotations

from perdure.providers.capabilities import Capability, Level, Levels
from perdure.providers.openai_responses.parse import VENDOR, ResponsesStream, parse
from perdure.providers.openai_responses.render import render
from perdure.providers.openai_responses.request import read_request
from perdure.providers.wire.format import Format

__all__ = ["CAPABILITIES", "supports", "ADAPTER"]

CAPABILITIES: Levels = {
    Capability.TEXT: "full",
    Capability.IMAGES: "full",
    Capability.IMAGE_URLS: "full",
    Capability.DOCUMENTS: "full",
    Capability.DOCUMENT_URLS: "full",
    Capability.AUDIO: "none",
    Capability.VIDEO: "none",
    Capability.TOOLS: "full",
    Capability.PARALLEL_TOOLS: "full",
    Capability.TOOL_CHOICE: "full",
    Capability.STRICT_TOOLS: "full",
    Capability.TOOL_RESULT_MEDIA: "full",
    Capability.TOOL_ERRORS: "lossy",  # the words say it
    Capability.STRUCTURED_OUTPUT: "full",
    Capability.JSON_MODE: "full",
    Capability.REASONING: "full",
    Capability.REASONING_HISTORY: "full",
    Capability.SERVER_TOOLS: "full",
    Capability.COMPUTER_USE: "full",
    Capability.CITATIONS: "full",
    Capability.REFUSALS: "full",
    Capability.SYSTEM: "full",
    Capability.MID_SYSTEM: "full",
    Capability.CHOICES: "none",
    Capability.STREAMING: "full",
    Capability.PROMPT_CACHE: "full",
    Capability.LOGPROBS: "full",
    Capability.SEED: "none",
    Capability.STOP: "none",
    Capability.TOP_K: "none",
}


def supports(capability: str, *, model: str | None = None, provider: str | None = None) -> Level:
    """Return the level of a capability for the format; unknown ones are `none`."""
    return CAPABILITIES.get(capability, "none")


ADAPTER = Format(
    api="openai-responses",
    vendor=VENDOR,
    renders=render,
    reads=read_request,
    parses=parse,
    opens=ResponsesStream,
    can=supports,
)
