"""A plugin for pytest that gives LangGraph's own tests of stores our `Memory` in place of its store in memory.

The tests are those of the source distribution of langgraph-checkpoint, `tests/test_store.py`.  They make the store by the name
`InMemoryStore`, so that name means ours before they are imported.  `PERDURE_MEMORY=theirs` leaves it as it is.
"""

from __future__ import annotations

import os
from typing import Any

import langgraph.store.memory as theirs

import perdure
from perdure.integrations.langgraph import Memory


class InMemoryStore(Memory):
    """Ours, on a store of its own."""

    def __init__(self, **options: Any) -> None:
        """Open a new store."""
        super().__init__(perdure.open("memory:", blocking=True), **options)


if os.environ.get("PERDURE_MEMORY", "ours") == "ours":
    theirs.InMemoryStore = InMemoryStore
