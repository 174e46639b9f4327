"""Calls and their approvals as one timeline sees them."""

from __future__ import annotations

from perdure.errors import NotFound
from perdure.ledger.tracing import Traced
from perdure.threads.thread import Thread

__all__ = ["call_on", "named", "seen_from"]


def call_on(thread: Thread, call: str, timeline: str | None, *, history: bool = False) -> Traced:
    """What the ledger says of a call; raises `NotFound` if a timeline is named and it was made on another."""
    traced = thread.trace(call, history=history)
    call = traced.record.id
    where = traced.record.timeline
    if timeline not in (None, where):
        raise NotFound(
            f"call '{call}' was made on timeline '{where}', not on '{timeline}'; nothing was done. Leave --timeline out."
        )
    return traced


def seen_from(thread: Thread, call: str, timeline: str | None) -> Traced:
    """A call and its approval as a timeline sees them, None: the one on which it was asked.

    What was decided elsewhere than where it was asked is a call of its own there.
    """
    traced = thread.trace(call, history=False)
    if timeline is None or traced.ticket is None or traced.ticket.timeline == timeline:
        return traced
    thread.on(timeline)
    try:
        return thread.trace(f"{traced.ticket.id}/{timeline}", history=False)
    except NotFound:
        return traced


def named(thread: Thread, call: str) -> str:
    """The id of the call that somebody named by it, by its ticket's id, or by a beginning of either."""
    return thread.trace(call, history=False).record.id
