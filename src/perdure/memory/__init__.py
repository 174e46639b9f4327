"""Long-term memory: items kept across threads for one owner, and how they are found again.

`relevant` is the way in for whoever builds something out of memory: the same sight and the same
question give the same answer.
"""

from __future__ import annotations

from perdure.memory.owner_memory import Memories, MemorySnapshot, OwnerMemory
from perdure.memory.search import Found, Recall, relevant

__all__ = ["Found", "Memories", "Recall", "OwnerMemory", "MemorySnapshot", "relevant"]
