"""Rules over messages: goal, task, decisions and open questions without a model, each with its source."""

from __future__ import annotations

from holdfast.migration.rules.decisions import decisions
from holdfast.migration.rules.goals import goal
from holdfast.migration.rules.questions import questions
from holdfast.migration.rules.requests import task
from holdfast.migration.rules.words import Found, Words, clean, shortened

__all__ = ["Found", "Words", "clean", "decisions", "goal", "questions", "shortened", "task"]
