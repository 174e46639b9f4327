"""How good the rules over messages are, against keys that were written by hand.

    python -m tests.switching.checkpoint.measuring

`key.json` names recorded conversations by id, with phrases that a right answer holds.  Those under
`unseen` were labelled before the rules were run on them.  The recordings hold few decisions, so `composed.json`
holds conversations that were made up for this, with more of them; its `unseen` ones were never looked at while the
rules were made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.switching.checkpoint import heuristics
from perdure.switching.checkpoint.heuristics import RuleMatch, Utterance
from tests.switching.checkpoint.recorded import conversations

__all__ = ["PARTS", "Score", "key", "measured"]

PARTS = ("goal", "task", "decisions", "questions")

_HERE = Path(__file__).parent


class Score(msgspec.Struct, frozen=True):
    """How often something was found, was to be found, and both."""

    found: int = 0
    wanted: int = 0
    right: int = 0

    def __add__(self, other: Score) -> Score:
        """Both together."""
        return Score(self.found + other.found, self.wanted + other.wanted, self.right + other.right)

    @property
    def precision(self) -> float:
        """How much of what was found is right."""
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        """How much of what was to be found was."""
        return self.right / self.wanted if self.wanted else 1.0


def measured(part: str) -> dict[str, Score]:
    """The scores on one part of the keys, by what was looked for."""
    if part.startswith("composed"):
        made = json.loads((_HERE / "composed.json").read_text("utf-8"))
        return _total((_said(each["said"]), each) for each in made if part == f"composed_{each['part']}")
    known = conversations()
    return _total((known[id], wanted) for id, wanted in key(part).items())


def key(part: str) -> dict[str, dict[str, Any]]:
    """What is to be found in the recorded conversations of one part, by their ids."""
    return json.loads((_HERE / "key.json").read_text("utf-8"))[part]


def _said(said: Sequence[Sequence[str]]) -> list[Utterance]:
    return [Utterance(f"m{at}", role, text) for at, (role, text) in enumerate(said)]


def _total(judged: Iterable[tuple[list[Utterance], Mapping[str, Any]]]) -> dict[str, Score]:
    total: dict[str, Score] = dict.fromkeys(PARTS, Score())
    for said, wanted in judged:
        for part, found in _found(said).items():
            total[part] += _score(found, _listed(wanted[part]))
    return total


def _found(said: list[Utterance]) -> dict[str, list[RuleMatch]]:
    goal, task = heuristics.goal(None, said, whole=True), heuristics.task(said)
    return {
        "goal": [goal] if goal else [],
        "task": [task] if task else [],
        "decisions": heuristics.decisions(said),
        "questions": heuristics.questions(said),
    }


def _listed(wanted: str | list[str] | None) -> list[str]:
    return [wanted] if isinstance(wanted, str) else wanted or []


def _score(found: list[RuleMatch], wanted: list[str]) -> Score:
    texts = [each.text.casefold() for each in found]
    right = 0
    for phrase in wanted:
        hit = next((text for text in texts if phrase.casefold() in text), None)
        if hit is not None:
            texts.remove(hit)
            right += 1
    return Score(len(found), len(wanted), right)


if __name__ == "__main__":
    for name in ("looked_at", "unseen", "composed_seen", "composed_unseen"):
        for part, score in measured(name).items():
            print(
                f"{name:<15} {part:<10} precision {score.precision:.2f} ({score.right}/{score.found})  "
                f"recall {score.recall:.2f} ({score.right}/{score.wanted})"
            )
