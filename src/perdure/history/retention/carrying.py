"""Carrying out a plan: what may go is forgotten, and nothing that anybody has begun to need meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from perdure.engines.contract import Engine
from perdure.errors import Conflict, Corrupt, NotFound
from perdure.history.retention.judging import (
    Elsewhere,
    expire_uploads,
    forget_uploads,
    removable,
    space_of,
)
from perdure.history.retention.planning import plan_removed
from perdure.history.retention.policy import Done, Plan, Policy
from perdure.history.space import Space
from perdure.history.tree import Cache
from perdure.model.digest import Digest, Object

__all__ = ["carry_out"]

_BATCH_BYTES = 16 * 1024 * 1024
_BATCH_MAX = 20_000
_TRIES_MAX = 5


def carry_out(
    engine: Engine, plan: Plan, *, ids: Callable[[], str], cache: Cache | None = None
) -> tuple[Done, ...]:
    """Remove what `plan` names, each space as it stands now; `ids` names the writes that this takes.

    A space that has changed since is looked at afresh, so what became reachable stays.  `cache`
    is what this process reads the store through, and is emptied; None: it reads it through none.
    """
    elsewhere = Elsewhere(engine, plan.policy, plan.now)
    done: list[Done] = []
    for planned in plan.spaces:
        space = space_of(engine, planned.space, ids)
        if planned.dropped:
            done.append(_drop(space, plan.policy))
        elif planned.left_alone is None:
            done.append(_forget(space, plan.policy, plan.now, elsewhere))
    if cache is not None:
        cache.clear()
    return tuple(done)


def _drop(space: Space, policy: Policy) -> Done:
    planned = plan_removed(space, policy)
    if planned is None or not planned.dropped:
        return Done(
            space=space.name, left_alone=planned.left_alone if planned else "the thread was not removed"
        )
    freed = space.engine.drop(space.name, why="the thread was removed")
    return Done(space=space.name, dropped=True, freed=freed)


def _forget(space: Space, policy: Policy, now: int, elsewhere: Elsewhere) -> Done:
    """Forget what may go of one space, marking it afresh as long as others write to it."""
    count = freed = 0
    for _ in range(_TRIES_MAX):
        try:
            expire_uploads(space, policy, now)
            standing = space.engine.standing(space.name)
            for batch in _batches(found for _, found in removable(space, policy, now, elsewhere)):
                freed += space.engine.forget(space.name, batch, why=_why(policy), standing=standing)
                count += len(batch)
            forget_uploads(space, policy, now)
        except Conflict:
            continue  # somebody wrote since it was marked, and may need any of it by now
        except (Corrupt, NotFound) as error:
            why = f"what must stay cannot be told: {error}"
            return Done(space=space.name, count=count, freed=freed, left_alone=why)
        return Done(space=space.name, count=count, freed=freed)
    why = "others were writing to it all the time"
    return Done(space=space.name, count=count, freed=freed, left_alone=why)


def _batches(objects: Iterable[Object]) -> Iterator[list[Digest]]:
    """What is to go, in batches for which others can wait."""
    batch: list[Digest] = []
    size = 0
    for found in objects:
        batch.append(found.digest)
        size += len(found.body)
        if size >= _BATCH_BYTES or len(batch) == _BATCH_MAX:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _why(policy: Policy) -> str:
    days = {"undone": policy.undone_after_days, "staged": policy.staged_after_days}
    rules = " or ".join(f"{what} for {count} days" for what, count in days.items() if count is not None)
    return f"the retention policy: nothing live needs it, and it was {rules}"
