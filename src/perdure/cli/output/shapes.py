"""The shapes that several answers have in common: messages, turns and commits.

Times are written 2026-01-31T12:00:00.000000Z, digests in full; None is null.

The shapes of runs, calls and approvals, which several answers have in common, and how they look to people.

What others wrote, arguments and results, is parsed where it is JSON, and text where it is not.

What could not be carried over unchanged, as programs and people read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from perdure.cli.output.formatting import count, stamp
from perdure.cli.output.screen import Cell, Column, Part, Screen, safe_json, shortened
from perdure.history.query import StateChange
from perdure.ledger.trace import Traced
from perdure.model.call import CallRecord
from perdure.model.event import AgentHandedOff
from perdure.model.message import view
from perdure.model.run import Cost, RunRecord
from perdure.model.ticket import Decision, Ticket
from perdure.projections.transcript import TranscriptEntry, Turn
from perdure.providers.contract import Loss
from perdure.store.plumbing.revisions import LogEntry
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = [
    "CommitShape",
    "MessageShape",
    "PathShape",
    "TurnShape",
    "CallRecordShape",
    "CostShape",
    "DecisionShape",
    "RunShape",
    "StopShape",
    "TicketShape",
    "in_json",
    "on_one_line",
    "place_name",
    "state",
    "turn_name",
    "way",
    "words_of_result",
    "LossShape",
    "StepLossShape",
    "losses_of",
    "show_losses",
    "step_losses",
]


class MessageShape(msgspec.Struct, frozen=True, kw_only=True):
    """One message: who said it, in which commit, and what."""

    id: str
    role: str
    text: str
    commit: str
    at: str
    run: str | None
    provider: str | None
    model: str | None
    message: dict[str, Any] | None  # None: forgotten
    forgotten: str | None  # why

    @classmethod
    def of(cls, entry: TranscriptEntry) -> MessageShape:
        """Return the message in the shape of --json."""
        return cls(
            id=entry.id,
            role=entry.role,
            text=entry.text,
            commit=entry.commit,
            at=stamp(entry.at),
            run=entry.run,
            provider=entry.provider,
            model=entry.model,
            message=view(entry.words) if entry.words else None,
            forgotten=entry.forgotten,
        )


class PathShape(msgspec.Struct, frozen=True, kw_only=True):
    """One path whose value changed: added, changed or removed."""

    path: str
    what: str

    @classmethod
    def of(cls, change: StateChange) -> PathShape:
        """Return the change in the shape of --json."""
        return cls(path=change.path, what=change.what)


class TurnShape(msgspec.Struct, frozen=True, kw_only=True):
    """One turn: the commits it lies between, what was said in it, and which paths it changed."""

    number: int  # of the message; a turn of another kind has that of the message before it
    before: str | None
    after: str
    reason: str
    at: str
    kind: str  # message, switch, hand-off, merge, pick, call, edit or resumed
    run: str | None
    status: str | None  # the state that its run ended in; null: it has not ended, or there was none
    why: str | None  # if the run did not simply succeed
    handed_off: str | None  # of a hand-off: from which agent to which, and why
    backend: str | None
    input: str
    text: str
    names: list[str]  # that other frameworks have for its commits
    messages: list[MessageShape]
    changed: list[PathShape]

    @classmethod
    def of(cls, turn: Turn, seen: View) -> TurnShape:
        """Return the turn as programs read it; `seen` is a view of its thread."""
        return cls(
            number=turn.number,
            before=turn.before,
            after=turn.after,
            reason=turn.reason,
            at=stamp(turn.at),
            kind=turn.kind,
            run=turn.run,
            status=turn.status,
            why=turn.why,
            handed_off=None if turn.handed is None else _handed(turn.handed),
            backend=turn.backend,
            input=turn.input,
            text=turn.text,
            names=list(turn.names),
            messages=[MessageShape.of(entry) for entry in turn.entries],
            changed=[PathShape.of(change) for change in seen.diff(turn.before, turn.after).state],
        )


class CommitShape(msgspec.Struct, frozen=True, kw_only=True):
    """One commit, with its events and the ops of its patch."""

    digest: str
    parents: list[str]
    root: str
    reason: str
    at: str
    depth: int
    turn: int  # the number of its message, or of the message before it; 0 before the first
    apart: bool  # it belongs to no message: an edit, a switch, a merge or a cherry-pick, by itself
    run: str | None
    parent_run: str | None
    run_meta: dict[str, str] | None
    author: str | None
    events: list[dict[str, Any]]
    ops: list[dict[str, Any]]

    @classmethod
    def of(cls, entry: LogEntry) -> CommitShape:
        """Return the commit in the shape of --json."""
        return cls(
            digest=entry.digest,
            parents=list(entry.parents),
            root=entry.root,
            reason=entry.reason,
            at=stamp(entry.at),
            depth=entry.depth,
            turn=entry.turn,
            apart=entry.is_apart,
            run=entry.run,
            parent_run=entry.parent_run,
            run_meta=None if entry.run_meta is None else msgspec.to_builtins(entry.run_meta),
            author=entry.author,
            events=[msgspec.to_builtins(event) for event in entry.events],
            ops=[msgspec.to_builtins(op) for op in entry.patch.ops],
        )


def _handed(event: AgentHandedOff) -> str:
    why = f": {event.why}" if event.why else ""
    return f"{event.from_agent} to {event.to_agent}{why}"


def turn_name(turn: TurnShape) -> str:
    """Return the name of a turn for people: only messages have numbers."""
    return f"turn {turn.number}" if turn.kind == "message" else turn.kind


def place_name(turn: int, *, is_apart: bool) -> str:
    """Return where a commit is for people, by the number of its message or of the message before it; empty: nowhere."""
    if not turn:
        return ""
    return f"after turn {turn}" if is_apart else f"in turn {turn}"


_LENGTH = 60
_STYLES = {
    "succeeded": "good",
    "resolved": "good",
    "failed": "bad",
    "unknown": "warn",
    "needs_human": "warn",
    "awaiting_approval": "warn",
    "waiting": "warn",
    "interrupted": "warn",
    "waiting, decided": "good",
    "started": "line",
    "running": "line",
}


class StopShape(msgspec.Struct, frozen=True, kw_only=True):
    """Why the last answer of a run, or the run itself, ended."""

    reason: str  # `completed`, `truncated`, `refused`, `limit` and so on
    word: str | None  # the backend's own word, or the name of the limit


class CostShape(msgspec.Struct, frozen=True, kw_only=True):
    """What steps of models cost, in US dollars."""

    usd: float  # of the steps whose price is known
    steps: int
    unpriced: int  # steps whose price is not known, which are not in `usd`

    @classmethod
    def of(cls, cost: Cost) -> CostShape:
        """Return the cost in the shape of --json."""
        return cls(usd=cost.usd, steps=cost.steps, unpriced=cost.unpriced)

    @property
    def cost(self) -> Cost:
        """The cost itself."""
        return Cost(usd=self.usd, steps=self.steps, unpriced=self.unpriced)


class RunShape(msgspec.Struct, frozen=True, kw_only=True):
    """One run: one activation of an agent, from input to finish."""

    thread: str
    id: str
    agent: str
    agent_version: str | None
    timeline: str
    state: str
    interrupted: bool  # it has not ended, and no process is at it: it can be resumed
    decided: bool  # it waits, and something that it waits for was decided: it can be resumed
    due: str | None  # when a worker begins it or looks at it; null: it needs no worker
    scheduled: bool  # it was queued for a later time
    set_aside: bool  # it ended its worker three times, and no worker takes it
    begun_at: str
    at: str  # of its last change
    backend: str | None  # that takes its steps, or took the last
    head_policy: str
    why: str | None
    kind: str | None  # of the error, where it failed
    stop: StopShape | None  # why it ended; null: it has not, failed, or was cancelled
    cancel: str | None  # why it was asked to stop; null: it was not
    cancelled_by: str | None  # who asked

    @classmethod
    def of(cls, thread: str, record: RunRecord, *, interrupted: bool, decided: bool) -> RunShape:
        """Return the run in the shape of --json."""
        return cls(
            thread=thread,
            id=record.id,
            agent=record.agent,
            agent_version=record.agent_version,
            timeline=record.timeline,
            state=record.state,
            interrupted=interrupted,
            decided=decided,
            due=None if record.due is None else stamp(record.due),
            scheduled=record.scheduled,
            set_aside=record.aside_at is not None,
            begun_at=stamp(record.begun_at),
            at=stamp(record.at),
            backend=record.backend,
            head_policy=record.head_policy,
            why=record.why,
            kind=record.kind,
            stop=StopShape(reason=record.stop.reason, word=record.stop.word) if record.stop else None,
            cancel=record.cancel,
            cancelled_by=record.cancelled_by,
        )

    @property
    def shown_state(self) -> str:
        """Return the state as people read it."""
        if self.set_aside:
            return "set aside"
        if self.interrupted:
            return "interrupted"
        if self.state == "created":
            return "scheduled" if self.scheduled else "queued"
        return "waiting, decided" if self.decided else self.state


class CallRecordShape(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call, as the ledger knows it."""

    thread: str
    id: str
    tool: str
    state: str
    effect: str
    idempotent: bool
    arguments: Any  # JSON, or text that is none; null: forgotten
    attempt: int  # how often it was started
    key: str | None
    timeline: str
    run: str | None
    backend: str | None
    origin: str | None  # null: a run; `call`: by hand; `import`: brought from elsewhere
    copied_from: str | None
    ticket: str | None  # the last approval that it waited for
    status: str | None  # of the result
    outcome: str | None  # what a person resolved it to
    result: str | None  # an artifact
    why: str | None
    at: str  # of its last change

    @classmethod
    def of(cls, thread: str, record: CallRecord, arguments: str | None) -> CallRecordShape:
        """Return the call in the shape of --json."""
        return cls(
            thread=thread,
            id=record.id,
            tool=record.tool,
            state=record.state,
            effect=record.effect,
            idempotent=record.idempotent,
            arguments=in_json(arguments),
            attempt=record.attempt,
            key=record.key,
            timeline=record.timeline,
            run=record.run,
            backend=record.backend,
            origin=record.origin,
            copied_from=record.copied_from,
            ticket=record.ticket,
            status=record.status,
            outcome=record.outcome,
            result=record.result,
            why=record.why,
            at=stamp(record.at),
        )


