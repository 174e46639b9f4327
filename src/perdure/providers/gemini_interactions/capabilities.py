"""What the Interactions API does: fully, with loss, or not at all."""

from __future__ import annotations

from perdure.providers.capabilities import Capability, Level, Levels
from perdure.providers.gemini.capabilities import CAPABILITIES as OF_GENERATE

__all__ = ["CAPABILITIES", "supports"]

# The models are those of generateContent.  Media need no type here; requests have no fields for choices, logprobs
# and top_k, and no status says that an answer was refused.
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
    """How well the format does one thing; what is not known is not done."""
    return CAPABILITIES.get(capability, "none")
