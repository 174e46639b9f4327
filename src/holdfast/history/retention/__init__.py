"""Retention: what was undone, abandoned or removed is forgotten, if a policy of the user says so.

Everything ever committed counts as reachable until then.  `plan` says what would go and
changes nothing; `carry_out` removes it.  What a live head can reach, through all commits
before it, never goes: just before anything is forgotten it is made sure that the space still
stands as it did when it was marked, and once more just after.  If somebody wrote in between,
what the new state needs is put back, and the space is marked afresh.
"""

from __future__ import annotations

from holdfast.history.retention.carrying import carry_out
from holdfast.history.retention.planning import plan
from holdfast.history.retention.policy import Done, Lot, Plan, Policy, SpacePlan

__all__ = ["Done", "Lot", "Plan", "Policy", "SpacePlan", "carry_out", "plan"]
