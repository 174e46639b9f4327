"""The functions that answer requests, by noun; importing the package declares their routes."""

from __future__ import annotations

from perdure.server.routes import actions, memory, store, streams, threads

__all__ = ["actions", "memory", "store", "streams", "threads"]
