"""Keeps search indexes at the root that a search needs, and splits text into search terms.

The index of an owner follows the head of the owner's memory, by the difference to its present root.  A
search at another commit gets a temporary index in memory at that root, with the vectors of the first index
where it has them.  An index that is missing, damaged or of another embedding function is rebuilt from the
map; an index only gives candidates.

Terms are letters and digits of any script, folded so that capitals and full-width forms make no
difference.  Scripts that are written without spaces are split letter by letter.  A symbol outside ASCII, such
as an emoji, is a term by itself, written as letter and digits because a tokenizer of words drops symbols.
Everything else is dropped, so no part of a text can be read as query language.  A pinned item has one term more,
by which all pinned items are found.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence

from perdure.engines.search_contract import SearchIndex, SearchRow
from perdure.errors import Corrupt, NotFound, Unavailable
from perdure.history.space import Space
from perdure.history.tree import EMPTY, PathChange, diff
from perdure.memory.embedding import Embedder
from perdure.model.digest import Digest
from perdure.model.memory import Version, decode_version, parse_version_path

__all__ = ["Indexing", "PINNED", "QUERY_TERMS_MAX", "query_terms", "read_versions", "terms"]


QUERY_TERMS_MAX = 64
PINNED = f"u{sys.maxunicode + 1}"  # no text has the symbol of which this would be the term

_WORD = re.compile(r"[^\W_]+|[^\w\s\x00-\x7f]")  # a word, or what may be a symbol
_SYMBOLS = ("So", "Sm", "Sc")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_COMMON = frozenset(
    [
        "a",
        "am",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "been",
        "but",
        "by",
        "can",
        "could",
        "did",
        "do",
        "does",
        "for",
        "from",
        "had",
        "has",
        "have",
        "he",
        "her",
        "his",
        "how",
        "i",
        "if",
        "in",
        "is",
        "it",
        "its",
        "may",
        "me",
        "might",
        "must",
        "my",
        "no",
        "not",
        "of",
        "on",
        "or",
        "our",
        "please",
        "shall",
        "she",
        "should",
        "so",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "to",
        "us",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
    ]
)  # English words that say nothing about a subject


def terms(text: str) -> Iterator[str]:
    """Yield the terms of a text, in order."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    for word in _WORD.findall(folded):
        if not word[0].isalnum():
            if unicodedata.category(word) in _SYMBOLS:
                yield f"u{ord(word)}"  # in decimal: a stemmer takes hexadecimal digits for an ending
        elif _UNSPACED.search(word) is None:
            yield word
        else:
            yield from _apart(word)


def query_terms(text: str) -> list[str]:
    """Return the first distinct terms of a query, at most `QUERY_TERMS_MAX`, without the words that every text has.

    A query of such words alone keeps them.
    """
    found: dict[str, None] = {}
    for term in terms(text):
        found.setdefault(term)
        if len(found) == QUERY_TERMS_MAX:
            break
    return [term for term in found if term not in _COMMON] or list(found)


def _apart(word: str) -> Iterator[str]:
    """Yield the letters of unspaced scripts one by one, and the text between them."""
    at = 0
    for letter in _UNSPACED.finditer(word):
        if letter.start() > at:
            yield word[at : letter.start()]
        yield letter.group()
        at = letter.end()
    if at < len(word):
        yield word[at:]


_UPDATES_MAX = 8  # of one index: each may read the whole map, so this is no case for `Attempts`
_BATCH = 256
_EMBEDDED = 64
_SPARE_MAX = 2


