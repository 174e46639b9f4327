"""Answers: what a command has to say, as one value.

For programs an answer is its fields as JSON; for people it is what `show` prints.  Both have the same
content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from perdure.cli.output.screen import Screen
from perdure.model.head import Head

__all__ = ["Answer", "HeadShape", "cut_off", "lately"]

_T = TypeVar("_T")

_GROWTH = 8


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a command gives back."""

    def show(self, screen: Screen) -> None:
        """Print it for people."""
        raise NotImplementedError

    @property
    def exit_code(self) -> int:
        """Return the exit code of the process."""
        return 0


class HeadShape(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a timeline."""

    timeline: str
    version: int
    commit: str | None

    @classmethod
    def of(cls, head: Head) -> HeadShape:
        """Return the head in the shape of --json."""
        return cls(timeline=head.timeline, version=head.version, commit=head.commit)


def cut_off(found: list[_T], limit: int) -> tuple[list[_T], bool]:
    """Return the first `limit` of `found` (0: all), and whether there were more."""
    return (found[:limit], len(found) > limit) if limit else (found, False)


def lately(
    read: Callable[[int | None], list[_T]], wanted: Callable[[_T], bool], limit: int, *, others: bool = True
) -> list[_T]:
    """Return the last that are wanted: more than `limit` if there are more (0: all), else all there are.

    `read` gives the last so many, None: all; it is called for more until that is enough.  Without `others`,
    `limit` of them are enough.
    """
    enough = limit + others
    last = enough if limit else None  # one more shows whether there are others
    while True:
        given = read(last)
        found = [each for each in given if wanted(each)]
        if last is None or len(found) >= enough or len(given) < last:
            return found
        last *= _GROWTH
