"""Generations: how a write that only names what is stored makes sure that it is still there.

A commit supplies what it needs, and an engine stores again what it had forgotten.  Fork, undo,
redo, promote, merge and pick supply nothing of the kind: they name commits and values that
were stored once, and retention may forget these between the reading and the writing.

So they read the generation of the space (the revision of its cell `gc`) before anything else,
look at the store itself and not at what is remembered of it, and are fenced by that number.
If something was forgotten meanwhile they begin again, and then meet `Forgotten`.  A write that
came first is seen by retention, which forgets nothing once anything was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from perdure.engines.contract import GC, Fence
from perdure.errors import Conflict, Forgotten, Moved
from perdure.history.space import Space
from perdure.history.tree import EMPTY, NodeCache
from perdure.model.artifact import decode_artifact
from perdure.model.digest import Digest, Kind, Object

__all__ = ["check_kept", "check_state", "fenced", "is_whole"]

_TRIES_MAX = 16
_BATCH = 16
# Nothing was ever forgotten in the space, and the write is refused if that changes.
_NOTHING_YET = Fence(GC, 0)

_T = TypeVar("_T")


def fenced(space: Space, act: Callable[[Space], _T]) -> _T:
    """Do `act` on a space whose writes are refused if anything is forgotten meanwhile; then do it again.

    Raises `Conflict`, having written nothing, if that happens all the time.
    """
    for _ in range(_TRIES_MAX):
        generation = _generation(space)
        fences = (*space.fences, Fence(GC, generation))
        try:
            return act(msgspec.structs.replace(space, cache=NodeCache(), fences=fences))
        except Moved:
            if _generation(space) == generation:
                raise
    raise Conflict(
        f"parts of '{space.label}' are being forgotten all the time; nothing was written. Try again."
    )


def is_whole(space: Space) -> bool:
    """Whether nothing was ever forgotten in a space that is `fenced`, so that what is remembered is there."""
    return _NOTHING_YET in space.fences


def check_state(space: Space, commit: Digest | None) -> None:
    """Raise `Forgotten` if the state at a commit was; its root goes before all else of it."""
    root = space.root_at(commit)
    if root == EMPTY or is_whole(space):
        return
    try:
        space.objects((root,))
    except Forgotten as error:
        raise Forgotten(f"nothing was moved: the state at commit {commit}", error.why) from error


def check_kept(space: Space, values: Iterable[Digest]) -> None:
    """Raise `Forgotten` if any of these values was, or a chunk of one."""
    if is_whole(space):
        return
    left = list(dict.fromkeys(values))
    while left:
        batch, left = left[:_BATCH], left[_BATCH:]
        for found in space.objects(batch):
            for chunk in _chunks(found):
                space.objects((chunk,))


def _chunks(found: Object) -> tuple[Digest, ...]:
    return decode_artifact(found.body).chunks if found.kind is Kind.ARTIFACT else ()


def _generation(space: Space) -> int:
    cell = space.engine.cell(space.name, GC)
    return cell.revision if cell else 0
