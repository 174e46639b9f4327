"""Defines runs: one activation of an agent on a thread, its states and its record.

    created → running ⇄ waiting → succeeded | failed | cancelled | stopped
              failed → running, if its input is given again
              failed → created, if its input is queued again
    created → cancelled | failed, if it never began, or cannot be retried

A created run is queued or scheduled: its input waits for a worker.  A waiting run holds no lease: it waits for a
decision, for a time or for a backend.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from perdure.errors import Conflict
from perdure.model.canonical import prepare
from perdure.model.digest import Digest
from perdure.model.effect import Effect

__all__ = [
    "CALLER_CANCELLED",
    "ENDED",
    "IMPORT",
    "LEASE",
    "QUEUE",
    "QUEUES",
    "REASONS",
    "RUN",
    "RUN_STATES",
    "RUN_TRANSITIONS",
    "STOP_KINDS",
    "Cost",
    "HeadPolicy",
    "OnFailure",
    "ParentCall",
    "PendingResponse",
    "RunRecord",
    "RunState",
    "StopKind",
    "StopReason",
    "Usage",
    "check_run_step",
]

RunState: TypeAlias = Literal["created", "running", "waiting", "succeeded", "failed", "cancelled", "stopped"]
HeadPolicy: TypeAlias = Literal["each_step", "on_success"]
OnFailure: TypeAlias = Literal["restore", "keep"]
StopKind: TypeAlias = Literal[
    "completed",  # the model ended its turn
    "tool_calls",  # it asked for tools
    "paused",  # the backend paused the turn; sending it back as it is continues it
    "pending",  # the backend is still working on the answer
    "truncated",  # a limit of tokens or of the context cut the answer off
    "refused",  # the model or a filter of the backend withheld the answer
    "malformed",  # the model wrote something that the backend could not use
    "failed",  # the backend failed in the middle of the answer
    "cancelled",  # the answer was cancelled at the backend
    "unknown",  # the backend's word is not known, so the answer may not be complete
    "limit",  # a stop policy of the agent ended the run
    "guard",  # a guard of the agent refused the input or the answer
]

REASONS = (
    "user_message",
    "tool_results_committed",
    "assistant_turn_committed",
    "backend_switched",  # by a run's route, or by switch()
    "run_finished",
)  # of a run's commits

RUN = "run/"  # cells of runs, by id
IMPORT = "import:"  # commits of an import have a label in the place of a run's id, which begins so
QUEUE = "queue/"  # cells of inputs whose runs have not begun, by timeline and time
QUEUES = "queues"  # the cell whose revision counts the inputs that were queued in a thread; its value is the last place
LEASE = "lease/"  # cells, by timeline: who may write there; every run and every switch has changed one

RUN_STATES: tuple[RunState, ...] = get_args(RunState)
STOP_KINDS: tuple[StopKind, ...] = get_args(StopKind)

RUN_TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    "created": frozenset({"running", "failed", "cancelled"}),
    "running": frozenset({"running", "waiting", "succeeded", "failed", "cancelled", "stopped"}),
    "waiting": frozenset({"running", "failed", "cancelled"}),
    "succeeded": frozenset(),
    "failed": frozenset({"running", "created"}),  # its input was given again, or queued again
    "cancelled": frozenset(),
    "stopped": frozenset(),
}

# The kind of a run that failed because the task that awaited it was cancelled.
CALLER_CANCELLED = "CancelledError"

ENDED: frozenset[RunState] = frozenset({"succeeded", "failed", "cancelled", "stopped"})


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens that inference used; 0 if the backend does not report them.

    The numbers mean the same for every vendor: `input_tokens` is everything that the model read, with what came from a
    cache or went to one, and `output_tokens` everything that it wrote, with its reasoning.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0  # of the input, those that were read from a cache
    reasoning_tokens: int = 0  # of the output
    cache_write_tokens: int = 0  # of the input, those that were written to a cache

    def __bool__(self) -> bool:
        """True if any tokens are reported."""
        return self != _NOTHING

    def __add__(self, other: Usage) -> Usage:
        """Return the sum."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )


_NOTHING = Usage()


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What steps of models cost, in US dollars, as far as it is known."""

    usd: float = 0.0  # of the steps whose price is known
    steps: int = 0
    unpriced: int = 0  # steps whose price, or whose number of tokens, is not known: they are not in `usd`

    @classmethod
    def of(cls, usd: float | None) -> Cost:
        """Return the cost of one step; None: it is not known."""
        return cls(steps=1, unpriced=1) if usd is None else cls(usd=usd, steps=1)

    def __add__(self, other: Cost) -> Cost:
        """Return the sum."""
        return Cost(
            usd=self.usd + other.usd, steps=self.steps + other.steps, unpriced=self.unpriced + other.unpriced
        )

    def __str__(self) -> str:
        """Return the sum for people; a sum that leaves steps out says so."""
        if self.unpriced == self.steps:
            return "unknown" if self.steps else "$0"
        known = f"${self.usd:.4f}" if self.usd < 1 else f"${self.usd:,.2f}"
        left = f"{self.unpriced} step{'' if self.unpriced == 1 else 's'} of unknown price"
        return f"{known} and {left}" if self.unpriced else known


class StopReason(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why the last answer of a run, or the run itself, ended."""

    reason: StopKind
    word: str | None = None  # the backend's own word, or the name of the limit; None: it gave none

    def __str__(self) -> str:
        """Return both words: `truncated (max_tokens)`."""
        return self.reason if self.word is None else f"{self.reason} ({self.word})"


class PendingResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that a backend is still working on, and the id by which it is fetched."""

    backend: str
    id: str
    step: int  # steps of the run when it asked; with more steps the answer has arrived


class ParentCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The call whose tool started a child run, and the root of the tree of runs that both belong to.

    The root is the first run that is no child.  The repeat guard of its thread also checks the calls of its children.
    """

    space: str  # of the parent's thread
    thread: str  # the id of that thread
    call: str
    root_space: str
    root_thread: str
    root_timeline: str
    root_call: str  # the call of the root run that this child, or its parents, were started by
    root_agent: str | None = None  # of the root run, whose worker carries the child on; None: not recorded
    depth: int = 1  # 1: a child of the root
    effect_max: Effect | None = None  # of the parent's timeline; None: any effect
    tokens_left: int | None = None  # of the runs above, when the child began; None: not limited
    cost_left: float | None = None  # in US dollars; None: not limited


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of one run."""

    id: str
    agent: str
    timeline: str  # the timeline whose head it moves
    state: RunState
    at: int  # µs since 1970, UTC, of its last change
    begun_at: int
    line: str | None = None  # its own timeline, under the head policy `on_success`
    input: tuple[str, ...] = ()  # the ids of its inbound messages
    before: Digest | None = None  # the commit that it began from
    head_policy: HeadPolicy = "each_step"
    on_failure: OnFailure = "restore"
    backend: str | None = None  # of its last or next step; the first one is in `run.started`
    server: str | None = None  # where the requests go; None: a model object of the program
    agent_version: str | None = None  # as it was declared, or the digest of the stored definition
    parent_run: str | None = None
    parent: ParentCall | None = None  # the call that it is a child of; None: `call.run` did not start it
    continues: str | None = None  # the run of another timeline whose open calls it continues
    why: str | None = None  # a sentence, if it did not simply succeed
    kind: str | None = None  # of the error, if it failed
    stop: StopReason | None = None  # why it ended; None: it has not ended, failed, or was cancelled
    pending: PendingResponse | None = None  # the answer that it waits for
    cancel: str | None = None  # why it was asked to stop; None: it was not
    cancelled_by: str | None = None  # the name of the person who asked it to stop, if given
    after: Digest | None = None  # its last commit, while it waits
    effect_max: Effect | None = None  # of its calls; None: as far as its timeline allows
    steered: int = 0  # how many messages were queued for it
    waited: int = 0  # how many times it began or stopped waiting
    due: int | None = (
        None  # µs since 1970, UTC, on the store's clock, when a worker has to look at it; None: never
    )
    dues: int = 0  # how many times it got such a time
    thread: str | None = None  # the thread's id, of a run that was queued: its thread may have no commit yet
    scheduled: bool = False  # it was queued for a later time; an undo of the turn that did so cancels it
    again: bool = False  # it is queued after it had failed: a worker retries it
    decided: bool = False  # a call was decided while the run had not released its timeline
    deaths: int = 0  # how many processes ended one after another while they ran it and it made no progress
    died_at: str | None = None  # how far it was when the last of them ended
    aside_at: int | None = None  # µs since 1970, UTC, when workers stopped taking it; None: they take it


def check_run_step(record: RunRecord, to: RunState) -> None:
    """Raise `Conflict` if a run in that state cannot change to `to`."""
    if to not in RUN_TRANSITIONS[record.state]:
        cannot = "already" if to == record.state else f"and cannot become {to}"
        raise Conflict(
            f"run '{record.id}' is {record.state} {cannot}; nothing was written.",
            code="run_state_conflict",
            run=record.id,
            state=record.state,
        )


prepare(RunRecord, Usage)
