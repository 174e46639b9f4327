"""The task's state as a model is told of it: what stands under `/task/`, by path, each bounded."""

from __future__ import annotations

from itertools import islice

from perdure.errors import Forgotten
from perdure.history import values
from perdure.history.space import Space
from perdure.model.canonical import Json
from perdure.model.digest import Digest
from perdure.projections.working import TASK

__all__ = ["task_state"]

_PATHS_MAX = 32
_BYTES_MAX = 16 * 1024  # of one value; of a larger one only its size is told


def task_state(space: Space, root: Digest) -> dict[str, Json]:
    """What the state of that root says of the task, sorted by path; nothing if it says nothing."""
    found: dict[str, Json] = {}
    for entry in islice(space.tree(root).entries(TASK), _PATHS_MAX):
        if entry.size > _BYTES_MAX:
            found[entry.path] = f"({entry.size:,} bytes, not shown)"
            continue
        try:
            value = values.read(space, entry)
        except Forgotten:
            continue
        found[entry.path] = f"({entry.size:,} bytes)" if isinstance(value, bytes) else value
    return found
