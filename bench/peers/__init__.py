"""Peers: one optional adapter for each library, imported only if its package is installed."""

from __future__ import annotations
