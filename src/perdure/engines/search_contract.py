"""The search index: words and vectors of one owner's memory, as data that is derived and never the truth.

An index stands at one root of the map that it was made from, and holds exactly what that root
names: a pure function of it, so that ranking depends on nothing else.  It is moved from root to
root by what differs between them.  Each owner has an index of its own, so that no search can
find, or be ranked by, what is another's.

Whatever is wrong with an index, its answer is to stand nowhere: then it is made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from perdure.model.digest import Digest

__all__ = ["Filters", "Hit", "SearchRow", "SearchIndex", "IndexPosition"]


class SearchRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One version of an item, as it is searched for."""

    path: str
    item: str
    digest: Digest  # of what the map holds there
    kind: str = ""
    scope: str = ""
    words: str | None = None  # what it is found by, in terms with spaces between; None: it is never found


class Hit(msgspec.Struct, frozen=True, gc=False):
    """Something that was found, and how far it is from what was asked: less is better."""

    path: str
    item: str
    digest: Digest
    distance: float


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What is searched among; None is everything."""

    kind: str | None = None
    scope: str | None = None


class IndexPosition(msgspec.Struct, frozen=True):
    """Where an index stands."""

    root: Digest | None  # None: nowhere, it has to be made
    model: str | None = None  # who made its vectors; None: it has none


class SearchIndex(Protocol):
    """Words and vectors that can be searched.  Thread-safe; safe to use from several processes."""

    def standing(self) -> IndexPosition:
        """Where it stands now."""
        ...

    def move(
        self, before: Digest | None, after: Digest, gone: Iterable[str], rows: Iterable[SearchRow]
    ) -> bool:
        """Go from one root to another by what differs; False, changing nothing, if it does not stand at `before`.

        `before=None` begins anew.  Rows that are new have no vector yet.
        """
        ...

    def found(
        self, root: Digest, terms: Sequence[str], among: Filters, *, limit: int
    ) -> Sequence[Hit] | None:
        """What holds any of these terms, the best first, ties by item and path; None if it does not stand at `root`.

        Terms are data: whatever they hold, none of it is taken for a part of the query language.
        """
        ...

    def near(self, root: Digest, vector: bytes, among: Filters, *, limit: int) -> Sequence[Hit] | None:
        """What is nearest to a vector, the nearest first, ties by item and path; None as `found`."""
        ...

    def without_vector(self, root: Digest, *, limit: int) -> Sequence[tuple[str, Digest]] | None:
        """The path and digest of what has words and no vector; None as `found`."""
        ...

    def learn(self, root: Digest, model: str, vectors: Mapping[str, bytes], *, width: int) -> bool:
        """Take vectors of `width` float32 each, by path, or none, which is never near; False as `move`.

        Those of another model go first.
        """
        ...

    def vectors(self, digests: Sequence[Digest], model: str) -> Mapping[Digest, bytes]:
        """The vectors that it has of these versions by that model."""
        ...

    def discard(self) -> None:
        """Throw everything away; it stands nowhere then."""
        ...

    def close(self) -> None:
        """Release everything.  Closing again is no error."""
        ...
