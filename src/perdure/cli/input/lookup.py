"""Moments on the command line: what REF may be, and what a command reads from.

Beside the names that every moment has, a person may give the name of a timeline, meaning
where it stands.  A name that fits both is refused.

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
    """What `line` was at a moment, now if None; the view stays there whatever is written meanwhile."""
    return line.at() if at is None else line.at(resolve(line, at))


def resolve(line: Thread | AgentMap, name: str) -> str | None:
    """The commit that `name` means; None is the moment before the first.  Raises `NotFound` or `Invalid`."""
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
            f"{name!r} is a timeline, and the name of another moment too; nothing was done. Give a digest."
        )
    return found


def given(thread: Thread, name: str) -> str | None:
    """`name` as the library knows it: as it was given, or for a timeline's name where that stands."""
    is_timeline = any(hold.head.timeline == name for hold in thread.timelines())
    if is_timeline:
        return resolve(thread, name)
    with guessing(name, lambda: moment_names(thread, name)):
        thread.at(name)
    return name


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
