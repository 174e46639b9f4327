"""Queues inputs: a run that a worker begins later, now or at a time, the bell that wakes workers, and waiting for the end.

One write has the run's record, its input and its place in the queue of the timeline.  The op_id of that write is the
one of the input, so the same input is queued once, and `run` with the same id finds the run that was queued.  Inputs
of a timeline are taken in the order of their times; one that is queued without a time comes after those that were
queued before it, whatever the clocks of the writers show.  The same write moves the cell `queues`, which fences the
removal of the thread: an input is queued before it, and then the thread stays, or refused after it.  Its value is the
last time of an input without one, so inputs that are scheduled for later are not looked through for it.

The space `work` belongs to the workers of a store.  A worker that has nothing to do arms the bell there before it looks
once more, and then waits for news of that space.  A program that has made work for a worker rings: it empties the cell
if it is armed, and writes nothing if it is not.  The workers of its own opening it wakes at once, before that write.  A
bell that is not rung, because the program has died, costs time and no work: workers also look by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic

import msgspec

from perdure.context.render.media import brought_in
from perdure.engines import loops
from perdure.engines.contract import Cell, CellWrite, Engine, Write, time_of_day
from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Invalid, Moved, OpReused, PerdureError, RunFailed, Unavailable
from perdure.history import reader
from perdure.history.space import Space, read_record
from perdure.model import canonical, names
from perdure.model.digest import Kind, Object, digest_of
from perdure.model.message import decode_message, encode_message
from perdure.model.run import ENDED, QUEUES, HeadPolicy, OnFailure, RunRecord
from perdure.runtime.calls import recovery
from perdure.runtime.run.calls_of_run import check_retry
from perdure.runtime.run.start import RunRequest
from perdure.runtime.session import records
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.inputs import Inbound, Input, given_before_as, inbound, naming, other_words
from perdure.runtime.session.records import QUEUE, WORK, VersionedRun
from perdure.runtime.session.result import Result, last_of, result_of
from perdure.runtime.tools.waiting import When, moment

__all__ = ["QueuedInput", "arm", "check_turn", "first_on", "queue", "queued", "ring", "wait"]

_BELL = "bell"
_NEWS_SECONDS = 3_600.0  # for which the engine is asked for news at once
_SKEW = 5_000_000  # µs by which the clocks of two writers may differ: a later time is a schedule, not a place in line


class QueuedInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The input of a run that has not begun."""

    messages: tuple[tuple[str, str], ...]  # ids, and canonical bytes as text
    named: bool = False  # the caller gave the id, so the history may have the messages
    head_policy: HeadPolicy = "each_step"
    on_failure: OnFailure = "restore"

    def inbound(self) -> Inbound:
        """Return the input as a run takes it."""
        messages = tuple((id, decode_message(text.encode())) for id, text in self.messages)
        return Inbound(messages=messages, is_named=self.named)

    def request(self, record: RunRecord) -> RunRequest:
        """Return the request that begins the run of `record`; no backend is named yet."""
        return RunRequest(
            inbound=self.inbound(),
            backend=None,
            head_policy=self.head_policy,
            on_failure=self.on_failure,
            parent_run=record.parent_run,
        )


_inputs = msgspec.json.Decoder(QueuedInput)
_places = msgspec.json.Decoder(int)


def queue(
    env: RunEnvironment,
    given: Input,
    *,
    id: str | None,
    at: When | None = None,
    head_policy: HeadPolicy = "each_step",
    on_failure: OnFailure = "restore",
) -> str:
    """Queue an input for a worker, and return the id of its run; None as `at`: as soon as its turn comes.

    The same id again returns the same run, begun or not; one that has failed is queued again, and a worker retries it.
    Raises `Invalid`, having queued nothing, if there is no input or no such time, `Sealed` if the timeline takes no more
    writes, and `Conflict` if the id was given before with other words, or the failed run cannot be retried.
    """
    space, timeline = env.space, env.timeline
    due = None if at is None else moment(space.engine, at)
    arrived = inbound(space, timeline, given, id=id, state=None)
    if not arrived.messages:
        raise Invalid("there is no input to queue; nothing was queued.", code="input_invalid")
    attempts = Attempts(f"the queue of '{timeline}'", f"nothing was queued on '{timeline}'")
    while True:
        attempts.begin()
        run = given_before_as(space, timeline, arrived)
        if run is not None:
            try:
                _queue_again(env, records.read(space, run), due)
            except Moved:
                continue  # it was queued again or retried just now, or another input was queued
            return run
        head = reader.unsealed_head(space, timeline)
        now, count = time_of_day(space.engine), space.engine.cell(space.name, QUEUES)
        last = _last_place(space, count)
        record = RunRecord(
            id=space.ids(),
            agent=env.agent.name,
            timeline=timeline,
            state="created",
            at=now,
            begun_at=now,
            input=arrived.ids,
            before=head.commit,
            head_policy=head_policy,
            on_failure=on_failure,
            agent_version=env.agent.version,
            parent_run=env.parent_run,
            due=_place(space, timeline, now, last) if due is None else due,
            thread=space.label,
            scheduled=due is not None,
        )
        try:
            _enter(space, arrived, record, count, last)
        except OpReused as error:
            raise other_words(arrived) from error
        except Moved:
            continue  # another input was queued just now
        if arrived.op_id is None or given_before_as(space, timeline, arrived) == record.id:
            ring(env)
            return record.id


