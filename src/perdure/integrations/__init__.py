"""Other frameworks and tools: their storage interfaces on a store, and importers of their sessions."""

from __future__ import annotations

__all__: list[str] = []
