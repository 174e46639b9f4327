"""Whose turn it is: the backend of a line, as its history says.

A line's backend is what the newest of two kinds of event on its first parents names: a run that
began, or a switch.  So it can be undone, forked and audited like everything else.
"""

from __future__ import annotations

from holdfast.engines.contract import Step
from holdfast.history import reader
from holdfast.history.space import Space
from holdfast.model.digest import Digest
from holdfast.model.event import BackendSwitched, RunStarted

__all__ = ["backend_at", "backend_of"]


def backend_at(space: Space, commit: Digest | None) -> str | None:
    """The backend that takes the turns after `commit`; None: no run has begun there, and nobody has switched."""
    for step in reader.recent(space, commit):
        found = backend_of(step)
        if found is not None:
            return found
    return None


def backend_of(step: Step) -> str | None:
    """The backend that one commit names for what follows; None: it names none."""
    for event in reversed(step.changeset.events):
        if isinstance(event, BackendSwitched):
            return event.to_backend
        if isinstance(event, RunStarted) and event.backend is not None:
            return event.backend
    return None
