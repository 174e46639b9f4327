"""Moments on the command line: what REF may be, and what a command reads from.

Beside the names that every moment has, a person may give the name of a timeline, meaning
where it stands.  A name that fits both is refused.
"""

from __future__ import annotations

from perdure.cli.guessing import guessing, moment_names
from perdure.errors import Invalid, NotFound
from perdure.threads.agents import AgentMap
from perdure.threads.thread import Thread
from perdure.threads.view import View

__all__ = ["given", "resolve", "view_at"]


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
