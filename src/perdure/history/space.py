"""A space as the history packages see it: one engine, one space, and what comes from outside.

Clock and ids are passed in, so that the same operations make the same digests anywhere.
Reads go through caches of decoded nodes and commits; neither ever changes, so the caches
need no upkeep.

Digests that are read here come out of the store itself: a head, a commit, a record names them.  So one that
the engine does not find is damage (`Corrupt`), unless the thread was removed meanwhile (`NotFound`).  A digest
that a caller gave is looked up with `find`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import msgspec

from perdure.engines.contract import Engine, Fence, Step
from perdure.errors import Corrupt, Forgotten, NotFound, StaleHead
from perdure.history.tree import EMPTY, NodeCache, Tree
from perdure.model.digest import Digest, Object
from perdure.model.head import Head
from perdure.model.limits import Limits

__all__ = [
    "AGENTS",
    "ALIVE",
    "STORE",
    "THREAD",
    "THREADS",
    "Space",
    "CommitCache",
    "label_of",
    "removed",
    "stale_because_removed",
]

STORE = "store"  # the store's own space, which holds the directory
THREADS, AGENTS = "thread:", "agent:"  # what names of spaces begin with
THREAD = "thread/"  # cells of the directory: a thread's record, by its id
ALIVE = "alive"  # the cell that is written when a thread is removed

_STEPS_MAX = 512
_PAGE = 100


class CommitCache:
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
    cache: NodeCache
    limits: Limits = Limits()
    fences: tuple[Fence, ...] = ()  # what must hold for anything to be written or read here
    steps: CommitCache = msgspec.field(default_factory=CommitCache)

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
        """The bytes of nodes, values or bodies, in order; raises as `objects` does."""
        return [found.body for found in self.objects(digests)]

    def body(self, digest: Digest) -> bytes:
        """The bytes of one object; raises as `objects` does."""
        return self.objects((digest,))[0].body

    def objects(self, digests: Sequence[Digest]) -> Sequence[Object]:
        """The objects of these digests, in order; raises `Forgotten`, or `Corrupt` if one is damaged or missing."""
        try:
            return self.engine.objects(self.name, digests)
        except Forgotten:
            raise
        except NotFound as error:
            missing = self.engine.missing(self.name, digests)
            raise self.absence(missing[0] if missing else digests[0]) from error

    def step(self, commit: Digest) -> Step:
        """The commit of that digest; raises `Corrupt` if it is missing, or another thread's."""
        found = self.steps.get(commit)
        if found is None:
            found = self.back(commit, limit=1)[0]
            self.steps.put(found)
        return found

    def find(self, commit: Digest, *, remembered: bool = True) -> Step | None:
        """The commit of a digest that a caller gave; None if this space has none.

        Without `remembered` the store is asked even about a commit that was read before.
        """
        found = self.steps.get(commit) if remembered else None
        if found is None:
            try:
                found = self._checked(self.engine.steps(self.name, commit, limit=1))[0]
            except NotFound:
                return None
            self.steps.put(found)
        return found

    def given(self, commit: Digest) -> Step:
        """The commit of a digest that a caller gave; raises `NotFound` if this space has none."""
        found = self.find(commit)
        if found is None:
            raise NotFound(f"there is no commit {commit} in '{self.label}'; nothing was done.")
        return found

    def turn(self, at: Digest, turn: int) -> Step | None:
        """The last commit of that turn on the line that ends at `at`; raises as `step` does."""
        try:
            return self.engine.turn(self.name, at, turn)
        except NotFound as error:
            raise self.absence(at) from error

    def back(self, at: Digest, *, skip: int = 0, limit: int) -> Sequence[Step]:
        """Commits from `at` backwards along first parents, newest first; raises as `step` does."""
        try:
            return self._checked(self.engine.steps(self.name, at, skip=skip, limit=limit))
        except NotFound as error:
            raise self.absence(at) from error

    def absence(self, digest: Digest) -> Corrupt | NotFound:
        """The error for something that the store names and does not have."""
        return _absence(self.engine, self.name, self.label, digest)

    def _checked(self, found: Sequence[Step]) -> Sequence[Step]:
        """The same commits, if they are of this thread or agent.

        Commits say whose they are, and the digest covers that.  The name of a space, and where
        the directory leads, can be altered unnoticed; so they are held against it here.
        """
        if found and found[0].commit.thread != self.label:
            raise Corrupt(
                f"'{self.label}' leads to the history of '{found[0].commit.thread}'; it was not read. "
                "Run `perdure verify`."
            )
        return found


def label_of(engine: Engine, name: str) -> str:
    """What the commits of a space call it, for whoever knows the space by its name alone.

    An agent's space is named after it.  A thread's has a name of its own, so its commits are
    taken at their word; `verify` holds them against the directory.  One without any is
    called by the name of its space, and so is one that was removed.  Raises `Corrupt` if they cannot be read.
    """
    if not name.startswith(THREADS):
        return name.removeprefix(AGENTS)
    for commit in chain(_tips(engine, name), _any(engine, name)):
        try:
            return engine.steps(name, commit, limit=1)[0].commit.thread
        except NotFound as error:
            damage = _absence(engine, name, name, commit)
            if isinstance(damage, Corrupt):
                raise damage from error
    return name


def _tips(engine: Engine, name: str) -> Iterator[Digest]:
    return (hold.head.commit for hold in engine.holds(name, limit=_PAGE) if hold.head.commit)


def _any(engine: Engine, name: str) -> Iterator[Digest]:
    return iter(engine.commits(name, "", limit=1))


def _absence(engine: Engine, name: str, label: str, digest: Digest) -> Corrupt | NotFound:
    if engine.cell(name, ALIVE) is not None:
        return NotFound(
            f"thread '{label}' was removed; nothing was read.",
            code="thread_removed",
            advice="Begin it again with agent=.",
            thread=label,
        )
    return Corrupt(
        f"'{label}' names {digest}, which is not in the store any more; nothing was returned. "
        "Run `perdure verify`, and restore a backup.",
        digest=digest,
    )


def removed(space: Space) -> bool:
    """Whether the thread whose space this is was removed."""
    fenced = any(fence.cell == ALIVE for fence in space.fences)
    return fenced and space.engine.cell(space.name, ALIVE) is not None


def stale_because_removed(space: Space, head: Head) -> StaleHead:
    """The refusal of a write to a thread that was removed, whatever the numbers of its head."""
    return StaleHead(
        head,
        Head(head.timeline, 0, None),
        because=f"'{space.label}' was removed",
        advice="Open the thread again.",
    )
