"""Finds the backend of a timeline in its history.

The newest of two kinds of event on the first parents names it: the start of a run, or a switch.  So it can be undone,
forked and audited like everything else.  The server is recorded beside the name, because a later process may resolve
the same name to another address.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from perdure.engines.contract import Step
from perdure.history.reader import eventful
from perdure.history.space import Space
from perdure.model.digest import Digest
from perdure.model.event import BackendSwitched, RunStarted
from perdure.model.run import LEASE

__all__ = ["RecordedBackend", "backend_at", "backend_of", "recorded_at", "server_on_record"]

_STEPS_MAX = 10_000
_UNNAMED_MAX = 32  # commits that name no backend, after which it is asked whether any can
_TIMELINES_MAX = 100
_FAR_MAX = 1_024


class RecordedBackend(NamedTuple):
    """A backend as the history names it."""

    name: str
    server: str | None  # its identity; None: a model object of the program that names no server


# By commit, where it was far to look for: the history of a commit never changes.
_far: dict[Digest | None, RecordedBackend | None] = {}
_UNKNOWN = RecordedBackend("", None)


def recorded_at(
    space: Space, commit: Digest | None, known: tuple[Digest | None, RecordedBackend | None] | None = None
) -> RecordedBackend | None:
    """Return the backend of the turns after `commit`; None: there was no run and no switch yet.

    `known` is what was found at an earlier commit, behind which nothing needs to be read; None: nothing was.
    """
    cached = _far.get(commit, _UNKNOWN)
    if cached is not _UNKNOWN:
        return cached
    found, count = None, 0
    for count, step in enumerate(eventful(space, commit)):
        if known is not None and step.digest == known[0]:
            return known[1]
        found = recorded_in(step)
        if found is not None or (count == _UNNAMED_MAX and not _was_leased(space)):
            break
    if commit is not None and count >= _UNNAMED_MAX:
        if len(_far) >= _FAR_MAX:
            _far.clear()
        _far[commit] = found
    return found


def _was_leased(space: Space) -> bool:
    """True if a run or a switch may have been on a timeline of the thread: each of them writes its lease's cell."""
    engine = space.engine
    holds = engine.holds(space.name, limit=_TIMELINES_MAX)
    return len(holds) == _TIMELINES_MAX or any(
        engine.cell(space.name, LEASE + hold.head.timeline) is not None for hold in holds
    )


def recorded_in(step: Step) -> RecordedBackend | None:
    """Return the backend that one commit names for the turns after it; None: it names none."""
    for event in reversed(step.changeset.events):
        if isinstance(event, BackendSwitched):
            return RecordedBackend(event.to_backend, event.to_server)
        if isinstance(event, RunStarted) and event.backend is not None:
            return RecordedBackend(event.backend, event.server)
    return None


def server_on_record(
    space: Space, commit: Digest | None, is_same: Callable[[str], bool]
) -> RecordedBackend | None:
    """Return the newest record, on the timeline that ends at `commit`, of a backend whose name `is_same` accepts."""
    for step in islice(eventful(space, commit), _STEPS_MAX):
        found = recorded_in(step)
        if found is not None and is_same(found.name):
            return found
    return None


def backend_at(space: Space, commit: Digest | None) -> str | None:
    """Return the name of the backend of the turns after `commit`; None: the history names none."""
    found = recorded_at(space, commit)
    return None if found is None else found.name


def backend_of(step: Step) -> str | None:
    """Return the name of the backend that one commit names for the turns after it; None: it names none."""
    found = recorded_in(step)
    return None if found is None else found.name
