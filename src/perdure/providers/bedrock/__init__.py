"""Amazon Bedrock Converse: `bedrock-converse`."""

from __future__ import annotations

from perdure.providers.bedrock.adapter import ADAPTER

__all__ = ["ADAPTER"]
