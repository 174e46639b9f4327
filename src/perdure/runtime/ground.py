"""The ground that a run stands on: one line of a thread, and what surrounds it.

Everything that a run needs of the outside is passed in here: the agent as it is declared,
where the line stands, who renews leases, which threads sync tools run on, and how the awaitable
face keeps the disk away from the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Protocol, TypeVar

import msgspec

from perdure.history.space import Space
from perdure.history.standing import Standing
from perdure.memory import Recollection
from perdure.migration.backends import RecordedBackend
from perdure.migration.facing import Given
from perdure.model.effect import Effect
from perdure.providers.catalog import Catalog, shipped
from perdure.runtime.agent import Agent
from perdure.runtime.backend_cache import Lines
from perdure.runtime.feed import Feeds
from perdure.runtime.ownership import Owners
from perdure.runtime.talks import Talks
from perdure.runtime.workshop import Workshop

__all__ = ["Ground", "Hands", "inline"]

_T = TypeVar("_T")


class Hands(Protocol):
    """How blocking work is done from a coroutine."""

    def __call__(self, work: Callable[[], _T], /) -> Awaitable[_T]:
        """What comes of `work`."""
        ...


async def inline(work: Callable[[], _T], /) -> _T:
    """Do it here and now: this thread runs nothing but the run."""
    return work()


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a thread, for runs on it."""

    standing: Standing
    agent: Agent
    workshop: Workshop
    store: Space  # the store's own space, for keys that hold store-wide
    finish: Callable[[], None]  # does what a commit leaves to be done in the agent's map
    hands: Hands = inline
    sole: bool = True  # whether this thread may be blocked by a tool: nothing else runs on its loop
    effect_max: Effect | None = None  # the most that calls on this line may reach
    handed: Mapping[RecordedBackend, Given] = {}  # backends that were handed to a switch on this handle
    models: Callable[[], Catalog] = shipped  # what is known of models
    memory: Recollection | None = None  # of the thread's owner; None: it has none
    parent_run: str | None = None  # the run whose tool is running here; None: no tool is

    @property
    def owners(self) -> Owners:
        """Who renews leases."""
        return self.workshop.owners

    @property
    def feeds(self) -> Feeds:
        """What live runs hand out."""
        return self.workshop.feeds

    @property
    def talks(self) -> Talks:
        """Conversations, kept between steps."""
        return self.workshop.talks

    @property
    def lines(self) -> Lines:
        """Whose turn it is on which line, as it was found last."""
        return self.workshop.lines

    @property
    def crew(self) -> Executor:
        """The threads on which plain tools run."""
        return self.workshop.crew

    @property
    def lease_seconds(self) -> float:
        """How long a lease lasts unless it is renewed."""
        return self.workshop.owners.ttl

    @property
    def space(self) -> Space:
        """The thread's space."""
        return self.standing.space

    @property
    def timeline(self) -> str:
        """The line's name."""
        return self.standing.timeline
