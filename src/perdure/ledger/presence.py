"""Presence: whether a call is in the history of a line.

A call is named there by the message that asked for it, or by its run.  History is everything
behind a commit, through either parent.  A call by hand says nothing in the conversation: its commit
is found in the turn that it belongs to, its own or that of the run it was made beside.

A run that waits goes on after what others committed meanwhile, so its commits are one or more
*stretches* of its line.  The first commit of each is found by the run's id and the last by its turn:
reading what a run did costs what it did, however long the line has become since.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from perdure.engines.contract import Step
from perdure.history import ancestry, reader
from perdure.history.space import Space
from perdure.model.digest import Digest
from perdure.model.event import ToolCallCompleted

__all__ = ["behind", "commits_of", "of_run", "present", "stands_on", "told_in"]


def commits_of(space: Space, label: str | None) -> Sequence[Digest]:
    """The commits that hold what `label` names; none if it was never committed, or nothing names it."""
    return space.engine.labelled(space.name, label) if label else ()


def present(space: Space, label: str | None, head: Digest | None) -> bool:
    """Whether what `label` names is in the history of `head`."""
    return head is not None and any(behind(space, commit, head) for commit in commits_of(space, label))


def stands_on(space: Space, label: str | None, head: Digest | None) -> bool:
    """Whether what `label` names is in the conversation of `head`: on its line, not only merged into it."""
    return any(reader.is_ancestor(space, commit, head) for commit in commits_of(space, label))


def of_run(space: Space, run: str, at: Digest | None) -> list[Step]:
    """The commits of a run on the line that ends at `at`, oldest first; others may stand between them."""
    named = [commit for commit in commits_of(space, run) if reader.is_ancestor(space, commit, at)]
    firsts: dict[int, Step] = {}  # by turn
    for step in map(space.step, named):
        if step.commit.run == run:  # else a message goes by the same name
            firsts.setdefault(step.place.turn, step)
    return [step for first in firsts.values() for step in _stretch(space, first, at)]


def _stretch(space: Space, first: Step, at: Digest | None) -> list[Step]:
    """The commits of one turn from its `first` on, oldest first, on the line that ends at `at`."""
    assert at is not None, "a commit is on the line"
    end = space.step(at)
    if end.place.turn != first.place.turn:
        last = space.turn(at, first.place.turn)
        assert last is not None, "a turn that has begun has a last commit"
        end = last
    count = end.place.depth - first.place.depth + 1
    remembered = space.steps.get(end.digest) is not None
    found = reader.recent(space, end.digest) if remembered else reader.steps(space, end.digest, limit=count)
    return list(islice(found, count))[::-1]


def behind(space: Space, commit: Digest, head: Digest | None) -> bool:
    """Whether `commit` is in the history of `head`; None is before the first commit."""
    if head is None:
        return False
    if reader.is_ancestor(space, commit, head):
        return True
    return ancestry.contains(space, ancestry.point(space, head), ancestry.point(space, commit))


def told_in(space: Space, call: str, label: str, head: Digest | None) -> bool:
    """Whether the history of `head` tells what a call by hand came to, in the turn of the run `label`."""
    return head is not None and any(_told(space, call, commit, head) for commit in commits_of(space, label))


def _told(space: Space, call: str, first: Digest, head: Digest) -> bool:
    """The same, in the turn that begins with `first`; one that was merged in counts as a whole."""
    if not reader.is_ancestor(space, first, head):
        return behind(space, first, head)
    last = space.turn(head, space.step(first).place.turn)
    for step in reader.steps(space, last.digest) if last else ():
        if any(
            isinstance(event, ToolCallCompleted) and event.call == call for event in step.changeset.events
        ):
            return True
        if step.digest == first:
            return False
    return False
