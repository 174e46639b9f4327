"""Rules over messages: goal, task, decisions and open questions without a model, each with its source."""

from __future__ import annotations

from perdure.switching.checkpoint.heuristics.decisions import decisions, questions
from perdure.switching.checkpoint.heuristics.requests import goal, task
from perdure.switching.checkpoint.heuristics.sentences import RuleMatch, Utterance, clean, shortened

__all__ = ["RuleMatch", "Utterance", "clean", "decisions", "goal", "questions", "shortened", "task"]
