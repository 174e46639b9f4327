"""Defines checkpoints: what a backend that takes over a conversation has to know of it.

A checkpoint is derived from one commit and from the ledger up to the position that the commit
read, and from nothing else: deriving it again gives the same bytes.  Every claim names its
source.  A model's own summary may be added, labelled; nothing depends on it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from perdure.model import canonical
from perdure.model.commit import NO_LEDGER, LedgerRead
from perdure.model.digest import Digest
from perdure.model.effect import Effect, Reach
from perdure.model.head import MAIN

__all__ = [
    "NO_SUMMARY",
    "NO_VALIDATION",
    "Checkpoint",
    "Claim",
    "Done",
    "Many",
    "Part",
    "Pending",
    "Summary",
    "Told",
    "Validation",
    "decode_checkpoint",
    "encode_checkpoint",
]

Part: TypeAlias = Literal["user_goal", "current_task", "decision", "open_question", "active_goal"]


class Summary(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """The state of the work, in sentences."""

    user_goal: str = ""
    current_task: str = ""
    decisions: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The source of one sentence of a summary."""

    part: Part
    index: int = 0  # which of the part's sentences
    event: str | None = None  # the message or event that says so
    path: str | None = None  # or the state path
    rule: str  # the rule that found it; `model` if a model claims it


class Done(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One tool call before the checkpoint; it must never be replayed."""

    call: str
    tool: str
    args: str  # JSON text, cut with an ellipsis if it is long
    effect: Effect
    idempotent: bool = False
    state: str  # as the ledger recorded it
    outcome: Literal["done", "not_done"] | None = None  # if a person resolved it
    result_ref: str | None = None  # artifact://sha256/…
    idempotency_key: str | None = None
    backend: str | None = None  # that requested it
    elsewhere: bool = False  # on another timeline of this thread, or undone since; it still happened

    @property
    def is_written(self) -> bool:
        """True if it may have changed something outside, so that it must not be repeated."""
        happened = self.outcome == "done" or (
            self.outcome is None and self.state not in NOTHING_HAPPENED | NOT_YET
        )
        return Reach(self.effect, self.idempotent).guarded and happened


class Many(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Earlier external writes of one tool with the same outcome, older than the listed calls."""

    tool: str  # empty: several tools, too many to list
    count: int
    calls: tuple[Done, ...]  # the first ones and the last; usually all that are not settled

    @property
    def is_written(self) -> bool:
        """True if they may have changed something outside; calls of several tools always count."""
        return not self.tool or any(each.is_written for each in self.calls)


class Pending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An approval that is still to be decided."""

    ticket: str
    call: str
    tool: str
    message: str = ""
    args: str = ""  # JSON text, cut with an ellipsis if it is long


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A model's summary: checked, labelled, and never trusted alone."""

    by: str  # provider:model
    summary: Summary
    claims: tuple[Claim, ...] = ()


class Validation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The result of checking the checkpoint."""

    ok: bool = True
    notes: tuple[str, ...] = ()  # what was dropped, and why


# One object each: the encoder leaves a default out only where it is this very one.
NO_SUMMARY = Summary()
NO_VALIDATION = Validation()


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A StateCheckpoint."""

    conversation: str  # the thread's id
    timeline: str = MAIN  # of the thread: decisions on other timelines do not count
    from_backend: str | None = None
    to_backend: str | None = None
    summary: Summary = NO_SUMMARY
    active_goals: tuple[str, ...] = ()
    active_artifacts: tuple[str, ...] = ()  # artifact://…
    relevant_memory_refs: tuple[str, ...] = ()  # mem://…
    commit: Digest | None = None  # the source of the checkpoint; None: before the first
    ledger: LedgerRead = NO_LEDGER
    extractor: str = ""  # version of the rules
    claims: tuple[Claim, ...] = ()
    calls: tuple[Done, ...] = ()  # the last ones, oldest first
    calls_before: int = 0  # how many more calls the entries that were read are about
    entries_before: int = 0  # entries of the ledger before those, which were not read: by older rules
    earlier: tuple[Many, ...] = ()  # all external writes before the listed calls
    earlier_others: int = 0  # the number of other calls before the listed ones
    pending_approvals: tuple[Pending, ...] = ()
    told: Told | None = None
    validation: Validation = NO_VALIDATION


# States of calls that changed nothing outside: for good, and so far.
NOTHING_HAPPENED = frozenset({"failed", "denied", "expired", "cancelled"})
NOT_YET = frozenset({"proposed", "awaiting_approval"})

_checkpoints = msgspec.json.Decoder(Checkpoint)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the checkpoint's canonical bytes; empty parts are left out, however they were made."""
    return canonical.encode_struct(
        msgspec.structs.replace(
            checkpoint,
            summary=NO_SUMMARY if checkpoint.summary == NO_SUMMARY else checkpoint.summary,
            ledger=NO_LEDGER if checkpoint.ledger == NO_LEDGER else checkpoint.ledger,
            validation=NO_VALIDATION if checkpoint.validation == NO_VALIDATION else checkpoint.validation,
        )
    )


def decode_checkpoint(body: bytes) -> Checkpoint:
    """Return the checkpoint that `body` holds; raises `Corrupt` if it is not one."""
    return canonical.decode_struct(_checkpoints, body, "checkpoint")
