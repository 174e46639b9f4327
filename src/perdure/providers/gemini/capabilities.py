"""Describes the Gemini API and its models, as data."""

from __future__ import annotations

import re

from perdure.providers.capabilities import Capability, Level, Levels

__all__ = ["CAPABILITIES", "is_third", "same_model", "supports"]

CAPABILITIES: Levels = {
    Capability.TEXT: "full",
    Capability.IMAGES: "full",
    Capability.IMAGE_URLS: "lossy",
    Capability.DOCUMENTS: "full",
    Capability.DOCUMENT_URLS: "lossy",
    Capability.AUDIO: "full",
    Capability.VIDEO: "full",
    Capability.TOOLS: "full",
    Capability.PARALLEL_TOOLS: "full",
    Capability.TOOL_CHOICE: "full",
    Capability.STRICT_TOOLS: "none",
    Capability.TOOL_RESULT_MEDIA: "full",
    Capability.TOOL_ERRORS: "full",
    Capability.STRUCTURED_OUTPUT: "full",
    Capability.JSON_MODE: "full",
    Capability.REASONING: "full",
    Capability.REASONING_HISTORY: "full",
    Capability.SERVER_TOOLS: "full",
    Capability.COMPUTER_USE: "full",
    Capability.CITATIONS: "full",
    Capability.REFUSALS: "full",
    Capability.SYSTEM: "full",
    Capability.MID_SYSTEM: "lossy",
    Capability.CHOICES: "full",
    Capability.STREAMING: "full",
    Capability.PROMPT_CACHE: "full",
    Capability.LOGPROBS: "full",
    Capability.SEED: "full",
    Capability.STOP: "full",
    Capability.TOP_K: "full",
}
_MODEL = re.compile(r"gemini-(?P<generation>\d+)?(?:\.\d+)?-?(?P<size>pro|flash-lite|flash|ultra|nano)?")


def supports(capability: str, *, model: str | None = None, provider: str | None = None) -> Level:
    """Return the level of a capability for the format, or for that model; unknown ones are `none`."""
    if capability == Capability.TOOL_RESULT_MEDIA and model is not None and not is_third(model):
        return "lossy"
    return CAPABILITIES.get(capability, "none")


def is_third(model: str) -> bool:
    """True if it is of the third generation or later: calls are signed there, and results may hold media."""
    generation = re.search(r"gemini-(\d+)", model)
    return int(generation[1]) >= 3 if generation else "gemini" in model and "latest" in model


def same_model(made: object, asked: str) -> bool:
    """True if the request goes to the model that made a signature; a name may mean its newest version.

    False if the request names no model.
    """
    if not asked:
        return False
    if not isinstance(made, str) or made == asked:
        return True
    one, other = _MODEL.search(made), _MODEL.search(asked)
    if one is None or other is None:
        return False
    return all(one[part] == other[part] or not (one[part] and other[part]) for part in ("generation", "size"))
