"""The resources of an open store: its engine, clock, ids, limits, models and caches, and the spaces in it.

Clock, ids and the catalog of models are passed in.  All spaces of the store share one cache of nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from perdure.engines import registry
from perdure.engines.contract import Engine, Fence
from perdure.engines.search_contract import SearchIndex
from perdure.history.space import AGENTS, ALIVE, STORE, Space, label_of
from perdure.history.tree import NodeCache
from perdure.memory import Memories
from perdure.memory.embedding import Embedder
from perdure.memory.owner_memory import ReachableMemory
from perdure.model.limits import Limits
from perdure.providers.catalog import Catalog, shipped
from perdure.store.plumbing.handles import deferred

if TYPE_CHECKING:
    from perdure.runtime.session import environment
    from perdure.runtime.session.environment import StoreRuntime
else:
    environment = deferred("perdure.runtime.session.environment")

__all__ = ["StoreResources"]


def in_memory(owner: str | None) -> SearchIndex:
    """Return a search index in memory."""
    return registry.open_search("memory:", owner, read_only=False)


_FENCES = (Fence(ALIVE, 0),)


class StoreResources(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the handles on one store share."""

    engine: Engine
    clock: Callable[[], int]  # µs since 1970, UTC
    ids: Callable[[], str]
    limits: Limits = Limits()
    models: Callable[[], Catalog] = shipped  # the catalog of models; read at the first use
    indexes: Callable[[str | None], SearchIndex] = (
        in_memory  # the index of an owner's memory; None: of no owner
    )
    embedder: Embedder | None = None  # None: memory is searched for words alone
    read_only: bool = False
    cache: NodeCache = msgspec.field(default_factory=NodeCache)
    runtimes: list[StoreRuntime] = msgspec.field(default_factory=list)  # the first one, once a run needs it
    _memories: list[Memories] = msgspec.field(default_factory=list[Memories])

    def __post_init__(self) -> None:
        """Create the memories, which need the other fields."""
        reach = ReachableMemory(lambda name, label: self._space(name, label, ()))
        self._memories.append(
            Memories(self.named, reach, self.indexes, self.embedder, read_only=self.read_only)
        )

    @property
    def store(self) -> Space:
        """The store's own space."""
        return self.named(STORE)

    def agent(self, name: str) -> Space:
        """Return the space of an agent's own map."""
        return self._space(AGENTS + name, name, ())

    def thread(self, id: str, space: str) -> Space:
        """Return the space of a thread; writes to it are refused once the thread is removed."""
        return self._space(space, id, _FENCES)

    @property
    def store_runtime(self) -> StoreRuntime:
        """What the runs of the store share, created when the first run needs it."""
        if not self.runtimes:
            # Two threads may both append one; both then use the first.
            self.runtimes.append(environment.StoreRuntime())
        return self.runtimes[0]

    @property
    def memories(self) -> Memories:
        """The memories of all owners."""
        return self._memories[0]

    def close(self) -> None:
        """Wait for background work to end, then release everything."""
        for runtime in self.runtimes:
            runtime.close()
        for each in self._memories:
            each.close()
        self.engine.close()

    def named(self, name: str) -> Space:
        """Return any space by name, without the fences of a thread."""
        return self._space(name, label_of(self.engine, name), ())

    def _space(self, name: str, label: str, fences: tuple[Fence, ...]) -> Space:
        self.engine.check(name)
        return Space(
            engine=self.engine,
            name=name,
            label=label,
            clock=self.clock,
            ids=self.ids,
            cache=self.cache,
            limits=self.limits,
            fences=fences,
        )
