"""Searches a memory by full text and vectors, fused by rank.

Each leg ranks what it finds; an item's score is the sum of 61 / (60 + its rank) over the legs that found
it, divided by the number of legs (reciprocal rank fusion).  So the order depends on ranks alone, and the two kinds
of distance need not be comparable.  Of two items with the same score the one that is further up by words comes
first: few items have a rare word, and every item has some vector.  What is still equal is ordered by id.

A score is above 0 and at most 1, the score of the item that every leg found first, whether one leg was searched or
two.  It says how far up an item is among what was found; how close it is to the query is its similarity, which can
be compared between queries.  An item that only its words found has a similarity too, if it and the query have
vectors.

The filters (owner, kind, scope) are applied before anything is ranked.  A version that is unreachable, out of date
or expired is skipped, and the next one takes its rank.

An index only gives candidates.  Every hit is checked against the map, and an index that contradicts
the map is rebuilt.
"""

from __future__ import annotations

import math
import operator
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

import msgspec

from perdure.engines.search_contract import Filters, Hit, SearchIndex
from perdure.errors import Invalid, Unavailable
from perdure.memory.index import PINNED, query_terms
from perdure.memory.owner_memory import Line, MemorySnapshot, OwnerMemory
from perdure.memory.visibility import Judged, Visibility
from perdure.model.digest import Digest
from perdure.model.memory import KINDS, ItemKind, Remembered, Source, Trust, check_scope

__all__ = ["Found", "MemoryForRun", "Recall", "for_run", "relevant"]

Leg: TypeAlias = Literal["text", "vector"]
_T = TypeVar("_T")

LIMIT_MAX = 1_000

_RANK_OFFSET = 60
_SHOWN = 60  # letters of an item in the repr of an answer
_DEPTH_MIN = 20  # hits that each of two legs looks for at least: fusion needs more than the result shows
_SEARCHES_MAX = 8  # of one query: each may rebuild an index, so this is no case for `Attempts`


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An item that was found, with its score and the legs that found it."""

    item: Remembered
    score: float  # above 0, and 1 for an item that every leg found first
    legs: tuple[Leg, ...]
    # the cosine of its vector and the query's, from -1 to 1; None: it or the query has no vector
    similarity: float | None = None

    @property
    def id(self) -> str:
        """The item's id."""
        return self.item.id

    @property
    def text(self) -> str:
        """The item's text."""
        return self.item.text

    @property
    def kind(self) -> ItemKind:
        """The item's kind."""
        return self.item.kind

    @property
    def scope(self) -> str:
        """What the item is about."""
        return self.item.scope

    @property
    def at(self) -> int:
        """When it was written, in µs since 1970, UTC; of two items that contradict each other it tells the newer."""
        return self.item.at

    @property
    def trust(self) -> Trust:
        """The kind of its source."""
        return self.item.trust

    @property
    def source(self) -> Source | None:
        """The commit that wrote it; None: it was added directly."""
        return self.item.source

    @property
    def reference(self) -> str:
        """`mem://<scope>/<owner>/<id>@<commit>`: names this version for ever."""
        return self.item.reference


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search, the best first; it can be iterated like a list."""

    items: tuple[Found, ...]
    # those that were searched: text alone without an embedding function, or if the query has no vector
    legs: tuple[Leg, ...]
    sight: MemorySnapshot  # what was searched: with the same query it gives the same answer

    def __repr__(self) -> str:
        """Show what was found, and how it was searched."""
        items = ", ".join(repr(each.item.text[:_SHOWN]) for each in self.items) or "nothing"
        if "vector" in self.legs:
            return f"<found by words and meaning: {items}>"
        more = "perdure.open(…, embed='auto') searches by meaning too, if the model knows the words"
        return f"<found by words alone: {items}; {more}>"

    def __iter__(self) -> Iterator[Found]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return an iterator over the items."""
        return iter(self.items)

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.items)

    def __getitem__(self, at: int) -> Found:
        """Return one item."""
        return self.items[at]


class _IndexTaken(Exception):
    """Another process moved the index to another root during the search."""


class _Damaged(Exception):
    """The index contradicts the map."""


