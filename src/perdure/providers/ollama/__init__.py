"""Ollama's native chat: Chat with thinking, images beside the words, and options in an object of their own."""

from __future__ import annotations

from perdure.providers.ollama.adapter import ADAPTER, OllamaAdapter
from perdure.providers.ollama.capabilities import CAPABILITIES, SERVERS

__all__ = ["ADAPTER", "CAPABILITIES", "SERVERS", "OllamaAdapter"]
