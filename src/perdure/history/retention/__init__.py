"""Removes content that was undone, abandoned or removed, if a policy of the user allows it.

Without a policy everything ever committed stays.  `plan` returns what would be removed and
changes nothing; `carry_out` removes it.  What a live head can reach, through all its
ancestors, is never removed, except for the states that a policy calls superseded.  The engine forgets only if nothing
was written to the space since it was marked, else it is marked again.  Writers do the other half: a write that names stored content
without supplying it is fenced by the generation (`perdure.history.gc_generation`).
"""

from __future__ import annotations

from perdure.history.retention.planner import carry_out, plan
from perdure.history.retention.policy import Lot, RetentionPlan, RetentionPolicy, SpacePlan, SpaceRemoval

__all__ = ["SpaceRemoval", "Lot", "RetentionPlan", "RetentionPolicy", "SpacePlan", "carry_out", "plan"]
