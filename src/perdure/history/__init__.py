"""Histories: the versioned map, and the rules by which commits are made, found and compared."""

from __future__ import annotations
