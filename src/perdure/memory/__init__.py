"""Stores and searches long-term memory: items of one owner, remembered across threads.

`relevant` searches, and `for_run` also has what is pinned.  The same snapshot and the same query give the same answer.
"""

from __future__ import annotations

from perdure.memory.owner_memory import Memories, MemorySnapshot, OwnerMemory
from perdure.memory.search import Found, MemoryForRun, Recall, for_run, relevant

__all__ = [
    "Found",
    "Memories",
    "MemoryForRun",
    "MemorySnapshot",
    "OwnerMemory",
    "Recall",
    "for_run",
    "relevant",
]
