"""What the Responses API does: fully, with loss, or not at all."""

from __future__ import annotations

from perdure.providers.capabilities import Capability, Level, Levels

__all__ = ["CAPABILITIES", "supports"]

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
    """How well the format does one thing; what is not known is not done."""
    return CAPABILITIES.get(capability, "none")
