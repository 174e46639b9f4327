"""Carrying out a plan: what may go is forgotten, and nothing that anybody has begun to need meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.engines.contract import Engine, Write
from holdfast.errors import Corrupt, NotFound
from holdfast.history.retention.digests import Digests
from holdfast.history.retention.planning import elsewhere_of, plan_removed, space_of
from holdfast.history.retention.policy import Done, Plan, Policy
from holdfast.history.retention.roots import standing
from holdfast.history.retention.space import expire_uploads, mark, removable
from holdfast.history.space import Space
from holdfast.model import canonical
from holdfast.model.digest import Kind, Object, digest_of

__all__ = ["carry_out"]

_BATCH_BYTES = 16 * 1024 * 1024
_BATCH_MAX = 20_000
_TRIES_MAX = 5


def carry_out(engine: Engine, plan: Plan, *, ids: Callable[[], str]) -> tuple[Done, ...]:
    """Remove what `plan` names, each space as it stands now; `ids` names the writes that this takes.

    A space that has changed since is looked at afresh, so what became reachable stays.
    """
    elsewhere = elsewhere_of(engine, plan.policy)
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


def _forget(space: Space, policy: Policy, now: int, elsewhere: Digests) -> Done:
    """Forget what may go of one space, marking it afresh as long as others write to it."""
    count = freed = 0
    for _ in range(_TRIES_MAX):
        try:
            expire_uploads(space, policy, now)
            before = standing(space)
            victims = removable(space, mark(space, policy, now, elsewhere))
            for batch in _batches(victims):
                if standing(space, before) != before:
                    break
                count += len(batch)
                freed += space.engine.forget(space.name, [each.digest for each in batch], why=_why(policy))
                if standing(space, before) != before:
                    _put_back(space, policy, now, elsewhere, batch)
                    break
            else:
                return Done(space=space.name, count=count, freed=freed)
        except (Corrupt, NotFound) as error:
            why = f"what must stay cannot be told: {error}"
            return Done(space=space.name, count=count, freed=freed, left_alone=why)
    return Done(
        space=space.name, count=count, freed=freed, left_alone="others were writing to it all the time"
    )


def _put_back(space: Space, policy: Policy, now: int, elsewhere: Digests, batch: list[Object]) -> None:
    """Write again what somebody has begun to need while it was being forgotten."""
    live = mark(space, policy, now, elsewhere).live
    needed = tuple(each for each in batch if each.digest in live)
    if needed:
        intent = digest_of(Kind.BODY, canonical.encode([each.digest for each in needed]))
        space.engine.apply(
            Write(space=space.name, op_id="keep:" + space.ids(), intent=intent, objects=needed)
        )


def _batches(victims: Iterator[tuple[str, Object]]) -> Iterator[list[Object]]:
    """Objects in batches that fit into memory: they are held until it is sure that nobody needs them."""
    batch: list[Object] = []
    size = 0
    for _, found in victims:
        batch.append(found)
        size += len(found.body)
        if size >= _BATCH_BYTES or len(batch) == _BATCH_MAX:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _why(policy: Policy) -> str:
    return f"a retention policy forgot it (undone {policy.undone_after_days}, staged {policy.staged_after_days} days)"
