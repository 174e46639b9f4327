"""Stores and searches long-term memory: items of one owner, remembered across threads.

`relevant` searches.  The same snapshot and the same query give the same answer.
"""

from __future__ import annotations

from perdure.memory.owner_memory import Memories, MemorySnapshot, OwnerMemory
from perdure.memory.search import Found, Recall, relevant

__all__ = ["Found", "Memories", "Recall", "OwnerMemory", "MemorySnapshot", "relevant"]
