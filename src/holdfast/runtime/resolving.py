"""Resolving: from the backend that a line's history names to something that takes steps.

The history counts, not the code: editing `backend=` moves no thread that has begun.  A name is
resolved to an object that was given under it (by the agent, its route, or a switch on the same
handle), else to the backend that the name itself means.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import TYPE_CHECKING

from holdfast.errors import Invalid, NotFound, Unsupported
from holdfast.history import reader
from holdfast.history.space import Space
from holdfast.migration.backends import backend_of
from holdfast.migration.facing import Given, name_of, same
from holdfast.model.digest import Digest
from holdfast.providers.contract import Model
from holdfast.runtime.agent import Agent, model_of, taking_steps

if TYPE_CHECKING:
    from holdfast.runtime.ground import Ground

__all__ = ["Lines", "is_on", "line_backend", "model_for", "whose"]

_KEPT_MAX = 1_024


class Lines:
    """The backends of the lines that were looked at last, each with the commit it was found at."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, str], tuple[Digest | None, str | None]] = OrderedDict()

    def backend(self, space: Space, timeline: str, at: Digest | None) -> str | None:
        """The backend of a line that stands at `at`; only what was committed since is read."""
        known = self.last(space, timeline)
        if known is not None and known[0] == at:
            return known[1]
        found: str | None = None
        for step in reader.recent(space, at):
            if known is not None and step.digest == known[0]:
                found = known[1]
                break
            found = backend_of(step)
            if found is not None:
                break
        self.note(space, timeline, at, found)
        return found

    def last(self, space: Space, timeline: str) -> tuple[Digest | None, str | None] | None:
        """What was found last: the commit, and the backend; None: nobody has looked."""
        with self._lock:
            return self._kept.get((space.name, timeline))

    def note(self, space: Space, timeline: str, at: Digest | None, backend: str | None) -> None:
        """Remember it."""
        with self._lock:
            self._kept[space.name, timeline] = at, backend
            self._kept.move_to_end((space.name, timeline))
            while len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)


def line_backend(ground: Ground, *, line: str | None = None) -> str | None:
    """The backend of the line as it stands now; None: its history names none, and the agent's counts."""
    timeline = line or ground.timeline
    head = reader.head_of(ground.space, timeline)
    return ground.lines.backend(ground.space, timeline, head.commit)


def whose(ground: Ground, *, line: str | None = None, sure: bool = False) -> Model:
    """The model whose turn it is on the line; unless it has to be `sure`, what was found last will do.

    Raises `Invalid` if the agent has no backend, or nothing takes steps for the line's.
    """
    if ground.agent.backend is None and not ground.handed:
        return model_of(ground.agent)  # which says so
    known = None if sure else ground.lines.last(ground.space, ground.timeline)
    name = known[1] if known is not None else None
    if known is None or name != _own(ground):  # one that is not the agent's may have been undone
        name = line_backend(ground, line=line)
    return model_of(ground.agent) if name is None else model_for(ground, name)


def model_for(ground: Ground, name: str) -> Model:
    """What takes steps under that name, which is the line's; warns if the agent is declared on another."""
    for given in _known(ground):
        if is_on(ground, name_of(given), name):
            return taking_steps(given)
    try:
        found = taking_steps(name)
    except (Invalid, NotFound, Unsupported) as error:
        why = str(error).partition(";")[0].rstrip(".")
        raise Invalid(
            f"'{ground.space.label}' is on {name}, and nothing takes steps for that here: {why}; nothing was run. "
            "Give the agent that backend, or move the thread to another with switch(…); a run that was cut off has to "
            "be ended first, with cancel()."
        ) from error
    _warn(ground.agent, ground.space.label, name)
    return found


def is_on(ground: Ground, one: str, other: str) -> bool:
    """Whether two names mean the same backend."""
    return one == other or same(one, other, ground.models())


def _own(ground: Ground) -> str | None:
    return None if ground.agent.backend is None else name_of(ground.agent.backend)


def _known(ground: Ground) -> Iterator[Given]:
    """Everything that was given by an object or a name, what was handed over last first."""
    yield from reversed(tuple(ground.handed.values()))
    if ground.agent.backend is not None:
        yield ground.agent.backend
    if ground.agent.route is not None:
        yield from ground.agent.route.order(None)


def _warn(agent: Agent, label: str, name: str) -> None:
    if agent.backend is not None:
        warnings.warn(
            f"agent '{agent.name}' is declared on {name_of(agent.backend)}, but '{label}' is on {name}, which counts: "
            f"a thread that has begun is moved by thread.switch('{name_of(agent.backend)}'), after a check.",
            stacklevel=2,
        )
