"""Plans what a policy would remove, space by space, and carries a plan out.

Commits, changesets and moves always stay, so that the chain verifies.  Values, nodes,
bodies, artifacts and checkpoints are removed if only removable commits need them; of a superseded state only its
values, nodes and lists are.

`carry_out` marks each space again and removes nothing that a write has begun to need since the plan.

The module has one importer, its package, which is the door for the command line and for tests.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress

import msgspec

from perdure.engines.contract import Cell, CellWrite, Engine, Step, Write
from perdure.engines.loops import spaces
from perdure.errors import Conflict, Corrupt, NotFound
from perdure.history.artifacts import upload_of
from perdure.history.retention.digest_set import Digests
from perdure.history.retention.policy import Lot, RetentionPlan, RetentionPolicy, SpacePlan, SpaceRemoval
from perdure.history.retention.reachability import (
    AbandonedCommit,
    Doomed,
    EndedWork,
    FindEndedWork,
    Living,
    OpenLines,
    Removable,
    abandoned,
    left_behind,
    retired_heads,
    roots,
    superseded,
    unliving,
    values_of_items,
)
from perdure.history.space import ALIVE, THREADS, Space, label_of
from perdure.history.stored_objects import pages
from perdure.history.tree import NodeCache
from perdure.history.writer import OUTBOX
from perdure.model import canonical
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.memory import MEMORY

__all__ = ["plan", "whole_space", "space_of", "carry_out"]


class ForeignReads:
    """What commits have read in other spaces; found on first use."""

    def __init__(
        self,
        engine: Engine,
        policy: RetentionPolicy,
        now: int,
        open_lines: OpenLines,
        ended_work: FindEndedWork,
    ) -> None:
        """Read every space of `engine`, but only when `found` is first called."""
        self._engine, self._policy, self._now = engine, policy, now
        self.open_lines, self.ended_work = open_lines, ended_work
        self._found: Digests | None = None

    def found(self) -> Digests:
        """Return the roots and commits of agents and owners that live commits of any space have read."""
        if self._found is None:
            self._found = Digests()
            for name in spaces(self._engine):
                space = space_of(self._engine, name)
                living = Living(space)
                living.reads = self._found
                for digest in roots(space, self._policy, self._now):
                    living.mention(digest)
        return self._found


def removable(
    space: Space, policy: RetentionPolicy, now: int, elsewhere: ForeignReads
) -> Iterator[Removable]:
    """Yield the objects that may be removed, and why.

    Raises `Corrupt` or `NotFound` if anything is damaged: then it is unknown what must stay.
    """
    if policy.items:
        yield from values_of_items(space, policy.items)
        return
    since = policy.undone_since(now)
    left = list(left_behind(space, since)) if since is not None else []
    retired = retired_heads(space, policy, now, elsewhere.open_lines)
    uploads = list(abandoned(space, policy, now))
    replaced = _superseded_since(space, policy, now, elsewhere)
    if not uploads and not retired and replaced is None and not any(each.may_go for each in left):
        return
    living = Living(space, has_states=replaced is None)
    ended = EndedWork() if replaced is None else elsewhere.ended_work(space, replaced)
    for patch in ended.patches:
        living.close(patch)
    for digest in roots(space, policy, now, retired, ended.patches):
        living.mention(digest)
    for each in (*left, *(AbandonedCommit(each, True) for each in retired.values())):
        for step in unliving(space, each.commit, living):
            if not each.may_go or _is_read(step, elsewhere):
                living.commit(step.digest)
    doomed = Doomed(space, living)
    for each in left:
        doomed.commit(each.commit)
    for line, commit in retired.items():
        doomed.commit(commit, retired=line)
    for step in () if replaced is None else superseded(space, replaced, retired, ended.failed):
        doomed.state(step)
    for cell in uploads:
        doomed.chunks(upload_of(cell).chunks)
    doomed.save()
    yield from doomed.objects() if doomed else ()


def _superseded_since(space: Space, policy: RetentionPolicy, now: int, elsewhere: ForeignReads) -> int | None:
    """Return the time since when the states of a thread or a memory stay; None: all of them, as with open work."""
    since = policy.superseded_since(now)
    is_covered = since is not None and space.name.startswith((THREADS, MEMORY))
    return since if is_covered and not elsewhere.open_lines(space) else None


def _is_read(step: Step, elsewhere: ForeignReads) -> bool:
    """True if a live commit of another space has read this one: an agent's commit by digest, a memory by its root."""
    return step.digest in elsewhere.found() or step.commit.root in elsewhere.found()


def expire_uploads(space: Space, policy: RetentionPolicy, now: int) -> None:
    """Mark the uploads that are older than the policy allows, so that they can no longer be finished."""
    for cell in list(abandoned(space, policy, now)):
        upload = upload_of(cell)
        if not upload.expired:
            expired = msgspec.structs.replace(upload, expired=True)
            _put(space, cell, canonical.encode_struct(expired))