class DecisionShape(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided, by whom and why."""

    verdict: str
    at: str
    by: str | None
    why: str | None
    value: Any  # new arguments (edit) or the result (answer); else null

    @classmethod
    def of(cls, decision: Decision, value: str | None) -> DecisionShape:
        """Return the decision in the shape of --json."""
        return cls(
            verdict=decision.verdict,
            at=stamp(decision.at),
            by=decision.by,
            why=decision.why,
            value=in_json(value),
        )


class TicketShape(msgspec.Struct, frozen=True, kw_only=True):
    """One approval: what a call waits for, or waited for."""

    thread: str
    id: str
    call: str
    tool: str
    effect: str
    idempotent: bool
    arguments: Any  # that the question is about: JSON, or text that is none; null: forgotten
    action: str  # `approve`, `repeat` (the guard asks), or the tool's own word
    message: str
    timeline: str
    run: str | None
    asked_at: str
    age_seconds: int  # since it was asked
    expires_at: str | None  # null: it waits for ever
    on_timeout: str
    resume: str  # what a decision leads to: run the tool, use it as the result, or as the arguments
    parameters: Any
    response_schema: Any

    @classmethod
    def of(cls, thread: Thread, ticket: Ticket, *, at_now: int) -> TicketShape:
        """Return the ticket as programs read it, with the call that it is about."""
        traced = thread.trace(ticket.id, history=False)
        return cls(
            thread=thread.id,
            id=ticket.id,
            call=ticket.call,
            tool=ticket.tool,
            effect=traced.record.effect,
            idempotent=traced.record.idempotent,
            arguments=in_json(traced.asked),
            action=ticket.action,
            message=ticket.message,
            timeline=ticket.timeline,
            run=ticket.run,
            asked_at=stamp(ticket.asked_at),
            age_seconds=max(0, (at_now - ticket.asked_at) // 1_000_000),
            expires_at=None if ticket.expires_at is None else stamp(ticket.expires_at),
            on_timeout=ticket.on_timeout,
            resume=ticket.resume,
            parameters=in_json(ticket.parameters),
            response_schema=in_json(ticket.response_schema),
        )


def in_json(text: str | None) -> Any:
    """Return the value of JSON text; the text itself if it is no JSON, None for None."""
    if text is None:
        return None
    try:
        value = json.loads(text, parse_constant=_none_of_ours)
        safe_json(value, indent=None)  # what is nested too deeply to be printed stays text
    except (ValueError, RecursionError):
        return text
    return value


def _none_of_ours(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def state(name: str) -> Cell:
    """Return a state of a run or a call, in its colour."""
    return name, _STYLES.get(name, "quiet")


def on_one_line(value: object) -> str:
    """Return a JSON value, short, for a table."""
    return shortened(value if isinstance(value, str) else safe_json(value, indent=None), _LENGTH)


def words_of_result(traced: Traced) -> str | None:
    """Return the result as the model gets it, as text; None: there is none yet."""
    if traced.result is None:
        return None
    return "\n".join(_block(block) for block in msgspec.to_builtins(traced.result.content))


def _block(block: dict[str, Any]) -> str:
    return str(block["text"]) if "text" in block else json.dumps(block, ensure_ascii=False)


def way(states: Sequence[str]) -> Iterator[Part]:
    """Return the states of a call, one after another."""
    for at, each in enumerate(states):
        yield (" → " if at else "", "quiet")
        yield state(each)


_COLUMNS = (
    Column("loss"),
    Column("where", "name", gives_way=True),
    Column("what", gives_way=True),
    Column("why", "quiet", gives_way=True),
)


class LossShape(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was converted, repaired or dropped: where in the conversation, what, and why."""

    kind: str
    where: str
    what: str
    why: str


class StepLossShape(LossShape, frozen=True, kw_only=True):
    """One thing of that kind in a step of a run; `message` is what the model said in the step."""

    message: str


def step_losses(message: str, losses: Iterable[Loss]) -> list[StepLossShape]:
    """Return the losses of the step that said a message, in the shape of --json."""
    return [
        StepLossShape(kind=each.kind, where=each.where, what=each.what, why=each.why, message=message)
        for each in losses
    ]


def losses_of(losses: Iterable[Loss]) -> list[LossShape]:
    """Return the losses in the shape of --json."""
    return [LossShape(kind=each.kind, where=each.where, what=each.what, why=each.why) for each in losses]


def show_losses(screen: Screen, losses: Sequence[LossShape]) -> None:
    """Print how many there are, and a table of them."""
    if not losses:
        screen.say(("✓ ", "good"), "nothing is lost")
        return
    screen.say(("! ", "warn"), f"{count(len(losses), 'thing')} could not be carried over unchanged:")
    screen.table(_COLUMNS, [(each.kind, each.where, each.what, each.why) for each in losses], indent=2)
