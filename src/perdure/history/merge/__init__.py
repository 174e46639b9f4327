"""Merge and cherry-pick: changes of state of another line, taken into a timeline.

    outcome = merge(space, onto, other, terms, source="what-if")
    outcome = cherry_pick(space, onto, picks, terms)

`resolve` decides path by path and writes nothing; `lines` merges a whole line, `picks` applies single commits again.
"""

from __future__ import annotations

from perdure.history.merge.lines import Taken, Terms, merge, would_merge
from perdure.history.merge.picks import Pick, cherry_pick, would_pick

__all__ = ["Pick", "Taken", "Terms", "cherry_pick", "merge", "would_merge", "would_pick"]