def forget_uploads(space: Space, policy: RetentionPolicy, now: int) -> None:
    """Empty the cells of expired uploads, whose chunks are gone."""
    for cell in list(abandoned(space, policy, now)):
        if upload_of(cell).expired:
            _put(space, cell, None)


def space_of(engine: Engine, name: str, ids: Callable[[], str] = str) -> Space:
    """Return a space for marking and removal: it has no clock, because these writes have no time."""
    label = name
    with suppress(Corrupt):  # damage is reported where the space is planned
        label = label_of(engine, name)
    return Space(engine=engine, name=name, label=label, clock=lambda: 0, ids=ids, cache=NodeCache(0))


def _put(space: Space, cell: Cell, value: bytes | None) -> None:
    cell_write = CellWrite(name=cell.name, expected=cell.revision, value=value)
    intent = digest_of(Kind.BODY, canonical.encode(["upload", cell.name, cell.revision]))
    op_id = f"upload:{cell.revision}:{cell.name}"
    try:
        space.engine.apply(Write(space=space.name, op_id=op_id, intent=intent, cells=(cell_write,)))
    except Conflict:
        return  # the upload has just written to it: it is not abandoned


def _no_open_lines(_: Space) -> Mapping[str, str]:
    return {}


def _no_ended_work(_space: Space, _since: int) -> EndedWork:
    return EndedWork()


def plan(
    engine: Engine,
    policy: RetentionPolicy,
    now: int,
    *,
    among: Container[str] | None = None,
    open_lines: OpenLines = _no_open_lines,
    ended_work: FindEndedWork = _no_ended_work,
) -> RetentionPlan:
    """Return what `policy` would remove at the time `now` (µs since 1970, UTC).  Nothing is changed.

    `among` are the spaces to look at; None: all.  `open_lines` names the timelines that stay because of open work,
    `ended_work` what ended runs still need; `perdure.store.upkeep.retention` knows both, and also plans what becomes
    of whole threads.
    """
    elsewhere = ForeignReads(engine, policy, now, open_lines, ended_work)
    names = (name for name in spaces(engine) if among is None or name in among)
    planned = (_plan_space(space_of(engine, name), policy, now, elsewhere) for name in names)
    return RetentionPlan(policy=policy, now=now, spaces=tuple(each for each in planned if each is not None))


def _plan_space(space: Space, policy: RetentionPolicy, now: int, elsewhere: ForeignReads) -> SpacePlan | None:
    """Return what would be removed of one space; None: nothing."""
    if _is_removed(space):
        return plan_removed(space, policy)
    try:
        lines: set[str] = set()
        lots = _lots(_noting(removable(space, policy, now, elsewhere), lines))
    except (Corrupt, NotFound) as error:
        return SpacePlan(space=space.name, left_alone=f"what must stay is unknown: {error}")
    if not lots:
        return None
    retired = retired_heads(space, policy, now, elsewhere.open_lines) if lines else {}
    ends = {
        retired.get(line) for line in lines
    }  # a fork that nothing was committed to ends where another one does
    going = tuple(line for line, commit in retired.items() if commit in ends)
    return SpacePlan(space=space.name, lots=lots, timelines=going)


def _noting(found: Iterable[Removable], lines: set[str]) -> Iterator[tuple[str, Object]]:
    """Yield the objects and why each goes, and add to `lines` the retired timelines that need any of them."""
    for each in found:
        if each.timeline is not None:
            lines.add(each.timeline)
        yield each.why, each.object


def plan_removed(space: Space, policy: RetentionPolicy) -> SpacePlan | None:
    """Return the plan for the space of a removed thread; None: the thread was not removed, or the policy keeps it."""
    if not policy.removed_threads or not _is_removed(space):
        return None
    if space.engine.cells(space.name, prefix=OUTBOX, limit=1):
        return SpacePlan(
            space=space.name, left_alone="its agent's map has not taken over all its changes yet"
        )
    return SpacePlan(space=space.name, dropped=True, lots=whole_space(space, "removed"))


def whole_space(space: Space, why: str) -> tuple[Lot, ...]:
    """Return everything that goes with a whole space, for the reason `why`; what was forgotten before is not there."""
    facts = (fact for page in pages(space.engine, space.name) for fact in page)
    return _lots((why, fact.object) for fact in facts if fact.object is not None)


def _lots(found: Iterable[tuple[str, Object]]) -> tuple[Lot, ...]:
    counts: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for why, each in found:
        counts[why, str(each.kind)] += 1
        sizes[why, str(each.kind)] += len(each.body)
    return tuple(Lot(why, kind, counts[why, kind], sizes[why, kind]) for why, kind in sorted(counts))


