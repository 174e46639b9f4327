"""A frame as it is kept: what stands around the messages of a step, encoded once and used again.

The task's state as a model is told of it: what stands under `/task/`, by path, each bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import msgspec

from perdure.context.budget import Budget, frame_size
from perdure.context.builder import framed
from perdure.errors import Forgotten
from perdure.history.changes import values
from perdure.history.space import Space
from perdure.model.canonical import Json
from perdure.model.context import ToolSpec
from perdure.model.digest import Digest, Kind, Object
from perdure.model.recipe import Frame, encode_frame
from perdure.projections.working_memory import TASK

__all__ = ["Framed", "Setting", "task_state"]


class Framed(msgspec.Struct, frozen=True, kw_only=True):
    """A frame as it is kept, and how large it can be at the most."""

    frame: Frame
    kept: Object
    size: int

    @classmethod
    def of(cls, frame: Frame, *, notes: bool, reader: ToolSpec | None) -> Framed:
        """The frame with our words about notes, where there are any, and the tool that reads artifacts, if it is offered."""
        whole = framed(frame, notes=notes, reader=reader)
        return cls(frame=whole, kept=Object.of(Kind.BODY, encode_frame(whole)), size=frame_size(whole))


class Setting:
    """What the steps of an agent with one model share: the frame, and what there is room for, found when it is needed."""

    __slots__ = ("_budget", "_find", "_framed", "frame", "is_told", "reader")

    def __init__(
        self, frame: Frame, find: Callable[[], Budget], *, is_told: bool, reader: ToolSpec | None = None
    ) -> None:
        """Begin with a frame; `find` finds out what there is room for, `is_told`: somebody has said how much.

        `reader` is the tool that reads artifacts; None: it cannot be offered.
        """
        self.frame, self._find, self.is_told, self.reader = frame, find, is_told, reader
        self._framed: dict[tuple[bool, bool], Framed] = {}
        self._budget: Budget | None = None

    @property
    def budget(self) -> Budget:
        """What there is room for."""
        if self._budget is None:
            self._budget = self._find()
        return self._budget

    def framed(self, *, notes: bool, reads: bool) -> Framed:
        """The frame, with our words about notes where there are any, and the tool that `reads` artifacts."""
        found = self._framed.get((notes, reads))
        if found is None:
            reader = self.reader if reads else None
            found = self._framed[notes, reads] = Framed.of(self.frame, notes=notes, reader=reader)
        return found


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
