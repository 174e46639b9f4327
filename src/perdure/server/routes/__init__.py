"""The functions that answer requests, by noun; importing a module declares its routes."""

from __future__ import annotations