def _is_removed(space: Space) -> bool:
    """True if this is the space of a thread that was removed and not dropped yet."""
    alive = space.engine.cell(space.name, ALIVE)
    return alive is not None and alive.value is not None


_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_MAX = 5_000  # a writer of the space waits for one of them, less than a second
_TOGETHER_MAX = 4  # batches, for what goes together
_MARKINGS_MAX = 5  # of one space: each reads all of it, so this is no case for `Attempts`


def carry_out(
    engine: Engine,
    plan: RetentionPlan,
    *,
    ids: Callable[[], str],
    cache: NodeCache | None = None,
    open_lines: OpenLines = _no_open_lines,
    ended_work: FindEndedWork = _no_ended_work,
) -> tuple[SpaceRemoval, ...]:
    """Remove what `plan` names, marking each space again; `ids` makes the op_ids of the writes.

    What has become reachable since the plan stays.  `cache` is the node cache of this process, which
    is emptied; None: it has none.
    """
    elsewhere = ForeignReads(engine, plan.policy, plan.now, open_lines, ended_work)
    done: list[SpaceRemoval] = []
    for planned in plan.spaces:
        space = space_of(engine, planned.space, ids)
        if planned.dropped:
            done.append(_drop(space, plan.policy))
        elif planned.left_alone is None:
            done.append(_forget(space, plan.policy, plan.now, elsewhere))
    if cache is not None:
        cache.clear()
    freed, count = sum(each.freed for each in done), sum(each.count for each in done)
    logging.getLogger("perdure.store").info("gc: %d spaces, %d objects, %d bytes", len(done), count, freed)
    return tuple(done)


def _drop(space: Space, policy: RetentionPolicy) -> SpaceRemoval:
    planned = plan_removed(space, policy)
    if planned is None or not planned.dropped:
        return SpaceRemoval(
            space=space.name, left_alone=planned.left_alone if planned else "the thread was not removed"
        )
    freed = space.engine.drop(space.name, why="the thread was removed")
    return SpaceRemoval(space=space.name, count=planned.count, bytes=planned.bytes, dropped=True, freed=freed)


def _forget(space: Space, policy: RetentionPolicy, now: int, elsewhere: ForeignReads) -> SpaceRemoval:
    """Remove what may be removed of one space, marking it again if another process writes to it."""
    done = SpaceRemoval(space=space.name)
    for _ in range(_MARKINGS_MAX):
        try:
            expire_uploads(space, policy, now)
            standing = space.engine.standing(space.name)
            for batch, size in _batches(removable(space, policy, now, elsewhere)):
                freed = space.engine.forget(space.name, batch, why=_why(policy), standing=standing)
                done = msgspec.structs.replace(
                    done, count=done.count + len(batch), bytes=done.bytes + size, freed=done.freed + freed
                )
            forget_uploads(space, policy, now)
        except Conflict:
            continue  # a write since the marking may need any of it
        except (Corrupt, NotFound) as error:
            return msgspec.structs.replace(done, left_alone=f"what must stay is unknown: {error}")
        return done
    return msgspec.structs.replace(done, left_alone="other writers changed it during each attempt")


def _batches(objects: Iterable[Removable]) -> Iterator[tuple[list[Digest], int]]:
    """Yield the digests to remove and their bytes, in batches that block other writers only for a short time.

    What goes together is in one batch, unless it is some times larger than a batch should be.
    """
    batch: list[Digest] = []
    size, before = 0, None
    for _, found, group, _ in objects:
        fullness = max(size / _BATCH_BYTES, len(batch) / _BATCH_MAX)
        if fullness >= (_TOGETHER_MAX if group == before else 1):
            yield batch, size
            batch, size = [], 0
        batch.append(found.digest)
        size, before = size + len(found.body), group
    if batch:
        yield batch, size


def _why(policy: RetentionPolicy) -> str:
    if policy.items:
        return "the item was erased from memory"
    days = {
        "undone": policy.undone_after_days,
        "staged": policy.staged_after_days,
        "on a timeline without a commit": policy.timelines_after_days,
        "replaced by later states": policy.superseded_after_days,
    }
    rules = [f"{what} for {_age(count)}" for what, count in days.items() if count is not None]
    rules += ["on a timeline that was dropped"] if policy.removed_threads else []
    return f"the retention policy: nothing live needs it, and it was {' or '.join(rules)}"


def _age(days: float) -> str:
    """Return an age in the largest unit in which it is whole, else in seconds."""
    seconds = round(days * 86_400, 3)
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds % length == 0:
            count = round(seconds / length)
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return f"{seconds:g} second" if seconds == 1 else f"{seconds:g} seconds"
