"""Anthropic Messages: `anthropic-messages`."""

from __future__ import annotations

from perdure.providers.anthropic.adapter import ADAPTER

__all__ = ["ADAPTER"]
