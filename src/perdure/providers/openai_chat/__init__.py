"""OpenAI's Chat Completions, and every server that speaks them; how they differ is data."""

from __future__ import annotations

from perdure.providers.openai_chat.adapter import ChatAdapter
from perdure.providers.openai_chat.capabilities import CAPABILITIES
from perdure.providers.openai_chat.servers import SERVERS

__all__ = ["ADAPTER", "CAPABILITIES", "SERVERS", "ChatAdapter"]

ADAPTER = ChatAdapter(
    api="openai-chat", vendor="openai", provider="openai", servers=SERVERS, capabilities=CAPABILITIES
)
