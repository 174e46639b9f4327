"""What the Chat format can do, as data; servers and models differ, and narrow or widen it."""

from __future__ import annotations

from perdure.providers.capabilities import Capability, Level, Levels
from perdure.providers.openai_chat.servers import Server, refused

__all__ = ["CAPABILITIES", "at"]

CAPABILITIES: Levels = {
    Capability.TEXT: "full",
    Capability.IMAGES: "full",
    Capability.IMAGE_URLS: "full",
    Capability.DOCUMENTS: "full",
    Capability.DOCUMENT_URLS: "none",
    Capability.AUDIO: "full",
    Capability.VIDEO: "none",
    Capability.TOOLS: "full",
    Capability.PARALLEL_TOOLS: "full",
    Capability.TOOL_CHOICE: "full",
    Capability.STRICT_TOOLS: "full",
    Capability.TOOL_RESULT_MEDIA: "lossy",  # it follows in a user's message
    Capability.TOOL_ERRORS: "lossy",  # the words say it
    Capability.STRUCTURED_OUTPUT: "full",
    Capability.JSON_MODE: "full",
    Capability.REASONING: "lossy",  # by server; OpenAI itself gives none here
    Capability.REASONING_HISTORY: "lossy",  # by server; OpenAI itself takes none here
    Capability.SERVER_TOOLS: "none",
    Capability.COMPUTER_USE: "none",
    Capability.CITATIONS: "lossy",
    Capability.REFUSALS: "full",
    Capability.SYSTEM: "full",
    Capability.MID_SYSTEM: "full",
    Capability.CHOICES: "full",
    Capability.STREAMING: "full",
    Capability.PROMPT_CACHE: "lossy",
    Capability.LOGPROBS: "full",
    Capability.SEED: "full",
    Capability.STOP: "full",
    Capability.TOP_K: "lossy",  # by server; OpenAI has none
}

_OPTIONS = {
    Capability.CHOICES: "n",
    Capability.LOGPROBS: "logprobs",
    Capability.SEED: "seed",
    Capability.STOP: "stop",
    Capability.TOP_K: "top_k",
    Capability.REASONING: "reasoning",
}


def at(place: Server, model: str | None, levels: Levels) -> dict[str, Level]:
    """What one server, or one model of it, does: `levels` are those of the format."""
    found = dict(levels)
    _media(place, found)
    found[Capability.REASONING] = "full" if place.reasoning else levels[Capability.REASONING]
    found[Capability.REASONING_HISTORY] = "full" if place.reasoning else "none"
    found[Capability.STRICT_TOOLS] = "none" if place.strict == "none" else levels[Capability.STRICT_TOOLS]
    found[Capability.MID_SYSTEM] = levels[Capability.MID_SYSTEM] if place.late_system else "lossy"
    no = refused(place, model or "")
    for capability, option in _OPTIONS.items():
        if option in no:
            found[capability] = "none"
    if levels[Capability.TOP_K] == "lossy" and "top_k" not in no:
        found[Capability.TOP_K] = "full"
    return found


def _media(place: Server, found: dict[str, Level]) -> None:
    found[Capability.IMAGE_URLS] = "full" if place.web_images else "none"
    found[Capability.DOCUMENTS] = "full" if place.files else "none"
    found[Capability.DOCUMENT_URLS] = "full" if place.files and place.web_files else "none"
    found[Capability.AUDIO] = "none" if place.audio == "none" else "full"
    found[Capability.VIDEO] = "full" if place.video else "none"
