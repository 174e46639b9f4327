"""Commands about state: what threads and agents know."""

from __future__ import annotations
