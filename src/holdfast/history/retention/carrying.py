"""Carrying out a plan: what may go is forgotten, and nothing that anybody has begun to need meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from holdfast.engines.contract import Engine, Write
from holdfast.errors import Corrupt, NotFound
from holdfast.history.retention.judging import (
    Elsewhere,
    expire_uploads,
    forget_uploads,
    removable,
    space_of,
)
from holdfast.history.retention.planning import plan_removed
from holdfast.history.retention.policy import Done, Plan, Policy
from holdfast.history.retention.roots import Standing, standing
from holdfast.history.space import Space
from holdfast.model import canonical
from holdfast.model.digest import Kind, Object, digest_of

__all__ = ["carry_out"]

_BATCH_BYTES = 16 * 1024 * 1024
_PART_BYTES = 2 * 1024 * 1024
_BATCH_MAX = 20_000
_TRIES_MAX = 5


def carry_out(engine: Engine, plan: Plan, *, ids: Callable[[], str]) -> tuple[Done, ...]:
    """Remove what `plan` names, each space as it stands now; `ids` names the writes that this takes.

    A space that has changed since is looked at afresh, so what became reachable stays.
    """
    elsewhere = Elsewhere(engine, plan.policy, plan.now)
    done: list[Done] = []
    for planned in plan.spaces:
        space = space_of(engine, planned.space, ids)
        if planned.dropped:
            done.append(_drop(space, plan.policy))
        elif planned.left_alone is None:
            done.append(_forget(space, plan.policy, plan.now, elsewhere))
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
            before = standing(space)
            victims = removable(space, policy, now, elsewhere)
            for batch in _batches(found for _, found in victims):
                bytes_freed = _forget_batch(space, batch, before, policy)
                if bytes_freed is None:
                    break
                count, freed = count + len(batch), freed + bytes_freed
            else:
                forget_uploads(space, policy, now)
                return Done(space=space.name, count=count, freed=freed)
        except (Corrupt, NotFound) as error:
            why = f"what must stay cannot be told: {error}"
            return Done(space=space.name, count=count, freed=freed, left_alone=why)
    why = "others were writing to it all the time"
    return Done(space=space.name, count=count, freed=freed, left_alone=why)


def _forget_batch(space: Space, batch: list[Object], before: Standing, policy: Policy) -> int | None:
    """Forget a batch and say how many bytes that freed; None, with nothing forgotten, if the space has changed."""
    if standing(space, before) != before:
        return None
    freed = space.engine.forget(space.name, [each.digest for each in batch], why=_why(policy))
    if standing(space, before) == before:
        return freed
    # Somebody wrote in between, and may need some of it by now.
    for part in _batches(batch, _PART_BYTES):
        intent = digest_of(Kind.BODY, canonical.encode([each.digest for each in part]))
        op_id = "keep:" + space.ids()
        space.engine.apply(Write(space=space.name, op_id=op_id, intent=intent, objects=tuple(part)))
    return None


def _batches(objects: Iterable[Object], bytes_max: int = _BATCH_BYTES) -> Iterator[list[Object]]:
    """Objects in batches that fit into memory: they are held until it is sure that nobody needs them."""
    batch: list[Object] = []
    size = 0
    for found in objects:
        batch.append(found)
        size += len(found.body)
        if size >= bytes_max or len(batch) == _BATCH_MAX:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _why(policy: Policy) -> str:
    days = {"undone": policy.undone_after_days, "staged": policy.staged_after_days}
    rules = " or ".join(f"{what} for {count} days" for what, count in days.items() if count is not None)
    return f"the retention policy: nothing live needs it, and it was {rules}"
