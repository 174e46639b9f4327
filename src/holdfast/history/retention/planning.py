"""Planning: what a policy would remove, space by space, without changing anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from holdfast.engines.contract import Engine
from holdfast.errors import Corrupt, NotFound
from holdfast.history.digests import Digests
from holdfast.history.retention.policy import Lot, Plan, Policy, SpacePlan
from holdfast.history.retention.roots import read_elsewhere
from holdfast.history.retention.space import mark, removable
from holdfast.history.scan import spaces
from holdfast.history.space import ALIVE, Space
from holdfast.history.tree import Cache
from holdfast.history.writer import OUTBOX

__all__ = ["elsewhere_of", "plan", "plan_removed", "space_of"]


def plan(engine: Engine, policy: Policy, now: int) -> Plan:
    """What `policy` would remove at the time `now` (µs since 1970, UTC).  Nothing is changed.

    Raises `Corrupt` if a commit of the store is damaged: then nobody can tell what must stay.
    """
    elsewhere = elsewhere_of(engine, policy)
    planned = (_plan_space(space_of(engine, name), policy, now, elsewhere) for name in spaces(engine))
    return Plan(policy=policy, now=now, spaces=tuple(each for each in planned if each is not None))


def _plan_space(space: Space, policy: Policy, now: int, elsewhere: Digests) -> SpacePlan | None:
    """What would go of one space; None if nothing does."""
    if _is_removed(space):
        return plan_removed(space, policy)
    if policy.undone_after_days is None and policy.staged_after_days is None:
        return None
    counts: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    try:
        for why, found in removable(space, mark(space, policy, now, elsewhere)):
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


def elsewhere_of(engine: Engine, policy: Policy) -> Digests:
    """What spaces have read of each other; it matters only if commits may go."""
    return Digests() if policy.undone_after_days is None else read_elsewhere(engine)


def space_of(engine: Engine, name: str, ids: Callable[[], str] = str) -> Space:
    """The space for reading and forgetting: it has no clock, as nothing that is written here has a time."""
    return Space(engine=engine, name=name, label=name, clock=lambda: 0, ids=ids, cache=Cache(0))