def _queue_again(env: RunEnvironment, kept: VersionedRun, due: int | None) -> None:
    """Queue a run for a worker that has failed, before every other input of its timeline; None: as soon as that can be.

    A later turn would rest on the failure, and then the run could not be retried.
    """
    space, record = env.space, kept.record
    if record.state != "failed" or record.parent is not None:
        return
    reader.unsealed_head(space, record.timeline)
    check_retry(space, record, asked=env.agent.toolbox)
    now, count = time_of_day(space.engine), space.engine.cell(space.name, QUEUES)
    last = _last_place(space, count)
    first = next(_cells(space, record.timeline, until=max(now, last)), None)
    earliest = records.at_once(space.engine, record) if first is None else _time_of(first)
    writes, queued_again = records.moved(
        kept,
        "created",
        at=now,
        # Another place each time: the cell of a place is written once.
        due=min(earliest, record.begun_at) - record.dues - 1 if due is None else due,
        again=True,
        scheduled=due is not None,
        thread=space.label,
        why=None,
        kind=None,
    )
    value = canonical.encode_struct(QueuedInput(messages=()))  # it is in the history
    records.apply(
        space,
        "queue again",
        *writes,
        CellWrite(name=records.queue_name(queued_again.record), expected=0, value=value),
        CellWrite(name=QUEUES, expected=count.revision if count else 0, value=canonical.encode(last)),
    )
    ring(env)


async def wait(env: RunEnvironment, id: str, seconds: float | None = None) -> Result:
    """Return the result of a run once it has ended, or waits for a decision; nothing is run here.

    A run that waits for a time, or whose decision was made, is one that goes on.  Raises `RunFailed` if it failed,
    `NotFound` if it was undone while it waited for a decision, and `Unavailable` if it goes on after these seconds;
    None: it is waited for as long as it takes.
    """
    names.check_id("run", id)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and seconds >= 0):
        raise Invalid(
            f"a time-out is some seconds, not {seconds!r}; nothing was done.",
            code="timeout_invalid",
            timeout=seconds,
        )
    ends_at = inf if seconds is None else monotonic() + seconds
    seen = -1  # a write after the record was read is news
    while True:
        found = await env.run_blocking(partial(_outcome, env, id))
        if isinstance(found, Result):
            if found.status == "failed":
                raise RunFailed(found)
            return found
        left = ends_at - monotonic()
        if left <= 0:
            raise Unavailable(
                f"run '{id}' of '{env.space.label}' goes on after {seconds:g} s: it is {found.state}; nothing was changed.",
                code="run_goes_on",
                advice="Wait again; a run that is created needs a worker.",
                run=id,
                thread=env.space.label,
                state=found.state,
            )
        seen = await env.store_runtime.news.wait(env.space, seen, min(left, _NEWS_SECONDS))


def _outcome(env: RunEnvironment, id: str) -> Result | RunRecord:
    """Return the result of a run, or its record while it goes on."""
    space, record = env.space, records.read(env.space, id).record
    is_asked = record.state == "waiting" and not recovery.is_decided(space, record, env.owners)
    if record.state not in ENDED and not is_asked:
        if record.state == "waiting" and record.due is None:  # else a worker ends one that was undone
            recovery.check_present(space, record)
        return record
    result = result_of(space, record, at=last_of(space, record))
    return result if record.state in ENDED or result.approvals else record


def _enter(space: Space, arrived: Inbound, record: RunRecord, count: Cell | None, last: int) -> None:
    """Write the record of a run that has not begun, and its input; `count` is the cell `queues`, `last` its value."""
    messages: list[tuple[str, str]] = []
    objects: list[Object] = []
    uploads: list[CellWrite] = []
    for id, message in arrived.messages:
        kept, staged = brought_in(space, message)
        messages.append((id, encode_message(kept).decode()))
        objects += [each for artifact in staged for each in artifact.objects]
        uploads += [each for artifact in staged for each in artifact.cells]
    queued = QueuedInput(
        messages=tuple(messages),
        named=arrived.op_id is not None,
        head_policy=record.head_policy,
        on_failure=record.on_failure,
    )
    value = canonical.encode_struct(queued)
    assert record.due is not None, "an input is queued for some time"
    last = last if record.scheduled else max(last, record.due)
    cells = [
        *records.new(record),
        CellWrite(name=records.queue_name(record), expected=0, value=value),
        CellWrite(name=QUEUES, expected=count.revision if count else 0, value=canonical.encode(last)),
        *naming(arrived, record.id),
    ]
    records.apply(
        space,
        "queue",
        *cells,
        *uploads,
        op_id=arrived.op_id,
        intent=arrived.intent(record.timeline) if arrived.op_id else None,
        objects=tuple(objects),
    )


