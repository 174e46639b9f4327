"""Builds the adapter for Foundry's model inference from what it lacks of OpenAI's Chat, as data."""

from __future__ import annotations

from perdure.providers.capabilities import Capability, Levels
from perdure.providers.openai_chat.adapter import ChatAdapter
from perdure.providers.openai_chat.servers import CAPABILITIES as CHAT
from perdure.providers.openai_chat.servers import Server

__all__ = ["ADAPTER", "CAPABILITIES", "SERVERS"]

_FOUNDRY = Server(
    developer=True,
    empty_content="",
    files="",
    strict="none",
    efforts=frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"}),
    refused=frozenset(
        {
            "top_k",
            "n",
            "user",
            "metadata",
            "parallel_tool_calls",
            "logprobs",
            "top_logprobs",
            "service_tier",
        }
    ),
)

SERVERS = {"": _FOUNDRY, "azure": _FOUNDRY}

CAPABILITIES: Levels = {
    **CHAT,
    Capability.DOCUMENTS: "none",
    Capability.STRICT_TOOLS: "none",
    Capability.REASONING_HISTORY: "none",
    Capability.LOGPROBS: "none",
    Capability.CHOICES: "none",
    Capability.PROMPT_CACHE: "none",
    Capability.REFUSALS: "lossy",
    Capability.TOP_K: "none",
}

ADAPTER = ChatAdapter(
    api="azure-inference-chat", vendor="azure", provider="azure", servers=SERVERS, capabilities=CAPABILITIES
)
