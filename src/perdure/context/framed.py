"""A frame as it is kept: what stands around the messages of a step, encoded once and used again."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from perdure.context.budget import Budget, frame_size
from perdure.context.tiers import framed
from perdure.model.context import ToolSpec
from perdure.model.digest import Kind, Object
from perdure.model.recipe import Frame, encode_frame

__all__ = ["Framed", "Setting"]


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
