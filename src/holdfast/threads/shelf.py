"""The shelf: an open engine with what comes from outside, and the spaces on it.

Clock, ids and the catalog of models are passed in.  The cache of nodes is one for all spaces of the store.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.engines.contract import Engine, Fence
from holdfast.history.space import AGENTS, ALIVE, STORE, Space, label_of
from holdfast.history.tree import Cache
from holdfast.model.limits import Limits
from holdfast.providers.catalog import Catalog, shipped
from holdfast.runtime.workshop import Workshop

__all__ = ["Shelf"]

_FENCES = (Fence(ALIVE, 0),)


class Shelf(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that handles on one store share."""

    engine: Engine
    clock: Callable[[], int]  # µs since 1970, UTC
    ids: Callable[[], str]
    limits: Limits = Limits()
    models: Callable[[], Catalog] = shipped  # what is known of them; read when it is first asked for
    cache: Cache = msgspec.field(default_factory=Cache)
    workshop: Workshop = msgspec.field(default_factory=Workshop)

    @property
    def store(self) -> Space:
        """The store's own space."""
        return self.named(STORE)

    def agent(self, name: str) -> Space:
        """The space of an agent's own map."""
        return self._space(AGENTS + name, name, ())

    def thread(self, id: str, space: str) -> Space:
        """The space of a thread; nothing is written there once the thread is removed."""
        return self._space(space, id, _FENCES)

    def named(self, name: str) -> Space:
        """Any space, without the rules of what it is for."""
        return self._space(name, label_of(self.engine, name), ())

    def _space(self, name: str, label: str, fences: tuple[Fence, ...]) -> Space:
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
