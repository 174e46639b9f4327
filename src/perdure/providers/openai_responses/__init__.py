"""OpenAI Responses: items with ids, reasoning that belongs to its output, tools of the server's own."""

from __future__ import annotations

from perdure.providers.openai_responses.adapter import ADAPTER

__all__ = ["ADAPTER"]
