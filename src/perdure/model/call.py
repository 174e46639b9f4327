"""Defines tool calls as the ledger records them: their states as data, and the record of one call.

    proposed → (awaiting_approval → approved | denied | expired | cancelled) → requested → started
             → succeeded | failed | unknown → (reconcile) → succeeded | requested | needs_human → resolved

A call moves only along `TRANSITIONS`; one write may move it over several states, and then it
passes through each of them.  A settled call stays settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

import msgspec

from perdure.model.canonical import prepare
from perdure.model.digest import Digest
from perdure.model.effect import Effect, Reach

__all__ = [
    "OPEN",
    "SETTLED",
    "STATES",
    "TRANSITIONS",
    "TWIN",
    "UNCLEAR",
    "CallCounts",
    "CallRecord",
    "CallState",
    "Status",
]

CallState: TypeAlias = Literal[
    "proposed",
    "awaiting_approval",
    "approved",
    "denied",
    "expired",
    "cancelled",
    "requested",
    "started",
    "succeeded",
    "failed",
    "unknown",
    "needs_human",
    "resolved",
]

Status: TypeAlias = Literal["success", "error"]

STATES: tuple[CallState, ...] = get_args(CallState)

TWIN = "twin/"  # cells: the gate of a fingerprint, and below it the calls that were started, by number

TRANSITIONS: dict[CallState | None, frozenset[CallState]] = {
    None: frozenset({"proposed"}),
    "proposed": frozenset({"awaiting_approval", "requested", "denied", "failed", "cancelled"}),
    "awaiting_approval": frozenset({"approved", "denied", "expired", "cancelled"}),
    # Answered: the decision is the result.  Asked again: the arguments are not those that were approved.
    "approved": frozenset({"requested", "succeeded", "awaiting_approval", "failed", "cancelled"}),
    # Succeeded: an equal key had a result already.  Asked again: the guard found a call that had started.
    "requested": frozenset({"started", "succeeded", "awaiting_approval", "denied", "failed", "cancelled"}),
    # Asked: the tool itself suspended the call, having done nothing.
    "started": frozenset({"started", "succeeded", "failed", "unknown", "awaiting_approval"}),
    "unknown": frozenset({"succeeded", "requested", "needs_human", "resolved"}),
    "needs_human": frozenset({"succeeded", "requested", "resolved"}),
    "denied": frozenset(),
    "expired": frozenset(),
    "cancelled": frozenset(),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "resolved": frozenset(),
}

SETTLED: frozenset[CallState] = frozenset(state for state in STATES if not TRANSITIONS[state])
UNCLEAR: frozenset[CallState] = frozenset({"unknown", "needs_human"})  # the outcome is unknown
OPEN: frozenset[CallState] = frozenset(STATES) - SETTLED - UNCLEAR


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of one call."""

    id: str
    tool: str
    state: CallState
    args: Digest  # a body: the arguments, as JSON text exactly as the model wrote them
    args_size: int
    at: int  # µs since 1970, UTC, of its last change
    fingerprint: str = ""  # of tool, version and arguments; empty: they were refused, or imported
    first_fingerprint: str | None = None  # of the original arguments, if a person has changed them
    effect: Effect = "external_write"
    idempotent: bool = False
    version: str | None = None  # the tool's
    key: str | None = None  # made once, and given to the tool at every attempt
    key_scope: Literal["thread", "store"] = "thread"
    key_until: int | None = None  # µs on `key_clock`, counted from its first start; None: no end, or none yet
    key_clock: str | None = None  # the engine's name for that clock; None with an end: its age is unknown
    timeline: str = "main"
    run: str | None = None
    label: str | None = None  # names the commit that requested it: a message, or the run of a direct call
    # Names the commit that holds its result: a message.  None: unknown.  Empty: its result is in no history.
    result_label: str | None = None
    backend: str | None = None  # provider:model that requested it
    vendor_id: str | None = None  # the vendor's id; metadata, no decision depends on it
    origin: str | None = (
        None  # None: a run; `call`: a direct call; `import`: imported; `child`: a child run's
    )
    parent_call: str | None = None  # of a child run's call: the call of this thread whose tool ran the child
    child_space: str | None = (
        None  # of a child run's call: the space of its own thread, which decides its state
    )
    copied_from: str | None = None  # the call whose ticket was decided on another timeline
    attempt: int = 0  # how many times it was started
    epoch: int = 0  # of the lease under which it was last started; 0: a direct call
    holder: str | None = None  # the process that last started it
    ticket: str | None = None  # the last one
    approved: Digest | None = None  # a body: the arguments that were approved
    approved_fingerprint: str | None = None
    result: str | None = None  # artifact://sha256/<digest> of the tool's result
    preview: Digest | None = None  # a body: the ToolResult for the prompt; None: it is in `result_label`
    status: Status | None = None  # of the result
    outcome: Literal["done", "not_done"] | None = None  # what a person resolved it to
    patch: Digest | None = (
        None  # a body: its change of the thread's state, applied when its round is committed
    )
    patch_base: Digest | None = None  # the root of the state that `patch` was based on
    agent_patch: Digest | None = None  # a body: the same in the agent's own map
    memory: Digest | None = None  # a body: its change of the owner's memory, a Remembering
    why: str | None = None  # a sentence, if it did not simply succeed
    late: bool = False  # the result is from a holder that had lost its lease
    evidence: str | None = None  # artifact://sha256/<digest> of a result that arrived after it was settled

    @property
    def reach(self) -> Reach:
        """Its effect, and whether it is idempotent."""
        return Reach(self.effect, self.idempotent)


prepare(CallRecord)


class CallCounts(NamedTuple):
    """How the calls of a run ended, under the names that its result has for it."""

    calls: int
    failed_calls: tuple[str, ...]
    unclear_calls: tuple[str, ...]

    @classmethod
    def of(cls, settled: Mapping[str, str]) -> CallCounts:
        """Count calls by the states that they ended in."""
        failed = tuple([call for call, state in settled.items() if state == "failed"])
        unclear = tuple([call for call, state in settled.items() if state in UNCLEAR])
        return cls(len(settled), failed, unclear)
