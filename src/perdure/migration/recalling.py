"""Recalling: which items of the owner's memory bear on where a conversation stands.

The question is made of the goal and the task.  What is found is named with the commit of the memory, so
a reference stays what it is; but what is found depends on the memory of the moment and on how it is
searched.  So a checkpoint records the references, and deriving it again takes them from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from perdure.errors import Unavailable
from perdure.memory import Recollection, relevant
from perdure.migration.rules import shortened
from perdure.model.digest import Digest

__all__ = ["MEMORY_MAX", "Recall", "recalling"]

Recall: TypeAlias = Callable[[str], Sequence[str]]
"""References to what bears on a question."""

MEMORY_MAX = 8
QUERY_MAX = 500  # characters


def recalling(memory: Recollection | None, space: str, commit: Digest | None) -> Recall | None:
    """How the memory of a thread's owner is asked from a commit of the thread; None: it has no owner."""
    if memory is None:
        return None

    def recall(query: str) -> Sequence[str]:
        if not query.strip():
            return ()
        try:
            found = relevant(memory, shortened(query, QUERY_MAX), limit=MEMORY_MAX, line=(space, commit))
        except Unavailable:
            return ()  # the embedding function fails: a checkpoint without memory is better than none
        return tuple(each.reference for each in found)

    return recall
