"""Rules over messages: goal, task, decisions and open questions without a model, each with its source."""

from __future__ import annotations

from perdure.migration.rules.decisions import decisions
from perdure.migration.rules.goals import goal
from perdure.migration.rules.questions import questions
from perdure.migration.rules.requests import task
from perdure.migration.rules.words import Found, Words, clean, shortened

__all__ = ["Found", "Words", "clean", "decisions", "goal", "questions", "shortened", "task"]
