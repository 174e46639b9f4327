"""Tickets: what a suspended call waits for, and what was decided.

A ticket says what is asked, of whoever can answer, until when, and what happens if nobody
does.  Its first decision stands.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from perdure.model.digest import Digest

__all__ = ["DECISIONS", "Decision", "OnTimeout", "Resume", "Ticket", "Verdict"]

Verdict: TypeAlias = Literal["approve", "deny", "edit", "answer", "expire", "cancel"]
Resume: TypeAlias = Literal["run", "result", "arguments"]
OnTimeout: TypeAlias = Literal["expire", "deny", "approve"]

DECISIONS: tuple[Verdict, ...] = get_args(Verdict)[:4]  # what somebody can decide; the rest happens


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was decided, by whom and why."""

    verdict: Verdict
    at: int  # µs since 1970, UTC
    by: str | None = None
    why: str | None = None
    value: Digest | None = None  # a body: JSON text of the new arguments (edit) or of the result (answer)
    value_size: int = 0


class Ticket(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question that a call waits for."""

    id: str
    call: str
    tool: str
    args: Digest  # a body: the arguments that the question is about
    fingerprint: str
    timeline: str
    asked_at: int  # µs since 1970, UTC
    action: str = "approve"  # `approve`, `repeat` (the guard asks), or the tool's own word
    message: str = ""
    run: str | None = None
    label: str | None = None  # what names the commit that holds the call
    parameters: str | None = None  # JSON text for whoever shows the question
    response_schema: str | None = None  # JSON text: what an answer must look like
    arguments_schema: str | None = (
        None  # JSON text: what the tool's arguments look like; None: nobody can tell
    )
    expires_at: int | None = None  # µs since 1970, UTC; None: it waits for ever
    on_timeout: OnTimeout = "expire"
    resume: Resume = (
        "run"  # what a decision leads to: run the tool, use it as the result, or as the arguments
    )
    decision: Decision | None = None  # None: it is open
