"""Microsoft Foundry's model inference: OpenAI's Chat form less the fields that it lacks.

Azure OpenAI is OpenAI's own form: the adapter `openai-chat` with the provider `azure-openai`.
"""

from __future__ import annotations

from perdure.providers.foundry.capabilities import CAPABILITIES, SERVERS
from perdure.providers.openai_chat.adapter import ChatAdapter

__all__ = ["ADAPTER", "CAPABILITIES", "SERVERS", "ChatAdapter"]

ADAPTER = ChatAdapter(
    api="azure-inference-chat", vendor="azure", provider="azure", servers=SERVERS, capabilities=CAPABILITIES
)
