"""A space as the history packages see it: one engine, one space, and what comes from outside.

Clock and ids are passed in, so that the same operations make the same digests anywhere.
Reads go through caches of decoded nodes and commits; neither ever changes, so the caches
need no upkeep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import msgspec

from holdfast.engines.contract import Engine, Fence, Step
from holdfast.errors import Corrupt, NotFound
from holdfast.history.tree import EMPTY, Cache, Tree
from holdfast.model.digest import Digest
from holdfast.model.limits import Limits

__all__ = ["AGENTS", "ALIVE", "STORE", "THREAD", "THREADS", "Space", "Steps", "label_of"]

STORE = "store"  # the store's own space, which holds the directory
THREADS, AGENTS = "thread:", "agent:"  # what names of spaces begin with
THREAD = "thread/"  # cells of the directory: a thread's record, by its id
ALIVE = "alive"  # the cell that is written when a thread is removed

_STEPS_MAX = 512
_PAGE = 100


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
        """The commit of that digest; raises `NotFound`, or `Corrupt` if it is another's."""
        found = self.steps.get(commit)
        if found is None:
            found = self.back(commit, limit=1)[0]
            self.steps.put(found)
        return found

    def back(self, at: Digest, *, skip: int = 0, limit: int) -> Sequence[Step]:
        """Commits from `at` backwards along first parents, newest first; raises as `step` does.

        Commits say whose they are, and the digest covers that.  The name of a space, and where
        the directory leads, can be altered unnoticed; so they are held against it here.
        """
        found = self.engine.steps(self.name, at, skip=skip, limit=limit)
        if found and found[0].commit.thread != self.label:
            raise Corrupt(
                f"'{self.label}' leads to the history of '{found[0].commit.thread}'; it was not read. "
                "Run `holdfast verify`."
            )
        return found


def label_of(engine: Engine, name: str) -> str:
    """What the commits of a space call it, for whoever knows the space by its name alone.

    An agent's space is named after it.  A thread's has a name of its own, so its commits are
    taken at their word; `verify` holds them against the directory.  One without any is
    called by the name of its space.  Raises `Corrupt` if they cannot be read.
    """
    if not name.startswith(THREADS):
        return name.removeprefix(AGENTS)
    for some in (_tips, _any):
        with suppress(NotFound):  # a head that leads nowhere: `verify` tells of it
            for commit in some(engine, name):
                return engine.steps(name, commit, limit=1)[0].commit.thread
    return name


def _tips(engine: Engine, name: str) -> Iterator[Digest]:
    return (hold.head.commit for hold in engine.holds(name, limit=_PAGE) if hold.head.commit)


def _any(engine: Engine, name: str) -> Iterator[Digest]:
    return iter(engine.commits(name, "", limit=1))
