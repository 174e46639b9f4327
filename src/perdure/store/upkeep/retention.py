"""Retention by age: which timelines and which whole threads a policy lets go, and how they go.

Open work is never touched.  A timeline, and the thread that it is in, is *open* while a run on it has not ended or an
input is queued, a question waits, a call is under way or its outcome is unknown.  A thread is open as well while it is
held because it came from another store, and while the run above one of its child runs has not ended.

The age of a thread is that of the newest thing in it: commits of all timelines, undone ones included, runs and calls.
It is removed by one write that closes it and is refused if any head, any lease or the queue has moved since it was
looked at; then its space is dropped.  If something else was written in between, a fork or a call by hand, nothing is
dropped and the removal says so.

What goes inside a space is planned by `perdure.history.retention`.

`erase` is retention of one item of a memory, or of all, whatever their age.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from urllib.parse import quote

import msgspec

from perdure.engines import loops
from perdure.engines.contract import CellWrite, Engine, Fence, Move, Write
from perdure.errors import Conflict, Corrupt, Forgotten, Invalid, NotFound
from perdure.history import retention, stored_objects, timelines
from perdure.history.retention import RetentionPlan, RetentionPolicy, SpacePlan, SpaceRemoval
from perdure.history.retention.planner import space_of, whole_space
from perdure.history.retention.reachability import EndedWork, every_step
from perdure.history.space import ALIVE, STORE, Space
from perdure.history.tree import NodeCache
from perdure.history.writer import OUTBOX
from perdure.ledger import calls, held, tickets
from perdure.memory import OwnerMemory, write
from perdure.model import canonical
from perdure.model.commit import Act
from perdure.model.digest import Kind, digest_of
from perdure.model.head import MAIN, Head
from perdure.model.memory import MEMORY, decode_version, parse_version_path
from perdure.model.names import SERVER_THREAD
from perdure.model.patch import Put
from perdure.model.run import ENDED, LEASE, QUEUE, QUEUES, RunRecord
from perdure.runtime.session import records
from perdure.store.plumbing import directory
from perdure.store.plumbing.run_fence import UNSETTLED

__all__ = ["Erasure", "as_words", "carry_out", "erase", "plan", "with_open_work"]


def open_lines(space: Space) -> Mapping[str, str]:
    """Return the timelines of a thread on which work is open, each with what it is."""
    found: dict[str, str] = {}
    for run in _runs(space):
        if run.state not in ENDED:
            found[run.timeline] = f"run '{run.id}' is {run.state}"
            if run.line is not None:
                found[run.line] = found[run.timeline]
    for prefix, what in ((QUEUE, "an input is queued"), (tickets.ASKS, "a question waits")):
        for cell in loops.cells(space.engine, space.name, prefix=prefix):
            found.setdefault(cell.name.removeprefix(prefix).rpartition(":")[0], what)
    for cell in loops.cells(space.engine, space.name, prefix=LEASE):
        found.setdefault(cell.name.removeprefix(LEASE), "a run holds it")
    for call in calls.every(space):
        if call.record.state in UNSETTLED:
            found.setdefault(call.record.timeline, f"call '{call.record.id}' is {call.record.state}")
    return found


def with_open_work(engine: Engine, spaces: Sequence[str]) -> list[str]:
    """Return those of these threads in which a run has not ended, a queued one too, or a question waits.

    In the others nothing goes on by itself, held or not.  All of them, if the record of a run is damaged.
    """
    try:
        found = {space for space, _ in (*records.open_runs(engine), *tickets.waiting(engine))}
    except Corrupt:
        return list(spaces)
    return [each for each in spaces if each in found]


def ended_work(space: Space, since: int) -> EndedWork:
    """Return the runs of a thread that failed, and the patches of calls that were settled before that time.

    The commit of its round has applied such a patch, or never will, unless its run failed: that one can be retried.
    """
    runs = {run.id: run.state for run in _runs(space)}
    patches = {
        call.record.patch
        for call in calls.every(space)
        if call.record.patch is not None
        and call.record.at < since
        and call.record.state not in UNSETTLED
        and runs.get(call.record.run or "", "failed") in ENDED - {"failed"}
    }
    failed = {run for run, state in runs.items() if state == "failed"}
    return EndedWork(patches=frozenset(patches), failed=frozenset(failed))


def plan(engine: Engine, policy: RetentionPolicy, now: int) -> RetentionPlan:
    """Return what `policy` would remove at the time `now` (µs since 1970, UTC).  Nothing is changed."""
    about: set[str] | None = None
    if policy.is_limited:
        about = set() if policy.items else {record.space for _, record in _threads(engine, policy)}
        about |= set() if policy.agents else {MEMORY + owner for owner in policy.owners}
    found = retention.plan(engine, policy, now, among=about, open_lines=open_lines, ended_work=ended_work)
    since = policy.threads_since(now)
    if since is None or policy.items:
        return found
    idle = {each.space: each for each in _idle_threads(engine, policy, since)}
    others = [each for each in found.spaces if each.space not in idle or idle[each.space].left_alone]
    wanted = sorted((*others, *idle.values()), key=lambda each: each.space)
    return msgspec.structs.replace(found, spaces=tuple(wanted))


def carry_out(
    engine: Engine, plan: RetentionPlan, *, ids: Callable[[], str], cache: NodeCache | None = None
) -> tuple[SpaceRemoval, ...]:
    """Remove what `plan` names, after a look at each space again; `ids` makes the op_ids of the writes.

    `cache` is the node cache of this process, which is emptied; None: it has none.
    """
    if not isinstance(plan, RetentionPlan):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"gc carries out a plan, not {plan!r}; nothing was removed.",
            code="not_a_plan",
            advice="Let gc_plan make one of a policy first.",
        )
    threads = [each for each in plan.spaces if each.thread is not None and each.left_alone is None]
    others = tuple(each for each in plan.spaces if each.thread is None)
    done = [_remove(engine, each, plan, ids) for each in threads]
    rest = msgspec.structs.replace(plan, spaces=others)
    return (
        *done,
        *retention.carry_out(
            engine, rest, ids=ids, cache=cache, open_lines=open_lines, ended_work=ended_work
        ),
    )


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What an erasure removed of items, and which threads still hold their words."""

    head: Head  # of the memory
    items: tuple[str, ...]  # the ids of those that were erased
    count: int  # objects that the memory has forgotten
    freed: int  # bytes
    threads: tuple[str, ...]  # threads of the owner that hold their words too, by id
    left_alone: str | None  # why the memory has kept some of it


