"""The result of a run as its caller gets it, what it used, and the checks that its last answer has to pass.

A result is the same whether the run ended just now or long ago.  What a run uses of its limits, its child runs use too.

An answer is checked by the guards of the agent, and against the type that the caller asked for.  A refused answer stays
in the conversation, with an event that says which guard refused it and why.  The run then asks for another answer, as
often as the agent allows; the events count, so a crash does not start the counting again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Cell, Step
from perdure.errors import Conflict, Invalid, NotFound
from perdure.history import reader
from perdure.history.ancestry import of_run
from perdure.history.space import Space, SpentByModel, read_record
from perdure.ledger import calls, decisions, tickets
from perdure.model.canonical import prepared
from perdure.model.digest import Digest
from perdure.model.event import GuardRefused, MessageAppended, RunFinished, ToolCallSuspended
from perdure.model.head import MAIN
from perdure.model.message import Message, Text, decode_message
from perdure.model.names import short_ids
from perdure.model.run import ENDED, Cost, RunRecord, RunState, StopReason, Usage
from perdure.model.ticket import Ticket
from perdure.projections.transcript import in_brief, settled_in
from perdure.runtime.agent.agent import Agent, Stop
from perdure.runtime.agent.plugin import Guard, Refusal, refusal_of
from perdure.runtime.session import records

__all__ = [
    "CHILD",
    "OUTPUT_TYPE",
    "AnswerChecks",
    "ChildNote",
    "Result",
    "allowance",
    "begin_of",
    "begun_by",
    "children_of",
    "decoded",
    "inbound_messages",
    "last_of",
    "notes_of",
    "read_note",
    "refused_event",
    "refused_input",
    "result_of",
    "spent_below",
    "spent_by",
    "spent_in",
    "spent_in_all",
]


OUTPUT_TYPE = (
    "output_type"  # in place of a guard's name where an answer does not fit the type that was asked for
)
_LOOKED_UP_MAX = 32  # runs of main whose first commits are looked up
_AGAIN = "The answer above was refused by the check '{guard}': {why}. Answer again."


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run."""

    run: str
    status: RunState  # `succeeded`, `waiting`, `stopped` or `cancelled`; a failed run raises `RunFailed`
    text: str = ""  # of the assistant's last message; empty if a guard refused it
    approvals: tuple[Ticket, ...] = ()  # the approvals that it waits for
    calls: int = 0  # the tool calls that ended in it
    failed_calls: tuple[
        str, ...
    ] = ()  # those of them that failed: the tool raised, or says that it was not done
    unclear_calls: tuple[str, ...] = ()  # those whose outcome is unknown, also by now
    usage: Usage = Usage()
    cost: Cost = Cost()  # of its steps, as far as their prices are known
    steps: int = 0  # how often the model was asked
    commit: Digest | None = None  # its last one
    why: str | None = None  # in words, where it did not simply succeed
    kind: str | None = None  # of the error, where it failed
    stop: StopReason | None = None  # why it ended; None: it waits, failed, or was cancelled
    shape: Any = None  # the type that was asked for with output=

    def __repr__(self) -> str:
        """Say how the run ended, what it took and what was said last, in one line."""
        counts = [f"{self.steps} step{'' if self.steps == 1 else 's'}"] if self.steps else []
        counts += [f"{self.calls} call{'' if self.calls == 1 else 's'}"] if self.calls else []
        counts += [f"{len(self.failed_calls)} failed"] if self.failed_calls else []
        counts += [f"{len(self.unclear_calls)} of unknown outcome"] if self.unclear_calls else []
        counts += [f"{len(self.approvals)} to approve"] if self.approvals else []
        last = (
            f": {in_brief(repr(self.text))}" if self.text else f": {in_brief(self.why)}" if self.why else ""
        )
        return f"<run {short_ids([self.run])[self.run]} {', '.join((self.status, *counts))}{last}>"

    def __str__(self) -> str:
        """Return the run and how it ended, as text."""
        return f"'{self.run}' {self.status}{': ' + self.why if self.why else ''}"

    @property
    def output(self) -> Any:
        """The last message as the type that was asked for; raises `Invalid` if it is not one."""
        if self.shape is None:
            raise Invalid(
                "this run was not asked for an output of a type.",
                code="output_type_missing",
                advice="Give output= to run().",
                run=self.run,
            )
        try:
            return decoded(self.text, self.shape)
        except msgspec.DecodeError as error:
            raise Invalid(
                f"the last message of run '{self.run}' is no {self.shape}: {error}.",
                code="output_mismatch",
                run=self.run,
            ) from error


