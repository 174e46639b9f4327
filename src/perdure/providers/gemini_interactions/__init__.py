"""The wire format of Gemini's Interactions API: a conversation is a list of typed steps."""

from __future__ import annotations

from perdure.providers.gemini_interactions.adapter import ADAPTER
from perdure.providers.gemini_interactions.capabilities import CAPABILITIES

__all__ = ["ADAPTER", "CAPABILITIES"]
