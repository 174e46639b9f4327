"""Retention: what was undone, abandoned or removed is forgotten, if a policy of the user says so.

Everything ever committed counts as reachable until then.  `plan` says what would go and
changes nothing; `carry_out` removes it.  What a live head can reach, through all commits
before it, never goes: the engine forgets only if nothing was written to the space since it was
marked, else it is marked afresh.  The other half is up to writers: who names stored content
without supplying it is fenced by the generation (`perdure.history.gc_generation`).
"""

from __future__ import annotations

from perdure.history.retention.planner import carry_out, plan
from perdure.history.retention.policy import Lot, RetentionPlan, RetentionPolicy, SpacePlan, SpaceRemoval

__all__ = ["SpaceRemoval", "Lot", "RetentionPlan", "RetentionPolicy", "SpacePlan", "carry_out", "plan"]
