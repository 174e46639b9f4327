"""What model inference lacks of OpenAI's Chat, as data."""

from __future__ import annotations

from typing import Literal

from holdfast.providers.openai_chat.capabilities import CAPABILITIES as CHAT
from holdfast.providers.openai_chat.servers import Server

__all__ = ["CAPABILITIES", "SERVERS"]

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

CAPABILITIES: dict[str, Literal["full", "lossy", "none"]] = {
    **CHAT,
    "documents": "none",
    "strict_tools": "none",
    "logprobs": "none",
    "choices": "none",
    "prompt_cache": "none",
    "refusals": "lossy",
}
