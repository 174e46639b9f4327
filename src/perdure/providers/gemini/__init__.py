"""Google Gemini: contents and parts, signed thoughts, results in one turn, tools of the server's own."""

from __future__ import annotations

from perdure.providers.gemini.adapter import ADAPTER

__all__ = ["ADAPTER"]