def erase(memory: OwnerMemory, id: str | None, *, author: str | None = None) -> Erasure | None:
    """Forget an item and every value that it ever had; an id of None: every item there ever was.

    Returns None if neither the memory nor a thread knows the item, or there never was any.  Every other item stays, at
    every moment.  An erasure that was interrupted is finished by another one.
    """
    space, engine = memory.space, memory.space.engine
    texts, known = _past_of(space, id)
    threads = tuple(_holding(engine, memory.owner, id, texts)) if known or id is not None else ()
    if not known and not threads:
        return None
    items = tuple(sorted(known)) if id is None else (id,)
    head = write.remove(space, lambda _: items, reason="memory.erase", author=author)
    wanted = plan(engine, RetentionPolicy(owners=(memory.owner,), items=items), space.clock())
    done = carry_out(engine, wanted, ids=space.ids, cache=space.cache)
    memory.forget_copies()
    return Erasure(
        head=head,
        items=items,
        count=sum(each.count for each in done),
        freed=sum(each.freed for each in done),
        threads=threads,
        left_alone=next((each.left_alone for each in (*wanted.spaces, *done) if each.left_alone), None),
    )


def _past_of(space: Space, id: str | None) -> tuple[set[str], set[str]]:
    """Return every text that an item ever had, undone ones included, and the ids that were found; None: of all items."""
    moves = loops.moves(space.engine, space.name, MAIN)
    tips = {tip: None for move in moves for tip in (move.to, move.from_) if tip is not None}
    texts: set[str] = set()
    known: set[str] = set()
    for step in every_step(space, tips):
        for op in step.changeset.patch.ops:
            if isinstance(op, Put) and (found := parse_version_path(op.path)[0]) and id in (None, found):
                known.add(found)
                with suppress(Forgotten):
                    item = decode_version(space.body(op.value)).item
                    texts |= {item.text} if item else set()
    return texts, known


def _holding(engine: Engine, owner: str, id: str | None, texts: set[str]) -> Iterator[str]:
    """Yield the threads of an owner in which one of these texts is, or a reference to the item that a model was shown.

    An id of None is that of any item.
    """
    named = rb"[^@/]+" if id is None else re.escape(id.encode())
    reference = re.escape(f"/{quote(owner, safe='')}/".encode()) + named + b"@"
    pattern = re.compile(b"|".join([b"mem://[^/]+" + reference, *map(as_words, sorted(texts))]))
    for thread, record in _threads(engine, RetentionPolicy(owners=(owner,))):
        facts = (fact for page in stored_objects.pages(engine, record.space) for fact in page)
        if any(fact.object is not None and pattern.search(fact.object.body) for fact in facts):
            yield thread


def as_words(text: str) -> bytes:
    """Return a pattern of a text in JSON that finds it as whole words: "tea" is not in "steak".

    A letter of an escape, such as that of a new line, is no letter of a word.  Only ASCII has such borders: other
    scripts may write words without a space between them.
    """
    body = canonical.encode(text)[1:-1]
    begin = rb"(?:(?<!\w)|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4}))" if re.match(rb"\w", body) else b""
    end = rb"(?!\w)" if re.search(rb"\w\Z", body) else b""
    return begin + re.escape(body) + end


