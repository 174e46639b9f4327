"""Items of memory as answers, and the options that the commands about them share."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import Annotated, TypeAlias

from cyclopts import Parameter
from msgspec import UNSET, UnsetType

from perdure.cli.completion import in_store
from perdure.cli.input.suggestions import guessing, owner_names
from perdure.cli.output.formatting import duration
from perdure.errors import Invalid, NotFound
from perdure.model.memory import ItemKind
from perdure.model.names import COMPARED_MAX, did_you_mean, id_meant, near
from perdure.store.memory import Memory
from perdure.store.store import Store

__all__ = [
    "AnyKind",
    "AnyScope",
    "ItemId",
    "Owner",
    "end_of",
    "item_ever",
    "known_memory",
    "memory_with",
    "near_what_was_asked",
]

_LOOKED_AT = 1_000  # changes, for an item that is named by a part of its id

Owner: TypeAlias = Annotated[
    str, Parameter(name="--owner", metavar="WHO", completer=in_store, help="The owner of the memory")
]
ItemId: TypeAlias = Annotated[
    str, Parameter(name="ITEM", completer=in_store, help="The item's id, or a reference mem://…")
]
AnyKind: TypeAlias = Annotated[
    ItemKind | None, Parameter(name="--kind", help="Only items of this kind", show_default=False)
]
AnyScope: TypeAlias = Annotated[
    str | None, Parameter(name="--scope", metavar="NAME", help="Only items of this scope")
]


def end_of(keep: str | None) -> timedelta | UnsetType | None:
    """Return how long --keep says that an item stays; None: without an end, unset: the option was left out."""
    if keep is None:
        return UNSET
    return None if keep == "forever" else duration(keep)


@contextmanager
def memory_with(
    store: Store, owner: str, item: str, *, at: str | None = None, forgotten: bool = False
) -> Generator[tuple[Memory, str]]:
    """Open an owner's memory and find the whole id of an item that may be named by a part of it, at a moment or now.

    With `forgotten` also of an item that is not there now: forgotten, withdrawn or expired.  An error for a missing item
    names items of that owner that are close, and owners that are close if that one has no memory.
    """
    memory = store.memory(owner)
    # Another owner is named only where this one has no memory: their items are not to be shown or erased by mistake.
    ids = (each.id for each in islice(memory.items(), COMPARED_MAX))
    with guessing(item, lambda: ids) if memory.head.version else guessing(owner, lambda: owner_names(store)):
        try:
            _ = memory.get(item) if at is None else memory.get(item, at=at)
            whole = item
        except (NotFound, Invalid):
            whole = item_ever(memory, item) if forgotten else _meant(memory, item, at)
        yield memory, whole or item


def _meant(memory: Memory, item: str, at: str | None) -> str | None:
    """Return the id of the item that is named by a part of it, at a moment or now; else of one that expired."""
    known = memory.items() if at is None else memory.at(at)
    whole = id_meant(item, (each.id for each in known), what="item", beginnings=True)
    if whole is not None or at is not None:
        return whole
    return id_meant(item, (each.id for each in memory.items(expired=True)), what="item", beginnings=True)


def item_ever(memory: Memory, item: str) -> str | None:
    """Return the id of the item that is named by a part of it, forgotten or not, newest changes first; None: none fits."""
    now = [each.id for each in memory.items()]
    for changes in (_LOOKED_AT, None):
        known = dict.fromkeys((*now, *memory.ids_ever(changes=changes)))
        whole = id_meant(item, known, what="item", beginnings=True)
        if whole is not None:
            return whole
    return None


def known_memory(store: Store, owner: str) -> Memory:
    """Return the memory of an owner that has one; raises `NotFound` with names that are close."""
    known = list(owner_names(store))
    if owner not in known:
        raise NotFound(
            f"'{owner}' has no memory; nothing was done.",
            code="memory_owner_not_found",
            advice=f"{did_you_mean(owner, known)}See who has one with `perdure memory ls`.",
            owner=owner,
        )
    return store.memory(owner)


def near_what_was_asked(store: Store, owner: str, scope: str | None) -> list[str]:
    """Return owners that are close to one without a memory, else scopes that are close to the one asked for."""
    known = set(owner_names(store))
    if owner not in known:
        return near(owner, known)
    if scope is None:
        return []
    return near(scope, {each.scope for each in islice(store.memory(owner).items(), COMPARED_MAX)} - {scope})
