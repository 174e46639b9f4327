"""Long-term memory: items kept across threads for one owner, and how they are found again.

`relevant` is the way in for whoever builds something out of memory: the same sight and the same
question give the same answer.
"""

from __future__ import annotations

from perdure.memory.recollection import Memories, Recollection
from perdure.memory.searching import Found, Recall, relevant
from perdure.memory.sight import Sight

__all__ = ["Found", "Memories", "Recall", "Recollection", "Sight", "relevant"]
