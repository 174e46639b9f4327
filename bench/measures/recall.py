"""Searching what is remembered: ours against the same query as the bare engine answers it.

Half of the items were added by hand, half were written by calls of many threads, so that each of those found
has to be compared with the heads of its thread.  The baseline is FTS5, or sqlite-vec, asked for row
numbers alone, in a file of the same rows.  Making a vector of the question is not counted: both get it made.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import perdure
from bench.ground import Ground, median
from bench.table import Result, Skipped
from perdure import Agent, Call, Store, testing
from perdure.memory.index import query_terms, terms

_ITEMS, _ITEMS_TINY = 20_000, 60
_BY_CALL = 25  # items that one call writes
_WORDS = 2_000
_LENGTH = 12
_WIDTH = 384
_ASKED = 60
_BAR = 3.0
_OWNER = "ann"


def measure(ground: Ground) -> Iterable[Result | Skipped]:
    try:
        import sqlite_vec
    except ImportError:
        yield Skipped(measure="recall", why="sqlite-vec is not installed")
        return
    count = _ITEMS_TINY if ground.sizes.turns < 100 else _ITEMS
    directory = ground.fresh()
    directory.mkdir(parents=True, exist_ok=True)
    texts = _texts(count)
    ground.tell(f"recall: remembering {count:,} items")
    _fill(directory, texts)
    bare = _Bare(directory / "bare.db", texts, sqlite_vec.loadable_path())
    ground.tell("recall: indexing, then asking")
    asked = [" ".join(_pick(number, 3)) for number in range(_ASKED)]
    with perdure.open(directory / "perdure.db", durability="process_crash") as store:
        yield _compared(f"search {count:,} items by words", store, bare.by_words, asked)
    with perdure.open(directory / "perdure.db", durability="process_crash", embed=_embed) as store:
        # Words that no item has: the leg for words finds nothing, and what is left is the other one.
        yield _compared(
            f"search {count:,} items by vectors",
            store,
            bare.by_vector,
            [f"unheard{n}" for n in range(_ASKED)],
        )
    bare.close()
    ground.drop(directory)


def _compared(what: str, store: Store, bare: Callable[[str], Any], asked: list[str]) -> Result:
    memory = store.memory(_OWNER)
    memory.search(asked[0], limit=10)  # brings the index here
    ours: list[float] = []
    theirs: list[float] = []
    for query in asked:
        _embed([query])
        ours.append(_timed(lambda query=query: memory.search(query, limit=10)))
        theirs.append(_timed(lambda query=query: bare(query)))
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return Result(
        measure=what,
        ours=median(ours),
        baseline=median(theirs),
        unit="s",
        baseline_is="the bare engine",
        bound="at most",
        bar=_BAR,
        given_ratio=median(ratios),
    )


def _timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class _Bare:
    """The engine alone, with the same rows."""

    def __init__(self, path: Path, texts: list[str], extension: str) -> None:
        import apsw

        self._db = db = apsw.Connection(str(path))
        db.enable_load_extension(True)
        db.load_extension(extension)
        db.pragma("journal_mode", "wal")
        db.pragma("cache_size", -16_000)
        db.execute("BEGIN")
        db.execute(
            "CREATE VIRTUAL TABLE words USING fts5(terms, tokenize='porter unicode61 remove_diacritics 2')"
        )
        db.execute(
            f"CREATE VIRTUAL TABLE vectors USING vec0(embedding float[{_WIDTH}] distance_metric=cosine)"
        )
        rows = [(at, " ".join(terms(text))) for at, text in enumerate(texts, 1)]
        db.executemany("INSERT INTO words(rowid, terms) VALUES (?, ?)", rows)
        made = ((at, array("f", vector).tobytes()) for at, vector in enumerate(_embed(texts), 1))
        db.executemany("INSERT INTO vectors(rowid, embedding) VALUES (?, ?)", made)
        db.execute("COMMIT")

    def by_words(self, query: str) -> list[Any]:
        match = " OR ".join(f'"{term}"' for term in query_terms(query))
        sql = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT 10"
        return self._db.execute(sql, (match,)).fetchall()

    def by_vector(self, query: str) -> list[Any]:
        (vector,) = _embed([query])
        sql = "SELECT rowid, distance FROM vectors WHERE embedding MATCH ? AND k = 10"
        return self._db.execute(sql, (array("f", vector).tobytes(),)).fetchall()

    def close(self) -> None:
        self._db.close()


def _fill(directory: Path, texts: list[str]) -> None:
    half = len(texts) // 2
    with perdure.open(directory / "perdure.db", durability="process_crash") as store:
        memory = store.memory(_OWNER)
        for number, text in enumerate(texts[:half]):
            memory.add(text, id=f"hand-{number}")
        for start in range(half, len(texts), _BY_CALL):
            _call(store, start, texts[start : start + _BY_CALL])


def _call(store: Store, start: int, texts: list[str]) -> None:
    """A thread of its own whose one call remembers these texts."""

    @perdure.tool(effect="local_write")
    def note(call: Call) -> str:
        for number, text in enumerate(texts, start):
            call.memory.add(text, id=f"call-{number}")
        return "noted"

    script = testing.Script(testing.use("note"), testing.say("Noted."))
    thread = store.thread(f"t{start}", agent=Agent("noter", backend=script, tools=[note]), owner=_OWNER)
    thread.run("Note them")


def _texts(count: int) -> list[str]:
    return [" ".join(_pick(number, _LENGTH)) for number in range(count)]


def _pick(seed: int, count: int) -> list[str]:
    """Words as people use them: a few often, most seldom."""
    dice = random.Random(seed)
    return [f"word{min(int(dice.paretovariate(0.6)), _WORDS)}" for _ in range(count)]


_made: dict[str, list[float]] = {}


def _embed(texts: list[str]) -> list[list[float]]:
    return [_made.get(text) or _made.setdefault(text, _vector(text)) for text in texts]


def _vector(text: str) -> list[float]:
    dice = random.Random(text)
    return [dice.gauss(0, 1) for _ in range(_WIDTH)]