def result_of(space: Space, record: RunRecord, *, at: Digest | None, shape: Any = None) -> Result:
    """Read the result of a run from its commits up to `at`."""
    steps = of_run(space, record.id, at)
    spoken = _spoken(steps)
    counts = calls.count_settled(space, settled_in(step.changeset for step in steps))
    is_refused = record.stop is not None and record.stop.reason == "guard"
    return Result(
        run=record.id,
        status=record.state,
        text=decode_message(space.body(spoken[-1].body)).text if spoken and not is_refused else "",
        approvals=_waiting(space, record, steps, at) if record.state == "waiting" else (),
        **counts._asdict(),
        usage=_usage(spoken),
        cost=_cost(spoken),
        steps=len(spoken),
        commit=steps[-1].digest if steps else None,
        why=record.why,
        kind=record.kind,
        stop=record.stop,
        shape=shape,
    )


def spent_by(space: Space, runs: Iterable[RunRecord]) -> dict[str, SpentByModel]:
    """Read what each of these runs cost, by id.

    Each line is read once, from its head back to the first of its runs; a run that was undone is looked for by itself.
    A run that has ended is read once in a process.
    """
    lines: dict[str, list[RunRecord]] = {}
    found: dict[str, SpentByModel] = {}
    for record in runs:
        known = space.steps.spent.get(space.name, record.id, record.at)
        if known is not None:
            found[record.id] = known
        else:
            lines.setdefault(record.timeline, []).append(record)
    for timeline, on_line in lines.items():
        steps = _steps_by_run(space, timeline, {record.id for record in on_line})
        for record in on_line:
            own = steps.get(record.id, [])
            if own and (record.state not in ENDED or _has_end(own, record)):
                found[record.id] = _kept(space, record, own)
            else:
                found |= spent_in(space, record)
    return found


def spent_in(space: Space, record: RunRecord) -> dict[str, SpentByModel]:
    """Read what one run cost, by its id.  Costs what the run has, however long its line is before and after it."""
    known = space.steps.spent.get(space.name, record.id, record.at)
    if known is None:
        known = _kept(space, record, of_run(space, record.id, last_of(space, record)))
    return {record.id: known}


def _kept(space: Space, record: RunRecord, steps: Iterable[Step]) -> SpentByModel:
    """Return what the commits of a run cost; remembered if it has ended."""
    spent = _spent(_spoken(steps))
    if record.state in ENDED:
        space.steps.spent.put(space.name, record.id, record.at, spent)
    return spent


def _steps_by_run(space: Space, timeline: str, runs: set[str]) -> dict[str, list[Step]]:
    """Return the commits of these runs on a line, oldest first.

    The line is read back to the first commit of its first run.  For many runs of main that commit is not looked up: what
    lies before is main, too, and most of it is of these runs.
    """
    own = () if timeline == MAIN and len(runs) > _LOOKED_UP_MAX else runs
    firsts = {commit for run in own for commit in space.engine.labelled(space.name, run)}
    found: dict[str, list[Step]] = {}
    for step in reader.steps(space, reader.head_of(space, timeline).commit):
        if step.commit.run in runs:
            found.setdefault(step.commit.run, []).append(step)
        firsts.discard(step.digest)
        if own and not firsts:
            break
    return {run: steps[::-1] for run, steps in found.items()}


def _spoken(steps: Iterable[Step]) -> list[MessageAppended]:
    return [
        event
        for step in steps
        for event in step.changeset.events
        if isinstance(event, MessageAppended) and event.role == "assistant"
    ]


def _spent(spoken: list[MessageAppended]) -> SpentByModel:
    """Return what steps cost; each is counted by its own model, also in a run that went over to another."""
    by_model: dict[str, list[MessageAppended]] = {}
    for event in spoken:
        named = f"{event.provider}:{event.model}" if event.provider and event.model else "unknown model"
        by_model.setdefault(named, []).append(event)
    models = {name: (_cost(steps), _usage(steps)) for name, steps in by_model.items()}
    return SpentByModel(_cost(spoken), _usage(spoken), models)


