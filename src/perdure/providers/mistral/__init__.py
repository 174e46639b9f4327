"""Mistral's chat: OpenAI's form, with ids, thinking, documents and a last turn of its own."""

from __future__ import annotations

from perdure.providers.mistral.capabilities import CAPABILITIES, SERVERS
from perdure.providers.openai_chat.adapter import ChatAdapter

__all__ = ["ADAPTER", "CAPABILITIES", "SERVERS", "ChatAdapter"]

ADAPTER = ChatAdapter(
    api="mistral-chat", vendor="mistral", provider="mistral", servers=SERVERS, capabilities=CAPABILITIES
)
