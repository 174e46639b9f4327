"""Answers: what a command has to say, as one value.

For programs an answer is its fields as JSON; for people it is what `show` prints.  Both have the same
content.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from perdure.cli.output.screen import Screen

__all__ = [
    "Answer",
    "cut_off",
]

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


def cut_off(found: list[_T], limit: int) -> tuple[list[_T], bool]:
    """Return the first `limit` of `found` (0: all), and whether there were more."""
    return (found[:limit], len(found) > limit) if limit else (found, False)
