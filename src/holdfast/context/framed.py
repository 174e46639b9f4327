"""A frame as it is kept: what stands around the messages of a step, encoded once and used again."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.context.budget import Budget, frame_size
from holdfast.context.tiers import framed
from holdfast.model.digest import Kind, Object
from holdfast.model.recipe import Frame, encode_frame

__all__ = ["Framed", "Setting"]


class Framed(msgspec.Struct, frozen=True, kw_only=True):
    """A frame as it is kept, and how large it can be at the most."""

    frame: Frame
    kept: Object
    size: int

    @classmethod
    def of(cls, frame: Frame, *, notes: bool) -> Framed:
        """The frame with our words about notes, where there are any."""
        whole = framed(frame, notes=notes)
        return cls(frame=whole, kept=Object.of(Kind.BODY, encode_frame(whole)), size=frame_size(whole))


class Setting:
    """What the steps of an agent with one model share: the frame, and what there is room for, found when it is needed."""

    __slots__ = ("_budget", "_find", "_framed", "frame", "is_told")

    def __init__(self, frame: Frame, find: Callable[[], Budget], *, is_told: bool) -> None:
        """Begin with a frame; `find` finds out what there is room for, `is_told`: somebody has said how much."""
        self.frame, self._find, self.is_told = frame, find, is_told
        self._framed: dict[bool, Framed] = {}
        self._budget: Budget | None = None

    @property
    def budget(self) -> Budget:
        """What there is room for."""
        if self._budget is None:
            self._budget = self._find()
        return self._budget

    def framed(self, *, notes: bool) -> Framed:
        """The frame, with our words about notes where there are any."""
        found = self._framed.get(notes)
        if found is None:
            found = self._framed[notes] = Framed.of(self.frame, notes=notes)
        return found
