"""Defines tickets: what a suspended call waits for, and what was decided.

A ticket holds the question, its deadline, and what happens at the deadline without a decision.
The first decision is final.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from perdure.model.canonical import prepare
from perdure.model.digest import Digest

__all__ = ["DECISIONS", "TIMER", "Decision", "OnTimeout", "Repeat", "Resume", "Ticket", "Verdict"]

Verdict: TypeAlias = Literal["approve", "deny", "edit", "answer", "expire", "cancel"]
Resume: TypeAlias = Literal["run", "result", "arguments"]
OnTimeout: TypeAlias = Literal["expire", "deny", "approve"]
# What is known of the earlier call that a question about a repeat names.
Repeat: TypeAlias = Literal["possible", "done", "not_done", "failed", "denied"]

CHILD_RUN = "child_run"  # the action of a ticket that no person decides: its call waits for child runs

DECISIONS: tuple[Verdict, ...] = get_args(Verdict)[
    :4
]  # what a person can decide; the others happen without one


TIMER = "timer"  # the action of a ticket that asks no person and waits for its time


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A decision: what, by whom and why."""

    verdict: Verdict
    at: int  # µs since 1970, UTC
    by: str | None = None
    why: str | None = None
    value: Digest | None = None  # a body: JSON text of the new arguments (edit) or of the result (answer)
    value_size: int = 0
    op_id: str | None = None  # of the request that made it; the request sent again decides nothing else


class Ticket(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question that a call waits for an answer to."""

    id: str
    call: str
    tool: str
    args: Digest  # a body: the arguments that the question is about
    fingerprint: str
    timeline: str
    asked_at: int  # µs since 1970, UTC
    action: str = "approve"  # `approve`, `repeat` (from the repeat guard), `timer`, or the tool's own word
    message: str = ""
    run: str | None = None
    label: str | None = None  # the label of the commit that holds the call
    parameters: str | None = None  # JSON text for the program that shows the question
    response_schema: str | None = None  # JSON text: the schema of an answer
    arguments_schema: str | None = None  # JSON text: the schema of the tool's arguments; None: unknown
    expires_at: int | None = None  # µs since 1970, UTC; None: no deadline
    on_timeout: OnTimeout = "expire"
    resume: Resume = "run"  # after a decision: run the tool, or use the value as result or as arguments
    decision: Decision | None = None  # None: it is open
    follows: str | None = None  # the question that the same call waited for before; None: it is the first

    @property
    def is_timer(self) -> bool:
        """True if the call waits for a time and not for a person."""
        return self.action == TIMER


class ChildRef(msgspec.Struct, frozen=True, kw_only=True):
    """A child run, and the thread that it is on."""

    space: str
    thread: str
    run: str


class AwaitedChildren(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parameters of a ticket whose call waits for child runs."""

    children: tuple[ChildRef, ...]
    decided: str | None = None  # the ticket whose decision the tool was given before; None: there is none


prepare(Ticket, AwaitedChildren)