def _place(space: Space, timeline: str, now: int, last: int) -> int:
    """Return the time of an input that is queued now: after every input that was queued before it.

    A time far ahead is that of a scheduled input, or of one that was queued before the clock was turned back.
    """
    for cell in _cells(space, timeline, until=max(now + _SKEW, last), descending=True):
        if _time_of(cell) <= now + _SKEW or not _is_scheduled(space, cell):
            return max(now, _time_of(cell) + 1)
    return now


def _cells(space: Space, timeline: str, *, until: int, descending: bool = False) -> Iterator[Cell]:
    """Yield the inputs of a timeline that have times up to `until`."""
    prefix = f"{QUEUE}{timeline}:"
    before = prefix + records.due_at(until + 1)
    return loops.cells(space.engine, space.name, prefix=prefix, before=before, descending=descending)


def _last_place(space: Space, count: Cell | None) -> int:
    """Return the last time of an input of the thread that was queued without one; `count` is the cell `queues`.

    Earlier versions did not write it, so there the inputs are read.
    """
    if count is None:
        return 0
    if count.value is not None:
        return read_record(count, _places)
    found = loops.cells(space.engine, space.name, prefix=QUEUE)
    return max((_time_of(cell) for cell in found if not _is_scheduled(space, cell)), default=0)


def _time_of(cell: Cell) -> int:
    return int(cell.name.partition(":")[2].partition(".")[0])


def _run_of(cell: Cell) -> str:
    return cell.name.partition(":")[2].partition(".")[2]


def _is_scheduled(space: Space, cell: Cell) -> bool:
    found = records.find(space, _run_of(cell))
    return found is None or found.record.scheduled


def queued(space: Space, record: RunRecord) -> QueuedInput | None:
    """Return the input of a run that has not begun; None if it has begun just now."""
    cell = space.engine.cell(space.name, records.queue_name(record))
    return None if cell is None or cell.value is None else read_record(cell, _inputs)


def first_on(space: Space, timeline: str) -> str | None:
    """Return the run whose input is the next on a timeline; None if nothing is queued there, or only for later."""
    now, count = time_of_day(space.engine), space.engine.cell(space.name, QUEUES)
    for cell in _cells(space, timeline, until=max(now, _last_place(space, count))):
        if _time_of(cell) <= now or not _is_scheduled(space, cell):
            return _run_of(cell)
    return None


def check_turn(space: Space, record: RunRecord) -> None:
    """Raise `Conflict` if another input was queued before that of a run, unless the run is scheduled for a time of its own."""
    first = None if record.scheduled else first_on(space, record.timeline)
    if first not in (None, record.id):
        raise Conflict(
            f"the input of run '{record.id}' is queued on timeline '{record.timeline}' behind that of run '{first}'; "
            "nothing was begun.",
            code="run_queued_behind",
            advice="wait() returns its result once its turn has come, and resume() begins it now.",
            run=record.id,
            first=first,
            timeline=record.timeline,
        )


def ring(env: RunEnvironment) -> None:
    """Wake the workers that wait: those of this opening at once, the others by the bell.

    An error is no failure: they look by themselves.
    """
    env.store_runtime.wake_workers()
    engine = env.space.engine
    with suppress(PerdureError):
        cell = engine.cell(WORK, _BELL)
        if cell is not None and cell.value is not None:
            _set_bell(engine, cell, None)


def arm(engine: Engine) -> None:
    """Let the next one who makes work ring; a caller looks for work after this, and then waits for news of `WORK`."""
    cell = engine.cell(WORK, _BELL)
    if cell is None or cell.value is None:
        _set_bell(engine, cell, b"{}")


def _set_bell(engine: Engine, before: Cell | None, value: bytes | None) -> None:
    revision = before.revision if before else 0
    op_id = f"bell:{revision}"
    write = Write(
        space=WORK,
        op_id=op_id,
        intent=digest_of(Kind.BODY, op_id.encode()),
        cells=(CellWrite(name=_BELL, expected=revision, value=value),),
    )
    with suppress(Conflict):  # another process has done the same
        engine.apply(write)
