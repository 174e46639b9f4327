"""Anthropic Messages: `anthropic-messages`."""

from __future__ import annotations

from holdfast.providers.anthropic.adapter import ADAPTER

__all__ = ["ADAPTER"]
