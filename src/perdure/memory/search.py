"""Searching a memory: full text and vectors, fused by rank.

Each leg ranks what it finds; an item's score is the sum of 1 / (60 + its rank) over the legs that found
it (reciprocal rank fusion), and ties are settled by id.  So the order depends on ranks alone, and
the two kinds of distance need not be comparable.  What is asked for (owner, kind, scope) is applied
before anything is ranked; what cannot be reached, is out of date or has expired is passed over, and the next one
takes its rank.

An index only says where to look.  Every hit is held against the map, and an index that says something
else than the map is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from perdure.engines.search_contract import Filters, Hit, SearchIndex
from perdure.errors import Invalid, Unavailable
from perdure.memory.index import query_terms
from perdure.memory.owner_memory import Line, MemorySnapshot, OwnerMemory
from perdure.memory.visibility import Judged, Visibility
from perdure.model.digest import Digest
from perdure.model.memory import KINDS, ItemKind, Remembered, Source, Trust, check_scope

__all__ = ["LIMIT_MAX", "Found", "Leg", "Recall", "relevant"]

Leg: TypeAlias = Literal["text", "vector"]

LIMIT_MAX = 1_000

_RANK_OFFSET = 60
_DEPTH_MIN = 20  # how many each of two legs looks for at least: fusing needs more than is shown
_TRIES_MAX = 8


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An item that was found: how well, and by which legs."""

    item: Remembered
    score: float
    legs: tuple[Leg, ...]

    @property
    def id(self) -> str:
        """The item's id."""
        return self.item.id

    @property
    def text(self) -> str:
        """Its words."""
        return self.item.text

    @property
    def kind(self) -> ItemKind:
        """What kind of item it is."""
        return self.item.kind

    @property
    def trust(self) -> Trust:
        """Who said it."""
        return self.item.trust

    @property
    def source(self) -> Source | None:
        """Where it comes from; None: it was added by hand."""
        return self.item.source

    @property
    def reference(self) -> str:
        """`mem://<scope>/<owner>/<id>@<commit>`: this version of it, for ever."""
        return self.item.reference


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found, the best first; it can be gone over like a list."""

    items: tuple[Found, ...]
    legs: tuple[Leg, ...]  # which were asked: without an embedding function, text alone
    sight: MemorySnapshot  # what was searched: given again with the same question, the answer is the same

    def __iter__(self) -> Iterator[Found]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return what was found."""
        return iter(self.items)

    def __len__(self) -> int:
        """Return how many."""
        return len(self.items)

    def __getitem__(self, at: int) -> Found:
        """One of them."""
        return self.items[at]


class _IndexTaken(Exception):
    """The index was taken to another root while it was asked."""


class _Damaged(Exception):
    """The index does not say what the map says."""


def relevant(
    memory: OwnerMemory,
    query: str,
    *,
    limit: int = 8,
    kind: ItemKind | None = None,
    scope: str | None = None,
    sight: MemorySnapshot | None = None,
    line: Line | None = None,
) -> Recall:
    """Return what the memory holds about `query`, the best first.

    `sight` is that of an earlier answer, to get the same again; None looks at the memory as it is now.
    `line` is where the one who asks stands, whose own commits count whether or not a head holds them.
    Raises `Invalid` for what cannot be asked, `Unavailable` if the embedding function fails.
    """
    _check(query, limit, kind, scope)
    judge = Visibility(memory, sight, line)
    legs: tuple[Leg, ...] = ("text",) if memory.indexing.embedder is None else ("text", "vector")
    if judge.sight.commit is None:
        return Recall(items=(), legs=legs, sight=judge.sight)
    depth = limit if len(legs) == 1 else max(2 * limit, _DEPTH_MIN)
    ranked = _ranked(judge, query, Filters(kind=kind, scope=scope), depth)
    items = tuple(_fused(judge, ranked, limit))
    return Recall(items=items, legs=legs, sight=judge.seen())


def _ranked(judge: Visibility, query: str, among: Filters, depth: int) -> dict[Leg, list[Judged]]:
    """Return what each leg finds, as an index that stands where we look says it."""
    memory, root = judge.memory, judge.sight.root
    newest = judge.sight.commit == memory.commit
    for _ in range(_TRIES_MAX):
        index = memory.indexing.at(memory.space, root, newest=newest)
        try:
            return {leg: _leg(ask, judge, depth) for leg, ask in _legs(memory, index, root, query, among)}
        except _IndexTaken:
            newest = False  # another process has gone on: look at what we saw in an index of our own
        except _Damaged:
            memory.indexing.throw_away()
    raise Unavailable("memory cannot be searched now; nothing was found. Try again.")


_Ask: TypeAlias = Callable[[int], Sequence[Hit]]


def _legs(
    memory: OwnerMemory, index: SearchIndex, root: Digest, query: str, among: Filters
) -> Iterator[tuple[Leg, _Ask]]:
    words = query_terms(query)
    yield "text", lambda limit: _there(index.found(root, words, among, limit=limit))
    embedder = memory.indexing.embedder
    if embedder is not None:
        (vector,) = embedder.vectors([query])
        if vector is not None:
            yield "vector", lambda limit: _there(index.near(root, vector, among, limit=limit))


def _there(hits: Sequence[Hit] | None) -> Sequence[Hit]:
    if hits is None:
        raise _IndexTaken
    return hits


def _leg(ask: _Ask, judge: Visibility, depth: int) -> list[Judged]:
    """Return the first `depth` hits that count."""
    limit = depth
    while True:
        hits = ask(limit)
        judge.prepare([hit.path for hit in hits])
        judged = [judge.of(hit.item, hit.path, hit.digest) for hit in hits]
        if any(each is None for each in judged):
            raise _Damaged
        counting = [each for each in judged if each is not None and each.counts]
        if len(counting) >= depth or len(hits) < limit:
            return counting[:depth]
        limit *= 4


def _fused(judge: Visibility, ranked: dict[Leg, list[Judged]], limit: int) -> list[Found]:
    scores: dict[str, float] = {}
    legs: dict[str, list[Leg]] = {}
    found: dict[str, Judged] = {}
    for leg, hits in ranked.items():
        for rank, hit in enumerate(hits, 1):
            scores[hit.id] = scores.get(hit.id, 0.0) + 1 / (_RANK_OFFSET + rank)
            legs.setdefault(hit.id, []).append(leg)
            found[hit.id] = hit
    order = sorted(scores, key=lambda id: (-scores[id], id))
    return [
        Found(item=judge.remembered(found[id]), score=round(scores[id], 6), legs=tuple(legs[id]))
        for id in order[:limit]
    ]


def _check(query: str, limit: int, kind: str | None, scope: str | None) -> None:
    if not isinstance(query, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(f"memory is searched for words, not {query!r}; nothing was searched.")
    if type(limit) is not int or not 0 < limit <= LIMIT_MAX:
        raise Invalid(f"a limit is a number from 1 to {LIMIT_MAX}, not {limit!r}; nothing was searched.")
    if kind is not None and kind not in KINDS:
        raise Invalid(f"kind is one of {', '.join(KINDS)}, not {kind!r}; nothing was searched.")
    if scope is not None:
        check_scope(scope)
