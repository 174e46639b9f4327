"""Checkpoints: what a backend that comes new to a conversation has to know of it.

A checkpoint is derived from one commit and from the ledger up to the position that the commit
read, and from nothing else: deriving it again gives the same bytes.  Every claim names where it
comes from.  A model's own summary may stand beside it, labelled; nothing depends on that.
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
    """Where the work stands, in sentences."""

    user_goal: str = ""
    current_task: str = ""
    decisions: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Where one sentence of a summary comes from."""

    part: Part
    index: int = 0  # which of the part's sentences
    event: str | None = None  # the message or event that says so
    path: str | None = None  # or the state path
    rule: str  # by which rule it was found; `model` where a model claims it


class Done(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One tool call before the checkpoint: what was done, never to be replayed."""

    call: str
    tool: str
    args: str  # JSON text, cut with an ellipsis where it is long
    effect: Effect
    idempotent: bool = False
    state: str  # as the ledger knew it
    outcome: Literal["done", "not_done"] | None = None  # where somebody found out more than the state says
    result_ref: str | None = None  # artifact://sha256/…
    idempotency_key: str | None = None
    backend: str | None = None  # that asked for it
    elsewhere: bool = False  # on another line of this thread, or undone since: done all the same

    @property
    def is_written(self) -> bool:
        """True if the world may have been changed by it, so that it must not be repeated."""
        happened = self.outcome == "done" or (
            self.outcome is None and self.state not in NOTHING_HAPPENED | NOT_YET
        )
        return Reach(self.effect, self.idempotent).guarded and happened


class Many(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """External writes of one tool that came to the same, further back than the calls that are listed."""

    tool: str  # empty: of several, which are too many to be told apart
    count: int
    calls: tuple[
        Done, ...
    ]  # of these the first ones and the last; those that are not settled, as a rule, all

    @property
    def is_written(self) -> bool:
        """True if the world may have been changed by them; of those that are not told apart nobody can say."""
        return not self.tool or any(each.is_written for each in self.calls)


class Pending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An approval that somebody still has to give."""

    ticket: str
    call: str
    tool: str
    message: str = ""
    args: str = ""  # JSON text, cut with an ellipsis where it is long


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A model's summary: checked, labelled, and never trusted alone."""

    by: str  # provider:model
    summary: Summary
    claims: tuple[Claim, ...] = ()


class Validation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What came of checking it."""

    ok: bool = True
    notes: tuple[str, ...] = ()  # what was dropped, and why


# One object each: the encoder leaves a default out only where it is this very one.
NO_SUMMARY = Summary()
NO_VALIDATION = Validation()


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A StateCheckpoint."""

    conversation: str  # the thread's id
    timeline: str = MAIN  # of the thread: what was decided on another does not count on this one
    from_backend: str | None = None
    to_backend: str | None = None
    summary: Summary = NO_SUMMARY
    active_goals: tuple[str, ...] = ()
    active_artifacts: tuple[str, ...] = ()  # artifact://…
    relevant_memory_refs: tuple[str, ...] = ()  # mem://…
    commit: Digest | None = None  # that it was derived from; None: before the first
    ledger: LedgerRead = NO_LEDGER
    extractor: str = ""  # version of the rules
    claims: tuple[Claim, ...] = ()
    calls: tuple[Done, ...] = ()  # the last ones, oldest first
    calls_before: int = 0  # how many more the entries of the ledger are about that were read
    entries_before: int = 0  # entries of the ledger before those that were not looked at: by older rules
    earlier: tuple[Many, ...] = ()  # the external writes before those that are listed, none left out
    earlier_others: int = 0  # and how many other calls there are
    pending_approvals: tuple[Pending, ...] = ()
    told: Told | None = None
    validation: Validation = NO_VALIDATION


# States of calls that changed nothing outside: for good, and so far.
NOTHING_HAPPENED = frozenset({"failed", "denied", "expired", "cancelled"})
NOT_YET = frozenset({"proposed", "awaiting_approval"})

_checkpoints = msgspec.json.Decoder(Checkpoint)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the checkpoint's canonical bytes; what says nothing is left out, however it was made."""
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
