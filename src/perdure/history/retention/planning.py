"""Planning: what a policy would remove, space by space, without changing anything."""

from __future__ import annotations

from collections import Counter

from perdure.engines.contract import Engine
from perdure.errors import Corrupt, NotFound
from perdure.history.retention.judging import Elsewhere, removable, space_of
from perdure.history.retention.policy import Lot, Plan, Policy, SpacePlan
from perdure.history.scan import spaces
from perdure.history.space import ALIVE, Space
from perdure.history.writer import OUTBOX

__all__ = ["plan", "plan_removed"]


def plan(engine: Engine, policy: Policy, now: int) -> Plan:
    """What `policy` would remove at the time `now` (µs since 1970, UTC).  Nothing is changed."""
    elsewhere = Elsewhere(engine, policy, now)
    planned = (_plan_space(space_of(engine, name), policy, now, elsewhere) for name in spaces(engine))
    return Plan(policy=policy, now=now, spaces=tuple(each for each in planned if each is not None))


def _plan_space(space: Space, policy: Policy, now: int, elsewhere: Elsewhere) -> SpacePlan | None:
    """What would go of one space; None if nothing does."""
    if _is_removed(space):
        return plan_removed(space, policy)
    counts: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    try:
        for why, found in removable(space, policy, now, elsewhere):
            counts[why, str(found.kind)] += 1
            sizes[why, str(found.kind)] += len(found.body)
    except (Corrupt, NotFound) as error:
        return SpacePlan(space=space.name, left_alone=f"what must stay cannot be told: {error}")
    lots = tuple(Lot(why, kind, counts[why, kind], sizes[why, kind]) for why, kind in sorted(counts))
    return SpacePlan(space=space.name, lots=lots) if lots else None


def plan_removed(space: Space, policy: Policy) -> SpacePlan | None:
    """What would go of the space of a removed thread; None: nothing, or it is none."""
    if not policy.removed_threads or not _is_removed(space):
        return None
    if space.engine.cells(space.name, prefix=OUTBOX, limit=1):
        return SpacePlan(
            space=space.name, left_alone="its agent's map has not taken over all its changes yet"
        )
    return SpacePlan(space=space.name, dropped=True)


def _is_removed(space: Space) -> bool:
    """Whether this is the space of a thread that was removed and not dropped yet."""
    alive = space.engine.cell(space.name, ALIVE)
    return alive is not None and alive.value is not None
