"""Items of memory as answers, and the options that the commands about them share."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import Parameter

from perdure.cli.input.suggestions import guessing, owner_names
from perdure.cli.output.formatting import stamp
from perdure.errors import Invalid, NotFound
from perdure.memory import Found
from perdure.model.memory import ItemKind, Remembered, Source
from perdure.model.names import COMPARED_MAX, id_meant, near
from perdure.store.memory import Memory
from perdure.store.store import Store

__all__ = [
    "AnyKind",
    "AnyScope",
    "FoundShape",
    "ItemId",
    "MemoryShape",
    "Owner",
    "SourceShape",
    "memory_with",
    "near_what_was_asked",
]

Owner: TypeAlias = Annotated[str, Parameter(name="--owner", metavar="WHO", help="The owner of the memory")]
ItemId: TypeAlias = Annotated[str, Parameter(name="ITEM", help="The item's id, or a reference mem://…")]
AnyKind: TypeAlias = Annotated[
    ItemKind | None, Parameter(name="--kind", help="Only items of this kind", show_default=False)
]
AnyScope: TypeAlias = Annotated[
    str | None, Parameter(name="--scope", metavar="NAME", help="Only items of this scope")
]


class SourceShape(msgspec.Struct, frozen=True, kw_only=True):
    """Where an item comes from."""

    thread: str
    commit: str
    run: str | None
    call: str | None
    agent: str | None

    @classmethod
    def of(cls, source: Source) -> SourceShape:
        """Return the origin in the shape of --json."""
        return cls(
            thread=source.thread,
            commit=source.commit,
            run=source.run,
            call=source.call,
            agent=source.agent,
        )


class MemoryShape(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is remembered."""

    id: str
    owner: str
    text: str
    kind: str
    scope: str
    trust: str  # who said it
    at: str
    expires_at: str | None  # null: it is kept until it is forgotten
    reference: str
    source: SourceShape | None  # null: it was added by hand

    @classmethod
    def of(cls, item: Remembered) -> MemoryShape:
        """Return the item in the shape of --json."""
        return cls(
            id=item.id,
            owner=item.owner,
            text=item.text,
            kind=item.kind,
            scope=item.scope,
            trust=item.trust,
            at=stamp(item.at),
            expires_at=None if item.expires_at is None else stamp(item.expires_at),
            reference=item.reference,
            source=SourceShape.of(item.source) if item.source else None,
        )


class FoundShape(msgspec.Struct, frozen=True, kw_only=True):
    """An item that a search found."""

    item: MemoryShape
    score: float  # above 0, and 1 for an item that every leg found first
    similarity: float | None  # the cosine of its vector and the query's; null: only words found it
    legs: list[str]  # text, vector: which found it

    @classmethod
    def of(cls, found: Found) -> FoundShape:
        """Return the find in the shape of --json."""
        return cls(
            item=MemoryShape.of(found.item),
            score=found.score,
            similarity=found.similarity,
            legs=list(found.legs),
        )


@contextmanager
def memory_with(store: Store, owner: str, item: str) -> Generator[tuple[Memory, str]]:
    """Open an owner's memory and find the whole id of an item that may be named by a part of it.

    An error for a missing item or owner names those that are close.
    """
    memory = store.memory(owner)
    items = (each.id for each in islice(memory.items(), COMPARED_MAX))
    with guessing(owner, lambda: owner_names(store)), guessing(item, lambda: items):
        try:
            memory.get(item)
            whole = item
        except (NotFound, Invalid):
            known = (each.id for each in memory.items())
            whole = id_meant(item, known, what="item", beginnings=True) or item
        yield memory, whole


def near_what_was_asked(store: Store, owner: str, scope: str | None) -> list[str]:
    """Return owners that are close to one without a memory, else scopes that are close to the one asked for."""
    known = set(owner_names(store))
    if owner not in known:
        return near(owner, known)
    if scope is None:
        return []
    return near(scope, {each.scope for each in islice(store.memory(owner).items(), COMPARED_MAX)} - {scope})