def relevant(
    memory: OwnerMemory,
    query: str,
    *,
    limit: int = 8,
    kind: ItemKind | None = None,
    scope: str | None = None,
    similarity_min: float | None = None,
    sight: MemorySnapshot | None = None,
    line: Line | None = None,
) -> Recall:
    """Return the items about `query`, the best first.

    Items of less than `similarity_min` are not found, by their words either; items without a vector are.  None: what
    vectors find is bound by the least similarity of the embedding function, which a function of the program has not.

    `sight` is the snapshot of an earlier answer, to get the same again; None searches the memory as it is now.
    `line` is the position of the caller, whose own commits count whether or not a head has them.
    Raises `Invalid` for a query that is not one, `Unavailable` if the embedding function fails.
    """
    _check(query, limit, kind, scope, similarity_min)
    judge = Visibility(memory, sight, line)
    legs: tuple[Leg, ...] = ("text",) if memory.indexing.embedder is None else ("text", "vector")
    if judge.sight.commit is None:
        return Recall(items=(), legs=legs, sight=judge.sight)
    among = Filters(kind=kind, scope=scope)
    ranked = _asked(judge, lambda index: _ranked(index, judge, query, among, limit))
    items = tuple(_fused(judge, ranked, limit, similarity_min))
    return Recall(items=items, legs=tuple(ranked.legs), sight=judge.seen())


class MemoryForRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is shown of a memory."""

    pinned: tuple[Remembered, ...] = ()  # newest first
    left_out: int = 0  # older pinned items, which the limit leaves out
    found: tuple[Remembered, ...] = ()  # for the input, the best first
    root: Digest | None = None  # of the map that was searched; None: none was


def for_run(memory: OwnerMemory, query: str, *, limit: int, line: Line | None = None) -> MemoryForRun:
    """Return the pinned items and what is found about `query`, at most `limit` in all, as a caller at `line` sees them.

    Without words in the query no vector is computed.  Raises as `relevant` does.
    """
    _check(query, limit, None, None, None)
    judge, is_asked = Visibility(memory, None, line), bool(query.strip())
    if judge.sight.commit is None:
        return MemoryForRun()

    def ask(index: SearchIndex) -> tuple[list[Judged], list[Found]]:
        pins = _pins(index, judge)
        ranked = _ranked(index, judge, query, Filters(), limit) if is_asked else _Ranking({"text": []}, {})
        return pins, list(_fused(judge, ranked, limit, None))

    pins, found = _asked(judge, ask, vectors=is_asked)
    ids = {pin.id for pin in pins}
    others = [each.item for each in found if each.id not in ids]
    return MemoryForRun(
        pinned=tuple(map(judge.remembered, pins[:limit])),
        left_out=len(pins[limit:]),
        found=tuple(others[: max(0, limit - len(pins))]),
        root=judge.sight.root if is_asked or pins else None,
    )


def _asked(judge: Visibility, ask: Callable[[SearchIndex], _T], *, vectors: bool = True) -> _T:
    """Return what `ask` finds in an index at the root of the snapshot."""
    memory, root = judge.memory, judge.sight.root
    newest = judge.sight.commit == memory.commit
    for _ in range(_SEARCHES_MAX):
        try:
            return ask(memory.indexing.at(memory.space, root, newest=newest, vectors=vectors))
        except _IndexTaken:
            newest = False  # another process moved the shared index: search a private one
        except _Damaged:
            memory.indexing.throw_away()
    raise Unavailable(
        "memory cannot be searched now; nothing was found.", code="memory_not_searchable", advice="Try again."
    )


class _Ranking(msgspec.Struct, frozen=True):
    """What each leg that was searched found, the best first."""

    legs: dict[Leg, list[Judged]]
    similarities: dict[Digest, float]  # by version: of all that has a vector, whichever leg found it


def _pins(index: SearchIndex, judge: Visibility) -> list[Judged]:
    """Return the pinned items, newest first."""
    root = judge.sight.root
    hits = _leg(lambda limit: index.found(root, (PINNED,), Filters(), limit=limit), judge, LIMIT_MAX)
    pins = [(hit.version.item, hit) for hit, _ in hits if hit.version.item and hit.version.item.pinned]
    return [hit for _, hit in sorted(pins, key=lambda pin: (-pin[0].at, pin[1].id))]


def _ranked(index: SearchIndex, judge: Visibility, query: str, among: Filters, limit: int) -> _Ranking:
    """Return what is found in an index by words and, if the query has a vector, by vectors."""
    root, embedder, words = judge.sight.root, judge.memory.indexing.embedder, query_terms(query)
    depth = limit if embedder is None else max(2 * limit, _DEPTH_MIN)
    by_words = _leg(lambda limit: index.found(root, words, among, limit=limit), judge, depth)
    legs: dict[Leg, list[Judged]] = {"text": [hit for hit, _ in by_words]}
    vector = None if embedder is None else embedder.vectors([query])[0]
    if embedder is None or vector is None:
        return _Ranking(legs, {})
    near = _leg(lambda limit: index.near(root, vector, among, limit=limit), judge, depth)
    legs["vector"] = [hit for hit, _ in near]
    similarities = {hit.entry.value: 1 - distance for hit, distance in near}
    others = [hit.entry.value for hit in legs["text"] if hit.entry.value not in similarities]
    vectors: Mapping[Digest, bytes] = index.vectors(others, embedder.name) if others else {}
    if len(vectors) < len(others) and index.standing().root != root:
        raise _IndexTaken
    similarities |= {digest: _cosine(vector, other) for digest, other in vectors.items()}
    return _Ranking(legs, similarities)


def _cosine(one: bytes, other: bytes) -> float:
    """Return the cosine of two vectors of length 1, rounded as the distances of an index are."""
    return round(math.fsum(map(operator.mul, array("f", one), array("f", other))), 6)


def _leg(
    search: Callable[[int], Sequence[Hit] | None], judge: Visibility, depth: int
) -> list[tuple[Judged, float]]:
    """Return the first `depth` hits that count, each with its distance from the query."""
    limit = depth
    while True:
        hits = search(limit)
        if hits is None:
            raise _IndexTaken
        judge.prepare([hit.path for hit in hits])
        judged = [(judge.of(hit.item, hit.path, hit.digest), hit.distance) for hit in hits]
        if any(each is None for each, _ in judged):
            raise _Damaged
        counting = [(each, distance) for each, distance in judged if each is not None and each.counts]
        if len(counting) >= depth or len(hits) < limit:
            return counting[:depth]
        limit *= 4


def _fused(judge: Visibility, ranked: _Ranking, limit: int, similarity_min: float | None) -> Iterator[Found]:
    """Yield the items with the highest scores; without a bar that the caller gives, that of the function binds its leg."""
    scores: dict[str, float] = {}
    legs: dict[str, list[Leg]] = {}
    found: dict[str, Judged] = {}
    by_words = {hit.id: rank for rank, hit in enumerate(ranked.legs["text"])}
    embedder = judge.memory.indexing.embedder
    bar = -1.0 if embedder is None else embedder.similarity_min
    for leg, hits in ranked.legs.items():
        least = (bar if leg == "vector" else -1.0) if similarity_min is None else similarity_min
        near = [hit for hit in hits if ranked.similarities.get(hit.entry.value, 1.0) >= least]
        for rank, hit in enumerate(near, 1):
            share = (_RANK_OFFSET + 1) / (_RANK_OFFSET + rank) / len(ranked.legs)
            scores[hit.id] = scores.get(hit.id, 0.0) + share
            legs.setdefault(hit.id, []).append(leg)
            found[hit.id] = hit
    for id in sorted(scores, key=lambda id: (-scores[id], by_words.get(id, math.inf), id))[:limit]:
        similarity = ranked.similarities.get(found[id].entry.value)
        yield Found(
            item=judge.remembered(found[id]),
            score=round(scores[id], 4),
            legs=tuple(legs[id]),
            similarity=None if similarity is None else round(similarity, 4),
        )


def _check(query: str, limit: int, kind: str | None, scope: str | None, similarity_min: float | None) -> None:
    if similarity_min is not None and not -1 <= similarity_min <= 1:
        raise Invalid(
            f"a similarity is a number from -1 to 1, not {similarity_min!r}; nothing was searched.",
            code="similarity_invalid",
        )
    if not isinstance(query, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"memory is searched for words, not {query!r}; nothing was searched.", code="query_not_text"
        )
    if type(limit) is not int or not 0 < limit <= LIMIT_MAX:
        raise Invalid(
            f"a limit is a number from 1 to {LIMIT_MAX}, not {limit!r}; nothing was searched.",
            code="limit_invalid",
            limit=LIMIT_MAX,
        )
    if kind is not None and kind not in KINDS:
        raise Invalid(
            f"kind is one of {', '.join(KINDS)}, not {kind!r}; nothing was searched.",
            code="choice_invalid",
            what="kind",
            choices=KINDS,
        )
    if scope is not None:
        check_scope(scope)
