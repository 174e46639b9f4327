"""Where Ollama's native chat differs from OpenAI's Chat, as data."""

from __future__ import annotations

from perdure.providers.capabilities import Capability, Levels
from perdure.providers.openai_chat.capabilities import CAPABILITIES as CHAT
from perdure.providers.openai_chat.servers import Server

__all__ = ["CAPABILITIES", "SERVERS"]

_OLLAMA = Server(
    empty_content="",
    reasoning=("reasoning_content",),  # `thinking` on the wire
    web_images=False,
    files="",
    audio="none",
    refused=frozenset({"n", "user", "metadata", "parallel_tool_calls"}),
    top_k=True,
    strict="none",
    parses_arguments=True,
)

SERVERS = {"": _OLLAMA, "ollama": _OLLAMA, "ollama-cloud": _OLLAMA}

CAPABILITIES: Levels = {
    **CHAT,
    Capability.IMAGE_URLS: "none",
    Capability.DOCUMENTS: "none",
    Capability.AUDIO: "none",
    Capability.TOOL_CHOICE: "none",
    Capability.STRICT_TOOLS: "none",
    Capability.REASONING: "full",
    Capability.REASONING_HISTORY: "full",
    Capability.REFUSALS: "lossy",
    Capability.CHOICES: "none",
    Capability.PROMPT_CACHE: "none",
    Capability.TOP_K: "full",
}
