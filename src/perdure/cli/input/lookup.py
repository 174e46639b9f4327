"""Moments on the command line: what REF may be, and what a command reads from.

Beside the names that every moment has, a person may give the name of a timeline, meaning
its head.  A name that fits both is refused.

Calls and their approvals as one timeline sees them.
"""

from __future__ import annotations

from perdure.cli.input.suggestions import guessing, moment_names
from perdure.errors import Invalid, NotFound
from perdure.ledger.trace import Traced
from perdure.store.agents import AgentMap
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = ["given", "resolve", "view_at", "call_on", "named", "seen_from"]


def view_at(line: Thread | AgentMap, at: str | None) -> View:
    """Return a view of `line` at a moment, now if None; later writes do not change the view."""
    return line.at() if at is None else line.at(resolve(line, at))


def resolve(line: Thread | AgentMap, name: str) -> str | None:
    """Return the commit that `name` means; None: before the first commit.  Raises `NotFound` or `Invalid`."""
    if not isinstance(line, Thread):
        return line.at(name).digest
    heads = {hold.head.timeline: hold.head for hold in line.timelines()}
    try:
        found = line.at(name).digest
    except NotFound:
        if name in heads:
            return heads[name].commit
        with guessing(name, lambda: moment_names(line, name)):
            raise
    if name in heads and heads[name].commit != found:
        raise Invalid(
            f"{name!r} is a timeline, and the name of another moment too; nothing was done.",
            code="ambiguous_name",
            advice="Give a digest.",
            name=name,
        )
    return found


def given(thread: Thread, name: str) -> str | None:
    """Return `name` as the library takes it: for the name of a timeline, the commit of its head."""
    is_timeline = any(hold.head.timeline == name for hold in thread.timelines())
    if is_timeline:
        return resolve(thread, name)
    with guessing(name, lambda: moment_names(thread, name)):
        thread.at(name)
    return name


def call_on(thread: Thread, call: str, timeline: str | None, *, history: bool = False) -> Traced:
    """Read a call from the ledger; raises `NotFound` if a timeline is named and the call was made on another."""
    traced = thread.trace(call, history=history)
    call = traced.record.id
    where = traced.record.timeline
    if timeline not in (None, where):
        raise NotFound(
            f"call '{call}' was made on timeline '{where}', not on '{timeline}'; nothing was done.",
            code="call_elsewhere",
            advice="Leave --timeline out.",
            call=call,
            timeline=where,
        )
    return traced


def seen_from(thread: Thread, call: str, timeline: str | None) -> Traced:
    """Read a call and its approval as a timeline sees them; None: the timeline on which it was asked.

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
    """Return the id of the call that is named by its id, by its ticket's id, or by the beginning of either."""
    return thread.trace(call, history=False).record.id
