"""Commands about memory: what is kept across threads for an owner."""

from __future__ import annotations
