"""The contract of a search index: words and vectors of one owner's memory, derived from the map and never the truth.

An index is at one root of the map that it was made from, and holds exactly what that root
names: a pure function of it, so that ranking depends on nothing else.  It moves from root to
root by the difference between them.  Each owner has an index of its own, so that no search can
find, or be ranked by, what belongs to another owner.

If anything is wrong with an index, it reports that it is at no root; the caller then builds it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from perdure.model.digest import Digest

__all__ = ["INDEX_FORMAT", "Filters", "Hit", "SearchRow", "SearchIndex", "IndexPosition"]

INDEX_FORMAT = 2
"""What an index holds of a text.  It rises when other terms are made of a text, or another vector by the same model.

An index of another format is at no root, so it is built again.
"""


class SearchRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One version of an item, as it is searched for."""

    path: str
    item: str
    digest: Digest  # of the value at `path`
    kind: str = ""
    scope: str = ""
    words: str | None = None  # what it is found by, in terms with spaces between; None: it is never found


class Hit(msgspec.Struct, frozen=True, gc=False):
    """Something that was found, and its distance from the query: less is better."""

    path: str
    item: str
    digest: Digest
    distance: float


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Restricts a search; None means no restriction."""

    kind: str | None = None
    scope: str | None = None


class IndexPosition(msgspec.Struct, frozen=True):
    """The root that an index is at."""

    root: Digest | None  # None: it has to be built
    model: str | None = None  # the model of its vectors; None: it has none


class SearchIndex(Protocol):
    """Words and vectors that can be searched.  Thread-safe; safe to use from several processes."""

    def standing(self) -> IndexPosition:
        """Return the root that the index is at now."""
        ...

    def move(
        self, before: Digest | None, after: Digest, gone: Iterable[str], rows: Iterable[SearchRow]
    ) -> bool:
        """Go from one root to another by their difference; False, changing nothing, if the index is not at `before`.

        `before=None` begins with an empty index.  Rows that are new have no vector yet.
        """
        ...

    def found(
        self, root: Digest, terms: Sequence[str], among: Filters, *, limit: int
    ) -> Sequence[Hit] | None:
        """Return what has any of these terms, the best first, ties by item and path; None if the index is not at `root`.

        Terms are data: no part of them is read as query language.
        """
        ...

    def near(self, root: Digest, vector: bytes, among: Filters, *, limit: int) -> Sequence[Hit] | None:
        """Return what is nearest to a vector, the nearest first, ties by item and path; None as `found`."""
        ...

    def without_vector(
        self, root: Digest, *, limit: int, claim: bool = False
    ) -> Sequence[tuple[str, Digest]] | None:
        """Return the path and digest of what has words and no vector; None as `found`.

        With `claim` the caller is about to make their vectors.  An index on a server then returns each to one process
        for a while, and waits for what other processes are making, so that no text is embedded twice.
        """
        ...

    def learn(self, root: Digest, model: str, vectors: Mapping[str, bytes], *, width: int) -> bool:
        """Add vectors of `width` float32 each, by path; an empty one is never near.  False if the index is not at `root`.

        Vectors of another model are removed first.  An index that is no longer at `root` may keep vectors of what
        the caller has claimed.
        """
        ...

    def vectors(self, digests: Sequence[Digest], model: str) -> Mapping[Digest, bytes]:
        """Return the vectors that the index has of these versions by that model."""
        ...

    def discard(self) -> None:
        """Remove everything; the index is then at no root."""
        ...

    def close(self) -> None:
        """Release everything.  Closing again is no error."""
        ...
