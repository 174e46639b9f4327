"""The result of a run as its caller gets it; the same whether it ran just now or long ago."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Step
from perdure.errors import Conflict, Invalid
from perdure.history import reader
from perdure.history.ancestry import of_run
from perdure.history.space import Space
from perdure.ledger import calls, decisions, tickets
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended, RunFinished, ToolCallSuspended
from perdure.model.message import decode_message
from perdure.model.run import ENDED, RunRecord, RunState, StopReason, Usage
from perdure.model.ticket import Ticket

__all__ = ["Result", "begin_of", "last_of", "result_of"]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run."""

    run: str
    status: RunState  # `succeeded`, `waiting`, `stopped` or `cancelled`; a failed run raises `RunFailed`
    text: str = ""  # of the assistant's last message
    approvals: tuple[Ticket, ...] = ()  # the approvals that it waits for
    usage: Usage = Usage()
    steps: int = 0  # how often the model was asked
    commit: Digest | None = None  # its last one
    why: str | None = None  # in words, where it did not simply succeed
    kind: str | None = None  # of the error, where it failed
    stop: StopReason | None = None  # why it ended; None: it waits, failed, or was cancelled
    shape: Any = None  # the type that was asked for with output=

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
            return msgspec.json.decode(_unfenced(self.text), type=self.shape)
        except msgspec.DecodeError as error:
            raise Invalid(
                f"the last message of run '{self.run}' is no {self.shape}: {error}.",
                code="output_mismatch",
                run=self.run,
            ) from error


def result_of(space: Space, record: RunRecord, *, at: Digest | None, shape: Any = None) -> Result:
    """Read the result of a run from its commits up to `at`."""
    steps = of_run(space, record.id, at)
    spoken = [
        event
        for step in steps
        for event in step.changeset.events
        if isinstance(event, MessageAppended) and event.role == "assistant"
    ]
    usage = sum((event.usage for event in spoken if event.usage is not None), Usage())
    return Result(
        run=record.id,
        status=record.state,
        text=decode_message(space.body(spoken[-1].body)).text if spoken else "",
        approvals=_waiting(space, record, steps, at) if record.state == "waiting" else (),
        usage=usage,
        steps=len(spoken),
        commit=steps[-1].digest if steps else None,
        why=record.why,
        kind=record.kind,
        stop=record.stop,
        shape=shape,
    )


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
        return tuple(decisions.waiting_on(space, record.timeline, at))
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
    return tuple(found)


def _unfenced(text: str) -> str:
    """Return JSON without the fence of backticks that models often put around it."""
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```"):
        bare = bare[3:-3].removeprefix("json")
    return bare