def _usage(spoken: Iterable[MessageAppended]) -> Usage:
    return sum((event.usage for event in spoken if event.usage is not None), Usage())


def _cost(spoken: Iterable[MessageAppended]) -> Cost:
    return sum((Cost.of(event.cost) for event in spoken), Cost())


def last_of(space: Space, record: RunRecord) -> Digest | None:
    """Return a commit whose history holds the run up to its end, also after an undo of some of it."""
    first = space.engine.labelled(space.name, record.id)
    head = reader.head_of(space, record.timeline).commit
    if not first:
        return head
    is_here = any(reader.is_ancestor(space, commit, head) for commit in first)
    if is_here and (record.state not in ENDED or _has_end(of_run(space, record.id, head), record)):
        return head
    found = head if is_here else None
    for move in loops.moves(space.engine, space.name, record.timeline):
        step = None if move.to is None else space.step(move.to)
        if step is not None and step.commit.run == record.id:
            if record.state not in ENDED or _has_end([step], record):
                return step.digest
            found = found or step.digest
    if found is None:
        raise Conflict(
            f"the commits of run '{record.id}' are on no timeline of '{space.label}'; nothing was read.",
            code="run_commits_not_found",
            run=record.id,
            thread=space.label,
        )
    return found


def begin_of(space: Space, run: str, at: Digest | None) -> Digest | None:
    """Return the first commit of a run up to `at`; None if there is none.

    Commits of other writers may be between those of a run that waited.
    """
    commits = space.engine.labelled(space.name, run)
    return next((commit for commit in commits if reader.is_ancestor(space, commit, at)), None)


def _has_end(steps: list[Step], record: RunRecord) -> bool:
    """True if these commits end the run as its record says; a run that was retried has an earlier, other end."""
    events = (event for step in steps for event in step.changeset.events)
    ends = [event.status for event in events if isinstance(event, RunFinished)]
    return ends[-1:] == [record.state]


def _waiting(space: Space, record: RunRecord, steps: list[Step], at: Digest | None) -> tuple[Ticket, ...]:
    if record.continues is not None:  # its calls were requested on another timeline
        return tuple(each for each in decisions.waiting_on(space, record.timeline, at) if not each.is_timer)
    suspended = [
        event.call
        for step in steps
        for event in step.changeset.events
        if isinstance(event, ToolCallSuspended)
    ]
    found: list[Ticket] = []
    for call in dict.fromkeys(suspended):
        held = calls.find(space, call)
        if held is not None and held.record.state == "awaiting_approval" and held.record.ticket is not None:
            found.append(tickets.read(space, held.record.ticket).ticket)
    return tuple(each for each in decisions.asked_of_people(space, found) if not each.is_timer)


