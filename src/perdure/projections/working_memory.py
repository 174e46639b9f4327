"""Folds working memory (task state, goals and scratchpad) from the state at one commit.

    /task/goal.json        the user's goal, a text          /task/decisions.json   what was decided, texts
    /task/current.json     what is being done, a text       /task/questions.json   what is open, texts
    /task/goals.json       goals that are active, texts     /task/scratchpad/…     anything

A value at one of these paths takes precedence over what rules find in messages.  A value of another
shape is ignored and reported as a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias, cast

import msgspec

from perdure.model.digest import Digest

__all__ = [
    "CURRENT",
    "DECISIONS",
    "GOAL",
    "GOALS",
    "QUESTIONS",
    "SCRATCHPAD",
    "TASK",
    "Note",
    "WorkingMemory",
    "working",
]

TASK = "/task/"
GOAL, CURRENT = "/task/goal.json", "/task/current.json"
GOALS, DECISIONS, QUESTIONS = "/task/goals.json", "/task/decisions.json", "/task/questions.json"
SCRATCHPAD = "/task/scratchpad/"

_Texts: TypeAlias = tuple[str, ...]


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """One path of working memory, with the digest of its value."""

    path: str
    value: Digest
    size: int


class WorkingMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Task state, goals and scratchpad at one commit; None or empty where the state has no value."""

    goal: str | None = None
    current: str | None = None
    goals: _Texts | None = None
    decisions: _Texts | None = None
    questions: _Texts | None = None
    notes: tuple[Note, ...] = ()  # every path under /task/, the above among them, sorted
    faults: _Texts = ()  # the known paths that hold a value of another shape

    @property
    def scratchpad(self) -> tuple[Note, ...]:
        """The notes under /task/scratchpad/."""
        return tuple(note for note in self.notes if note.path.startswith(SCRATCHPAD))


def working(values: Mapping[str, object], notes: Iterable[Note]) -> WorkingMemory:
    """Return the working memory; `values` are the decoded values of the known paths."""
    faults: list[str] = []
    return WorkingMemory(
        goal=_text(values, GOAL, faults),
        current=_text(values, CURRENT, faults),
        goals=_texts(values, GOALS, faults),
        decisions=_texts(values, DECISIONS, faults),
        questions=_texts(values, QUESTIONS, faults),
        notes=tuple(notes),
        faults=tuple(faults),
    )


def _text(values: Mapping[str, object], path: str, faults: list[str]) -> str | None:
    value = values.get(path)
    if value is None or isinstance(value, str):
        return value
    faults.append(f"{path} is no text")
    return None


def _texts(values: Mapping[str, object], path: str, faults: list[str]) -> _Texts | None:
    value = values.get(path)
    if value is None:
        return None
    if isinstance(value, list):
        items = cast("list[object]", value)
        if all(isinstance(item, str) for item in items):
            return tuple(cast("list[str]", items))
    faults.append(f"{path} is no list of texts")
    return None