def _threads(engine: Engine, policy: RetentionPolicy) -> Iterator[tuple[str, directory.Record]]:
    """Yield the threads that a policy is about, by id."""
    for id, record, _ in directory.threads(space_of(engine, STORE)):
        if policy.is_about(record.agent, record.owner):
            yield id, record


def _idle_threads(engine: Engine, policy: RetentionPolicy, since: int) -> Iterator[SpacePlan]:
    """Yield the threads that nothing was written to since, and why some of them stay.

    The server's own thread is never among them: clients use its keys even if no request changes the thread.
    """
    for id, record in _threads(engine, policy):
        if id == SERVER_THREAD:
            continue
        space = space_of(engine, record.space)
        try:
            if (_last_written(space) or record.begun_at) >= since:
                continue
            why = _why_open(space)
        except (Corrupt, NotFound) as error:
            why = f"what must stay is unknown: {error}"
        lots = whole_space(space, "idle") if why is None else ()
        yield SpacePlan(space=record.space, thread=id, lots=lots, dropped=why is None, left_alone=why)


def _last_written(space: Space) -> int | None:
    """Return the time of the newest commit, run or call of a thread, undone or not; None: it has none."""
    times = [each.at for each in _runs(space)] + [each.record.at for each in calls.every(space)]
    for hold in loops.holds(space.engine, space.name):
        for move in loops.moves(space.engine, space.name, hold.head.timeline):
            times += [space.step(each).commit.at for each in (move.to, move.from_) if each is not None]
            if move.act is Act.COMMIT:
                break  # what is before it is older
    return max(times, default=None)


def _why_open(space: Space) -> str | None:
    """Return why a thread has to stay; None: nothing is open there."""
    engine = space.engine
    for line, what in open_lines(space).items():
        return what if line == MAIN else f"{what}, on '{line}'"
    cell = engine.cell(held.COPIES, held.HELD + space.name)
    if cell is not None and cell.value is not None:
        return "it came from another store and is held"
    if engine.cells(space.name, prefix=OUTBOX, limit=1):
        return "its agent's map has not taken over all its changes yet"
    for run in _runs(space):
        if run.parent is not None and run.parent_run is not None:
            above = records.find(space.beside(run.parent.space, run.parent.thread), run.parent_run)
            if above is not None and above.record.state not in ENDED:
                return f"run '{run.parent_run}' of '{run.parent.thread}', which started its run, is {above.record.state}"
    return None


def _runs(space: Space) -> Iterator[RunRecord]:
    return loops.pages(
        lambda after, limit: records.listing(space, after=after, limit=limit),
        "",
        lambda run: run.id,
        fills=True,
    )


def _remove(engine: Engine, planned: SpacePlan, plan: RetentionPlan, ids: Callable[[], str]) -> SpaceRemoval:
    """Remove a thread, unless it was written since or something is open there now."""
    assert planned.thread is not None
    space, since = space_of(engine, planned.space, ids), plan.policy.threads_since(plan.now)
    kept = SpaceRemoval(space=planned.space, left_alone="it was written in the meantime")
    fences = _fences(space)
    heads = list(timelines.timelines(space))
    last, why = _last_written(space), _why_open(space)
    if why is not None:
        return msgspec.structs.replace(kept, left_alone=why)
    if since is None or (last is not None and last >= since):
        return kept
    name = f"retire:{space.name}"
    write = Write(
        space=space.name,
        op_id=ids(),
        intent=digest_of(Kind.BODY, name.encode()),
        fences=fences,
        moves=tuple(
            Move(
                act=Act.SEAL,
                timeline=hold.head.timeline,
                expected=hold.head,
                to=hold.head.commit,
                seal=True,
                at=plan.now,
            )
            for hold in heads
            if not hold.sealed
        ),
        cells=(CellWrite(name=ALIVE, expected=0, value=canonical.encode({"removed_at": plan.now})),),
    )
    try:
        engine.apply(write)
    except Conflict:
        return kept
    directory.remove(space_of(engine, STORE, ids), space, planned.thread)
    is_same = len(heads) == len(list(timelines.timelines(space))) and _last_written(space) == last
    if not is_same or _why_open(space) is not None:
        return msgspec.structs.replace(
            kept, left_alone="it was written while it was removed; `--removed` drops it"
        )
    freed = engine.drop(space.name, why="the retention policy: nothing was written to the thread")
    return SpaceRemoval(space=space.name, count=planned.count, bytes=planned.bytes, dropped=True, freed=freed)


def _fences(space: Space) -> tuple[Fence, ...]:
    """Return the fences that fail if the thread was removed, a run begins, or an input is queued."""
    lines = [hold.head.timeline for hold in timelines.timelines(space)]
    cells = [LEASE + line for line in lines]
    found = {name: space.engine.cell(space.name, name) for name in (*cells, QUEUES)}
    return tuple(Fence(name, cell.revision if cell else 0) for name, cell in found.items())