def decoded(text: str, shape: Any) -> Any:
    """Return an answer as a type; raise `msgspec.DecodeError` if it does not fit.

    A fence of backticks, which models often put around JSON, is left out.
    """
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```"):
        bare = bare[3:-3].removeprefix("json")
    return msgspec.json.decode(bare, type=prepared(shape))


class AnswerChecks:
    """The checks of a run's last answer, and how often the run has asked for another."""

    __slots__ = ("_asked", "_guards", "_retries", "_shape")

    def __init__(self, agent: Agent, shape: Any) -> None:
        """Check with the guards of the agent, and against the type `shape` unless it is None."""
        self._guards, self._retries = agent.guards, agent.answer_retries
        self._shape = shape if agent.answer_retries else None
        self._asked = 0

    async def check(self, message: Message) -> Refusal | None:
        """Return why an answer is refused; None if it is accepted."""
        if self._shape is not None:
            try:
                decoded(message.text, self._shape)
            except msgspec.DecodeError as error:
                return Refusal(OUTPUT_TYPE, str(error))
        return await refusal_of(self._guards, "output", message)

    def again(self, refused: Refusal) -> Message | None:
        """Return the message that asks for another answer; None if the run has asked often enough."""
        self._asked += 1
        if self._asked > self._retries:
            return None
        return Message("user", (Text(_AGAIN.format(guard=refused.guard, why=refused.why)),))

    def recount(self, steps: Iterable[Step]) -> None:
        """Count the answers that were refused before an interruption."""
        events = (event for step in steps for event in step.changeset.events)
        self._asked = sum(isinstance(event, GuardRefused) and event.subject == "output" for event in events)


def refused_event(
    id: str,
    refused: Refusal,
    subject: Literal["input", "output", "arguments"],
    *,
    call: str | None = None,
    message: str | None = None,
) -> GuardRefused:
    """Return the event of a refusal."""
    return GuardRefused(
        id=id, guard=refused.guard, subject=subject, why=refused.why, call=call, message=message
    )


async def refused_input(
    guards: Sequence[Guard], messages: Sequence[tuple[str, Message]], ids: Callable[[], str]
) -> tuple[Refusal, GuardRefused] | None:
    """Have the guards look at messages of the user, each with its id; return the first refusal with its event."""
    for id, message in messages:
        refused = await refusal_of(guards, "input", message)
        if refused is not None:
            return refused, refused_event(ids(), refused, "input", message=id)
    return None


def inbound_messages(space: Space, record: RunRecord) -> list[tuple[str, Message]]:
    """Return the messages that came in with a run, with their ids."""
    found: list[tuple[str, Message]] = []
    for id in record.input:
        for commit in space.engine.labelled(space.name, id):
            step = space.step(commit)
            said = [
                event
                for event in step.changeset.events
                if isinstance(event, MessageAppended) and event.id == id
            ]
            if said and step.commit.run == record.id:
                found.append((id, decode_message(space.body(said[0].body))))
                break
    return found


CHILD = "child/"  # cells: the children of a run, by run, call and ordinal


class ChildNote(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a child's cell."""

    space: str
    thread: str
    call: str
    input: str  # the id of its input, which names its run


_child_notes = msgspec.json.Decoder(ChildNote)


def allowance(space: Space, stop: Stop, run: str) -> tuple[int | None, float | None]:
    """Return the tokens and the dollars that a run has left for a child; None: they are not limited."""
    record = records.read(space, run).record
    above = (None, None) if record.parent is None else (record.parent.tokens_left, record.parent.cost_left)
    tokens = [most for most in (stop.tokens, above[0]) if most is not None]
    costs = [most for most in (stop.cost, above[1]) if most is not None]
    if not tokens and not costs:
        return None, None
    cost, usage = spent_in_all(space, record)
    used = usage.input_tokens + usage.output_tokens
    return min(tokens) - used if tokens else None, min(costs) - cost.usd if costs else None


def spent_in_all(space: Space, record: RunRecord) -> tuple[Cost, Usage]:
    """Read what a run has used, with all runs below it."""
    own_cost, own_usage, _ = spent_by(space, [record])[record.id]
    cost, usage = spent_below(space, record.id)
    return own_cost + cost, own_usage + usage


def spent_below(space: Space, run: str) -> tuple[Cost, Usage]:
    """Read what the child runs of a run have used, with all runs below them.

    Those whose thread was removed are left out: their history is gone, or will be.
    """
    cost, usage = Cost(), Usage()
    for inside, child in children_of(space, run):
        with suppress(NotFound):
            child_cost, child_usage = spent_in_all(inside, child)
            cost, usage = cost + child_cost, usage + child_usage
    return cost, usage


def children_of(space: Space, run: str) -> Iterator[tuple[Space, RunRecord]]:
    """Yield the child runs of a run, each with the space of its thread; children that never began are left out."""
    for note in notes_of(space, run):
        inside = space.beside(note.space, note.thread)
        found = begun_by(inside, note)
        if found is not None:
            yield inside, found


def notes_of(space: Space, run: str) -> list[ChildNote]:
    """Read the cells of the children of a run, in the order of their calls."""
    return [read_note(cell) for cell in loops.cells(space.engine, space.name, prefix=f"{CHILD}{run}/")]


def read_note(cell: Cell) -> ChildNote:
    """Read one of these cells; raises `Corrupt` if it is damaged."""
    return read_record(cell, _child_notes)


def begun_by(space: Space, note: ChildNote) -> RunRecord | None:
    """Return the run that the input of a child started; None if it has not begun."""
    for commit in space.engine.labelled(space.name, note.input):
        run = space.step(commit).commit.run
        found = records.find(space, run) if run is not None else None
        if found is not None:
            return found.record
    return None
