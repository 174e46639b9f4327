"""Builds the adapter for Mistral's chat from its differences to OpenAI's, as data."""

from __future__ import annotations

from perdure.providers.capabilities import Capability, Levels
from perdure.providers.openai_chat.adapter import ChatAdapter
from perdure.providers.openai_chat.servers import CAPABILITIES as CHAT
from perdure.providers.openai_chat.servers import CallIdRule, Server

__all__ = ["ADAPTER", "CAPABILITIES", "SERVERS"]

_MISTRAL = Server(
    prefix_last=True,
    strict_messages=True,
    empty_content="",
    reasoning=("thinking",),
    files="document_url",
    web_files=True,
    names={"seed": "random_seed"},
    refused=frozenset({"user"}),
    efforts=frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"}),
    tiers=frozenset({"auto", "standard_only"}),
    top_k=True,
    audio="text",
    required="any",
    call_ids=CallIdRule(r"[a-zA-Z0-9]{9}", "", 9),
)

SERVERS = {"": _MISTRAL, "mistral": _MISTRAL}

CAPABILITIES: Levels = {
    **CHAT,
    Capability.DOCUMENT_URLS: "full",
    Capability.REASONING: "full",
    Capability.REASONING_HISTORY: "full",
    Capability.REFUSALS: "lossy",
    Capability.PROMPT_CACHE: "none",
    Capability.TOP_K: "full",
}

ADAPTER = ChatAdapter(
    api="mistral-chat", vendor="mistral", provider="mistral", servers=SERVERS, capabilities=CAPABILITIES
)
