"""Compares two stores: which threads, timelines, agents' maps and memories differ, and which store has more.

A head names its whole history by digest, so equal heads mean equal commits, and nothing below a head is read.  Where
two heads differ, each store is asked for the head of the other.  Records beside the history (leases, approvals, the
states of calls after the last commit) are not compared: a copy ends leases, for example.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, get_args

import msgspec

from perdure.errors import NotFound
from perdure.model.digest import Digest
from perdure.model.head import Head
from perdure.store.memory import Memory
from perdure.store.timeline import Line

if TYPE_CHECKING:
    from perdure.store.store import Store

__all__ = ["Differing", "StoreComparison", "compare"]

Kind: TypeAlias = Literal["thread", "agent", "memory"]
Relation: TypeAlias = Literal["only_a", "only_b", "a_ahead", "b_ahead", "moved", "diverged"]
_PRESENT: dict[tuple[bool, bool], Relation] = {
    # whether A has the head of B, and B the head of A
    (True, True): "moved",
    (True, False): "a_ahead",
    (False, True): "b_ahead",
    (False, False): "diverged",
}


class Differing(msgspec.Struct, frozen=True, kw_only=True):
    """One timeline that the two stores do not have alike."""

    kind: str  # thread, agent, memory
    name: str  # of the thread, the agent or the owner
    timeline: str
    a: str | None  # the head in the first store; None: nothing is committed there
    b: str | None
    relation: str  # only_a, only_b, a_ahead, b_ahead, moved, diverged


class StoreComparison(msgspec.Struct, frozen=True, kw_only=True):
    """How far two stores hold the same."""

    counts: dict[str, int]  # by kind, of what either store has
    timelines: int
    differing: tuple[Differing, ...]

    @property
    def same(self) -> bool:
        """True if all heads are equal, and so all commits that they name."""
        return not self.differing


class _Heads(Protocol):
    """Something with timelines, in one store."""

    def heads(self) -> dict[str, Head]:
        """Return the head of each timeline by its name."""
        ...

    def has(self, commit: Digest) -> bool:
        """True if that commit is stored, on any timeline or undone."""
        ...


class _Lines:
    """The timelines of a thread, or the one of an agent's map."""

    def __init__(self, line: Line, heads: dict[str, Head]) -> None:
        self._line, self._heads = line, heads

    def heads(self) -> dict[str, Head]:
        return self._heads

    def has(self, commit: Digest) -> bool:
        with suppress(NotFound):
            self._line.at(commit)
            return True
        return False


class _Items:
    """The history of a memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def heads(self) -> dict[str, Head]:
        return {self._memory.head.timeline: self._memory.head}

    def has(self, commit: Digest) -> bool:
        with suppress(NotFound):
            self._memory.at(commit)
            return True
        return False


def compare(a: Store, b: Store) -> StoreComparison:
    """Compare two stores by their heads; both are only read."""
    counts: dict[str, int] = {}
    timelines = 0
    differing: list[Differing] = []
    for kind in get_args(Kind):
        first, second = _of(a, kind), _of(b, kind)
        counts[kind] = len(first.keys() | second.keys())
        for name in sorted(first.keys() | second.keys()):
            ours, theirs = first.get(name), second.get(name)
            lines = set(ours.heads() if ours else ()) | set(theirs.heads() if theirs else ())
            timelines += len(lines)
            differing += _differing(kind, name, sorted(lines), ours, theirs)
    return StoreComparison(counts=counts, timelines=timelines, differing=tuple(differing))


def _of(store: Store, kind: Kind) -> dict[str, _Heads]:
    """Return everything of that kind in a store, by name."""
    match kind:
        case "thread":
            return {
                each.id: _Lines(each, {hold.head.timeline: hold.head for hold in each.timelines()})
                for each in store.threads()
            }
        case "agent":
            maps = ((name, store.agent(name)) for name in store.agents())
            return {name: _Lines(each, {each.head.timeline: each.head}) for name, each in maps}
        case "memory":
            return {owner: _Items(store.memory(owner)) for owner in store.owners()}


def _differing(
    kind: Kind, name: str, timelines: list[str], ours: _Heads | None, theirs: _Heads | None
) -> Iterator[Differing]:
    for timeline in timelines:
        one = ours.heads().get(timeline) if ours else None
        other = theirs.heads().get(timeline) if theirs else None
        a, b = (None if head is None else head.commit for head in (one, other))
        if one is not None and other is not None and a == b:
            continue
        if one is None or other is None:
            relation: Relation = "only_b" if one is None else "only_a"
        else:
            relation = _PRESENT[_has(ours, b), _has(theirs, a)]
        yield Differing(kind=kind, name=name, timeline=timeline, a=a, b=b, relation=relation)


def _has(where: _Heads | None, commit: Digest | None) -> bool:
    """True if a store has that commit; None is before the first one, which every store has."""
    return where is not None and (commit is None or where.has(commit))
