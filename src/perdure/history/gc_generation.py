"""Fences a write that only references stored objects against garbage collection.

A commit supplies the objects that it needs, and an engine stores again what it had forgotten.
Fork, undo, redo, promote, merge and pick supply no objects: they name commits and values that
were stored before, and retention may forget these between the read and the write.

So these acts read the generation of the space (the revision of its cell `gc`) before anything else,
read the store itself and not the caches, and are fenced by that number.  If retention forgets
something in between, the act is repeated, and then raises `Forgotten`.  If the write is first,
retention sees it: it forgets nothing if anything was written since it marked the space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from perdure.engines.contract import GC, CellOf, Fence
from perdure.engines.loops import Attempts
from perdure.errors import Forgotten, Moved
from perdure.history.space import Space
from perdure.history.stored_objects import parts_of
from perdure.history.tree import EMPTY, NodeCache
from perdure.model.digest import Digest

__all__ = ["check_kept", "check_state", "fenced", "is_whole"]

_BATCH = 16
# Nothing was ever forgotten in the space, and the write is refused if that changes.
_NOTHING_YET = Fence(GC, 0)

_T = TypeVar("_T")


def fenced(space: Space, act: Callable[[Space], _T]) -> _T:
    """Run `act` on a space whose writes are refused if anything is forgotten during it; then run it again.

    Raises `Conflict`, having written nothing, if that happens at each attempt.
    """
    attempts = Attempts(f"'{space.label}'", f"nothing was written to '{space.label}'")
    while True:
        attempts.begin()
        generation = _generation(space)
        fences = (*space.fences, Fence(GC, generation))
        try:
            return act(msgspec.structs.replace(space, cache=NodeCache(), fences=fences))
        except Moved:
            space = msgspec.structs.replace(space, known={})
            if _generation(space) == generation:
                raise


def is_whole(space: Space) -> bool:
    """True if nothing was ever forgotten in a space that is `fenced`, so that a cached object is still stored."""
    return _NOTHING_YET in space.fences


def check_state(space: Space, commit: Digest | None) -> None:
    """Raise `Forgotten` if the state at a commit was forgotten; retention forgets its root with what is below."""
    root = space.root_at(commit)
    if root == EMPTY or is_whole(space):
        return
    try:
        space.objects((root,))
    except Forgotten as error:
        raise Forgotten(f"nothing was moved: the state at commit {commit}", error.why) from error


def check_kept(space: Space, values: Iterable[Digest]) -> None:
    """Raise `Forgotten` if any of these values, or a part of one, was forgotten."""
    if is_whole(space):
        return
    left = list(dict.fromkeys(values))
    while left:
        batch, left = left[:_BATCH], left[_BATCH:]
        left += dict.fromkeys([part for found in space.objects(batch) for part in parts_of(found)])


def _generation(space: Space) -> int:
    (cell,) = space.ask(CellOf(space.name, GC))
    return cell.revision if cell else 0
