"""Tool calls as the ledger knows them: their states, as data, and the record of one call.

    proposed → (awaiting_approval → approved | denied | expired | cancelled) → requested → started
             → succeeded | failed | unknown → (reconcile) → succeeded | requested | needs_human → resolved

A call moves only along `TRANSITIONS`; one write may take it over several states at once, and
then it passes through each of them.  What is settled stays settled.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from perdure.model.digest import Digest
from perdure.model.effect import Effect, Reach

__all__ = [
    "OPEN",
    "SETTLED",
    "STATES",
    "TRANSITIONS",
    "UNCLEAR",
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

TRANSITIONS: dict[CallState | None, frozenset[CallState]] = {
    None: frozenset({"proposed"}),
    "proposed": frozenset({"awaiting_approval", "requested", "denied", "failed", "cancelled"}),
    "awaiting_approval": frozenset({"approved", "denied", "expired", "cancelled"}),
    # Answered: the decision is the result.  Asked again: the arguments are not those that were approved.
    "approved": frozenset({"requested", "succeeded", "awaiting_approval", "failed", "cancelled"}),
    # Succeeded: an equal key had a result already.  Asked again: the guard found a call that started meanwhile.
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
UNCLEAR: frozenset[CallState] = frozenset({"unknown", "needs_human"})  # nobody knows what became of it
OPEN: frozenset[CallState] = frozenset(STATES) - SETTLED - UNCLEAR


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one call."""

    id: str
    tool: str
    state: CallState
    args: Digest  # a body: the arguments, as JSON text exactly as they came
    args_size: int
    at: int  # µs since 1970, UTC, of its last change
    fingerprint: str = ""  # of tool, version and arguments; empty: they were refused, or came from elsewhere
    first_fingerprint: str | None = None  # of the arguments as they came, where somebody has changed them
    effect: Effect = "external_write"
    idempotent: bool = False
    version: str | None = None  # the tool's
    key: str | None = None  # made once, and handed to the tool at every attempt
    key_scope: Literal["thread", "store"] = "thread"
    key_until: int | None = (
        None  # µs on `key_clock`, counted from its first start; None: it has no end, or none yet
    )
    key_clock: str | None = (
        None  # the engine's name for that clock; None with an end: nobody can tell its age
    )
    timeline: str = "main"
    run: str | None = None
    label: str | None = (
        None  # what names the commit that requested it: a message, or the run of a call by hand
    )
    # What names the commit that holds its result: a message.  None: not known.  Empty: no history says what it came to.
    result_label: str | None = None
    backend: str | None = None  # provider:model that asked for it
    vendor_id: str | None = None  # what the vendor called it; metadata, no decision depends on it
    origin: str | None = None  # None: a run; `call`: by hand; `import`: brought from elsewhere
    copied_from: str | None = None  # the call whose ticket was decided on another line
    attempt: int = 0  # how often it was started
    epoch: int = 0  # of the lease under which it was last started; 0: by hand
    holder: str | None = None  # whose process last started it
    ticket: str | None = None  # the last one
    approved: Digest | None = None  # the arguments that somebody approved, by their body
    approved_fingerprint: str | None = None
    result: str | None = None  # artifact://sha256/<digest> of what the tool gave back
    preview: Digest | None = (
        None  # a body: what the model is shown, a ToolResult; None: it is in `result_label`
    )
    status: Status | None = None  # of the result
    outcome: Literal["done", "not_done"] | None = None  # what a person resolved it to
    patch: Digest | None = None  # a body: what it changes in the thread's state, when its round is committed
    patch_base: Digest | None = None  # the root of the state that the call saw when it made `patch`
    agent_patch: Digest | None = None  # a body: the same in the agent's own map
    memory: Digest | None = None  # a body: what it did to its owner's memory, a Remembering
    why: str | None = None  # in words, where it did not simply succeed
    late: bool = False  # the result came from a holder that had lost its lease
    evidence: str | None = (
        None  # artifact://sha256/<digest> of a result that came when it was settled already
    )

    @property
    def reach(self) -> Reach:
        """How far it reaches."""
        return Reach(self.effect, self.idempotent)
