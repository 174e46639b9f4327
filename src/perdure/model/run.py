"""Runs: one activation of an agent on a thread, and the states that it goes through.

    created → running ⇄ waiting → succeeded | failed | cancelled | stopped
              failed → running, where its input is given again

A waiting run holds no lease: somebody has to decide something first.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from perdure.errors import Conflict
from perdure.model.digest import Digest

__all__ = [
    "ENDED",
    "REASONS",
    "RUN_STATES",
    "RUN_TRANSITIONS",
    "STOP_KINDS",
    "HeadPolicy",
    "OnFailure",
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
]

REASONS = (
    "user_message",
    "tool_results_committed",
    "assistant_turn_committed",
    "backend_switched",  # a run's route, or a switch by hand
    "run_finished",
)  # of a run's commits

RUN_STATES: tuple[RunState, ...] = get_args(RunState)
STOP_KINDS: tuple[StopKind, ...] = get_args(StopKind)

RUN_TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    "created": frozenset({"running"}),
    "running": frozenset({"running", "waiting", "succeeded", "failed", "cancelled", "stopped"}),
    "waiting": frozenset({"running", "failed", "cancelled"}),
    "succeeded": frozenset(),
    "failed": frozenset({"running"}),  # its input was given again
    "cancelled": frozenset(),
    "stopped": frozenset(),
}

ENDED: frozenset[RunState] = frozenset({"succeeded", "failed", "cancelled", "stopped"})


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What inference took, in tokens; 0 where the backend does not say."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0  # of the input, those that were read from a cache
    reasoning_tokens: int = 0  # of the output

    def __bool__(self) -> bool:
        """True if anything is known to have been taken."""
        return self != _NOTHING

    def __add__(self, other: Usage) -> Usage:
        """Both together."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


_NOTHING = Usage()


class StopReason(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why the last answer of a run, or the run itself, ended."""

    reason: StopKind
    word: str | None = None  # the backend's own word, or the name of the limit; None: it gave none

    def __str__(self) -> str:
        """Both words: `truncated (max_tokens)`."""
        return self.reason if self.word is None else f"{self.reason} ({self.word})"


class PendingResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that a backend is still working on, and the id by which it is fetched."""

    backend: str
    id: str
    step: int  # how many steps the run had taken when it asked; with more, the answer has arrived


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one run."""

    id: str
    agent: str
    timeline: str  # whose head it is to move
    state: RunState
    at: int  # µs since 1970, UTC, of its last change
    begun_at: int
    line: str | None = None  # its own timeline, under the head policy `on_success`
    input: tuple[str, ...] = ()  # the ids of its inbound messages
    before: Digest | None = None  # the commit that it began from
    head_policy: HeadPolicy = "each_step"
    on_failure: OnFailure = "restore"
    backend: str | None = None  # that takes its steps, or took the last; its first is in `run.started`
    server: str | None = None  # that the backend's requests go to; None: a model of the program's own
    agent_version: str | None = None  # as it was declared, or the digest of the definition that is kept
    parent_run: str | None = None
    continues: str | None = None  # the run of another line whose open calls it takes up here
    why: str | None = None  # in words, where it did not simply succeed
    kind: str | None = None  # of the error, where it failed
    stop: StopReason | None = None  # why it ended; None: it has not ended, failed, or was cancelled
    pending: PendingResponse | None = None  # the answer that it waits for
    cancel: str | None = None  # somebody asked it to stop, and why
    cancelled_by: str | None = None  # who asked it to stop, where they gave their name
    after: Digest | None = None  # its last commit, while it waits
    steered: int = 0  # how many messages were queued for it
    waited: int = 0  # how often it was marked as waiting, or that was taken back


def check_run_step(record: RunRecord, to: RunState) -> None:
    """Raise `Conflict` if a run in that state cannot go on to `to`."""
    if to not in RUN_TRANSITIONS[record.state]:
        cannot = "already" if to == record.state else f"and cannot become {to}"
        raise Conflict(f"run '{record.id}' is {record.state} {cannot}; nothing was written.")
