"""Commands about agents: what is kept of them, and in which versions."""

from __future__ import annotations