class Indexing:
    """The indexes of one owner's memory."""

    def __init__(
        self,
        own: SearchIndex,
        spare: Callable[[], SearchIndex],
        embedder: Embedder | None,
        *,
        read_only: bool,
    ) -> None:
        """Keep `own` at the head, and a few temporary indexes from `spare` at other roots."""
        self._own, self._spare, self._read_only = own, spare, read_only
        self._spares: dict[Digest, SearchIndex] = {}
        self.embedder = embedder

    def at(self, space: Space, root: Digest, *, newest: bool, vectors: bool = True) -> SearchIndex:
        """Return an index at `root`; `newest`: it is the root of the head.  Without `vectors` it may lack some.

        Raises `Unavailable` if no index can be moved there, or what the embedding function raises.
        """
        embedder = self.embedder if vectors else None
        if self._is_ready(self._own, root, embedder):
            return self._own
        if (
            newest
            and not self._read_only
            and not self._leaves_own()
            and self._move_to(self._own, space, root, embedder)
        ):
            return self._own
        spare = self._spares.pop(root, None) or self._spare()
        if not self._is_ready(spare, root, embedder) and not self._move_to(spare, space, root, embedder):
            raise Unavailable(
                "memory cannot be indexed now; nothing was searched.",
                code="memory_not_indexable",
                advice="Try again.",
            )
        self._spares[root] = spare
        while len(self._spares) > _SPARE_MAX:
            self._spares.pop(next(iter(self._spares))).close()
        return spare

    def throw_away(self) -> None:
        """Discard the indexes, because one of them contradicts the map; they are rebuilt on next use."""
        self._own.discard()
        self._drop_spares()

    def close(self) -> None:
        """Release everything."""
        self._own.close()
        self._drop_spares()

    def _drop_spares(self) -> None:
        while self._spares:
            self._spares.popitem()[1].close()

    def _leaves_own(self) -> bool:
        """True if the stored index has vectors of another function, which this one does not replace."""
        if self.embedder is None or not self.embedder.gives_way:
            return False
        return self._own.standing().model not in (None, self.embedder.name)

    def _is_ready(self, index: SearchIndex, root: Digest, embedder: Embedder | None) -> bool:
        standing = index.standing()
        if standing.root != root:
            return False
        if embedder is None:
            return True
        return standing.model == embedder.name and index.without_vector(root, limit=1) == []

    def _move_to(self, index: SearchIndex, space: Space, root: Digest, embedder: Embedder | None) -> bool:
        """Move an index to `root`; return False if other processes keep moving it elsewhere."""
        for _ in range(_UPDATES_MAX):
            before = index.standing().root
            if before != root and not _moved(index, space, before, root):
                continue
            if embedder is None or self._add_vectors(index, space, root, embedder):
                return True
        return False

    def _add_vectors(self, index: SearchIndex, space: Space, root: Digest, embedder: Embedder) -> bool:
        """Give every row its vector; return False if another process moved the index."""
        is_other = index.standing().model != embedder.name
        if is_other and not index.learn(root, embedder.name, {}, width=embedder.width):
            return False
        while bare := index.without_vector(root, limit=_EMBEDDED, claim=True):
            vectors = self._vectors(index, space, bare, embedder)
            if not index.learn(root, embedder.name, vectors, width=embedder.width):
                return False
        return bare is not None

    def _vectors(
        self, index: SearchIndex, space: Space, bare: Sequence[tuple[str, Digest]], embedder: Embedder
    ) -> dict[str, bytes]:
        digests = list(dict.fromkeys(digest for _, digest in bare))
        known = dict(self._own.vectors(digests, embedder.name)) if index is not self._own else {}
        new = [digest for digest in digests if digest not in known]
        texts = [_text(version) for version in read_versions(space, new)]
        vectors = embedder.vectors(texts) if texts else []
        known |= {digest: vector or b"" for digest, vector in zip(new, vectors, strict=True)}
        return {path: known[digest] for path, digest in bare}


def _moved(index: SearchIndex, space: Space, before: Digest | None, root: Digest) -> bool:
    """Move an index to `root` by the difference; rebuild it if its present root can no longer be read."""
    if before is not None:
        try:
            changes = list(diff(space.tree(before), space.tree(root)))
        except (NotFound, Corrupt):  # rebuild it from the whole map
            before = None
        else:
            gone = [change.path for change in changes if change.before is not None]
            return index.move(before, root, gone, _rows(space, changes))
    return index.move(None, root, (), _rows(space, diff(space.tree(EMPTY), space.tree(root))))


def _rows(space: Space, changes: Iterator[PathChange] | Sequence[PathChange]) -> Iterator[SearchRow]:
    """Yield the rows of the entries after these changes, reading a batch at a time."""
    batch: list[tuple[str, Digest]] = []
    for change in changes:
        if change.after is not None:
            batch.append((change.path, change.after.value))
        if len(batch) == _BATCH:
            yield from _read(space, batch)
            batch = []
    yield from _read(space, batch)


def _read(space: Space, batch: Sequence[tuple[str, Digest]]) -> Iterator[SearchRow]:
    versions = read_versions(space, [digest for _, digest in batch])
    for (path, digest), version in zip(batch, versions, strict=True):
        item, _ = parse_version_path(path)
        if version.item is None:
            yield SearchRow(path=path, item=item, digest=digest)
        else:
            words = " ".join((*terms(version.item.text), *([PINNED] if version.item.pinned else [])))
            kind, scope = version.item.kind, version.item.scope
            yield SearchRow(path=path, item=item, digest=digest, kind=kind, scope=scope, words=words)


def read_versions(space: Space, digests: Sequence[Digest]) -> list[Version]:
    """Return the versions of items that these values of a map hold; one that was erased has no item."""
    found = space.objects_there(digests)
    return [Version() if each is None else decode_version(each.body) for each in found]


def _text(version: Version) -> str:
    return "" if version.item is None else version.item.text
