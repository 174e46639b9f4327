"""`perdure memory search`."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from perdure.cli.commands.memory.shapes import AnyKind, AnyScope, FoundShape, Owner, near_what_was_asked
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Column, Screen, shortened
from perdure.errors import Unavailable
from perdure.store.open_store import open as open_store
from perdure.store.store import Store

__all__ = ["MemorySearchAnswer", "search"]

_TEXT_SHOWN = 200
_COLUMNS = (
    Column("score", right=True),
    Column("text", gives_way=True),
    Column("found by"),
    Column("kind"),
    Column("said by"),
    Column("item", "name"),
)


class MemorySearchAnswer(Answer, frozen=True, kw_only=True):
    """What a search found, the best first."""

    owner: str
    query: str
    legs: list[str]  # text, vector: how it was searched
    found: list[FoundShape]
    near: list[str]  # where there is nothing: owners or scopes that may have been meant

    def show(self, screen: Screen) -> None:
        """Print a table, and how it was searched."""
        if not self.found:
            meant = f" Did you mean {' or '.join(self.near)}?" if self.near else ""
            screen.say("Nothing was found for ", (self.owner, "name"), f".{meant}")
        else:
            screen.table(
                _COLUMNS,
                [
                    (
                        f"{each.score:.4f}",
                        shortened(each.item.text, _TEXT_SHOWN),
                        " + ".join(each.legs),
                        each.item.kind,
                        each.item.trust,
                        each.item.id,
                    )
                    for each in self.found
                ],
            )
        if "vector" not in self.legs:
            screen.say(("By words alone; --embed minilm searches by meaning too.", "quiet"))


def search(
    query: Annotated[str, Parameter(name="QUERY", help="What to look for", allow_leading_hyphen=True)],
    /,
    *,
    owner: Owner,
    kind: AnyKind = None,
    scope: AnyScope = None,
    limit: Annotated[int, Parameter(metavar="N", help="At most this many")] = 8,
    embed: Annotated[
        Literal["minilm"] | None,
        Parameter(help="Search by meaning too, with this model", show_default=False),
    ] = None,
    everywhere: Everywhere = EVERYWHERE,
) -> MemorySearchAnswer:
    """Search the memory of an owner, best match first

    Each word of the query is searched as it is; there are no operators.
    """
    with _opened(everywhere.store, embed) as store:
        found = store.memory(owner).search(query, limit=limit, kind=kind, scope=scope)
        return MemorySearchAnswer(
            owner=owner,
            query=query,
            legs=list(found.legs),
            found=[FoundShape.of(each) for each in found],
            near=[] if found else near_what_was_asked(store, owner, scope),
        )


def _opened(place: str, embed: Literal["minilm"] | None) -> Store:
    """Open the store for writing, so that it keeps the search index; for reading if it cannot be written."""
    try:
        return open_store(place, create=False, embed=embed)
    except Unavailable:
        return open_store(place, read_only=True, embed=embed)
