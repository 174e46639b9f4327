"""A space as the history packages see it: one engine, one space, and what comes from outside.

Clock and ids are passed in, so that the same operations make the same digests anywhere.
Reads go through caches of decoded nodes and commits; neither ever changes, so the caches
need no upkeep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.engines.contract import Engine, Fence, Step
from holdfast.history.tree import EMPTY, Cache, Tree
from holdfast.model.digest import Digest
from holdfast.model.limits import Limits

__all__ = ["ALIVE", "Space", "Steps"]

ALIVE = "alive"  # the cell that is written when a thread is removed

_STEPS_MAX = 512


class Steps:
    """The last commits that were read or written, by digest.

    Two generations, as in the cache of nodes: what was not asked for since the last change
    of generation goes.  Every change is one operation on a dictionary, so no lock is needed.
    """

    __slots__ = ("_old", "_young")

    def __init__(self) -> None:
        """Begin with nothing."""
        self._young: dict[Digest, Step] = {}
        self._old: dict[Digest, Step] = {}

    def get(self, digest: Digest) -> Step | None:
        """The commit, if it is here."""
        found = self._young.get(digest)
        if found is None:
            found = self._old.get(digest)
            if found is not None:
                self.put(found)
        return found

    def put(self, step: Step) -> None:
        """Keep a commit for a while."""
        if len(self._young) >= _STEPS_MAX:
            self._old, self._young = self._young, {}
        self._young[step.digest] = step


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """One thread's, agent's or owner's part of a store, with everything that its rules need."""

    engine: Engine
    name: str
    label: str  # what commits call it: the thread's id, or the agent's name
    clock: Callable[[], int]  # µs since 1970, UTC
    ids: Callable[[], str]
    cache: Cache
    limits: Limits = Limits()
    fences: tuple[Fence, ...] = ()  # what must hold for anything to be written or read here
    steps: Steps = msgspec.field(default_factory=Steps)

    def tree(self, root: Digest = EMPTY) -> Tree:
        """The map of that root."""
        return Tree(self.nodes, root, cache=self.cache)

    def tree_at(self, commit: Digest | None) -> Tree:
        """The map as it was at a commit; None is before the first."""
        return self.tree(self.root_at(commit))

    def root_at(self, commit: Digest | None) -> Digest:
        """The root of the map at a commit; None is before the first."""
        return EMPTY if commit is None else self.step(commit).commit.root

    def nodes(self, digests: Sequence[Digest]) -> Sequence[bytes]:
        """The bytes of nodes, values or bodies, in order; raises `NotFound`, `Forgotten` or `Corrupt`."""
        return [found.body for found in self.engine.objects(self.name, digests)]

    def body(self, digest: Digest) -> bytes:
        """The bytes of one object."""
        return self.engine.objects(self.name, (digest,))[0].body

    def step(self, commit: Digest) -> Step:
        """The commit of that digest; raises `NotFound`."""
        found = self.steps.get(commit)
        if found is None:
            found = self.engine.steps(self.name, commit, limit=1)[0]
            self.steps.put(found)
        return found
