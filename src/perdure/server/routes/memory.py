"""The memories of owners over HTTP: lists, searches, the history of a memory, and what a person changes in it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from perdure.errors import Invalid, NotFound, StaleHead
from perdure.model.memory import ItemKind, Remembered
from perdure.runtime.tools.call_memory import SaidBy
from perdure.runtime.tools.waiting import read_moment
from perdure.server.routes.actions import BaseBody, EmptyBody
from perdure.server.routing import BaseQuery, HttpCall, Paged, PageQuery, page_size, read_cursor, route
from perdure.shapes.memory_log import (
    MemoryChanges,
    MemoryCommit,
    MemoryErased,
    MemoryHead,
    MemoryMoves,
    MemoryMoveShape,
)
from perdure.shapes.store import FoundShape, MemoryAdded, MemoryOwners, MemoryPage, MemorySearch, MemoryShape
from perdure.shapes.threads import HeadShape
from perdure.store.memory import Memory

__all__: list[str] = []

_WORDS_ALONE = (
    "To search by meaning too, whoever runs the server starts it with `perdure serve --embed minilm`, or gives the store "
    "that its program opens an embedding function."
)


@route("GET", "/v1/memory", "read")
def list_owners(call: HttpCall, query: PageQuery) -> Paged[MemoryOwners]:
    """List the owners that have a memory, by name."""
    later = (each for each in _owners(call) if query.after is None or each > query.after)
    found = list(islice(later, query.size + 1))
    kept = found[: query.size]
    page = MemoryOwners(owners=kept, more=len(found) > len(kept))
    return Paged(page, kept[-1] if page.more else None)


def _owners(call: HttpCall) -> Iterator[str]:
    """Yield the owners with a memory that the credential may see, by name; others are not looked at."""
    if call.access.owners is None:
        yield from call.store.owners() if call.access.sees_owner("") else ()
        return
    for owner in sorted(call.access.owners):
        if call.access.sees_owner(owner) and call.store.memory(owner).head.version:
            yield owner


class MemoryQuery(PageQuery, frozen=True, kw_only=True):
    """What to look for, of which kind and scope; without `q` all is listed.

    `similarity_min` is what a search by meaning finds at least, from -1 to 1; null: what the model has for a least.
    `at` lists what there was at a moment of this memory's history, `expired` what has expired.
    """

    q: str | None = None
    kind: ItemKind | None = None
    scope: str | None = None
    similarity_min: float | None = None
    at: str | None = None
    expired: bool = False


@route("GET", "/v1/memory/{owner}", "read")
def show_memory(call: HttpCall, query: MemoryQuery) -> Paged[MemorySearch | MemoryPage]:
    """Search the memory of an owner; without words, list it."""
    memory = _memory(call)
    owner = memory.owner
    _check_together(query)
    if query.q is not None:
        found = memory.search(
            query.q,
            limit=query.size,
            kind=query.kind,
            scope=query.scope,
            similarity_min=query.similarity_min,
        )
        shapes = [FoundShape.of(each) for each in found]
        answer = MemorySearch(
            owner=owner,
            query=query.q,
            legs=list(found.legs),
            found=shapes,
            near=[],
            missing=None if "vector" in found.legs else _WORDS_ALONE,
        )
        return Paged(answer, None)
    later = (item for item in _listed(memory, query) if query.after is None or item.id > query.after)
    listed = list(islice(later, query.size + 1))
    shown = [MemoryShape.of(each) for each in listed[: query.size]]
    page = MemoryPage(owner=owner, items=shown, more=len(listed) > query.size, near=[])
    return Paged(page, shown[-1].id if page.more else None)


def _check_together(query: MemoryQuery) -> None:
    """Raise `Invalid` for parameters that exclude each other."""
    given = [name for name in ("q", "at", "expired") if getattr(query, name)]
    if len(given) > 1:
        raise Invalid(
            f"`{given[0]}` cannot be given together with `{given[1]}`; nothing was read.",
            code="options_conflict",
            option=given[1],
        )
    if query.similarity_min is not None and query.q is None:
        raise Invalid(
            "`similarity_min` is for a search, which has `q`; nothing was read.", code="query_invalid"
        )


def _listed(memory: Memory, query: MemoryQuery) -> Iterator[Remembered]:
    """Yield the items that are listed, by id."""
    if query.at is None:
        yield from memory.items(kind=query.kind, scope=query.scope, expired=query.expired)
        return
    for item in memory.at(query.at):
        if query.kind in (None, item.kind) and query.scope in (None, item.scope):
            yield item


class MemoryLogQuery(BaseQuery, frozen=True, kw_only=True):
    """The changes of which item; null: of all.

    A commit that changed several items has one for each, and `limit` counts those.
    """

    item: str | None = None
    limit: int = 50


@route("GET", "/v1/memory/{owner}/log", "read")
def list_memory_changes(call: HttpCall, query: MemoryLogQuery) -> MemoryChanges:
    """List the last changes of a memory, newest first; one undone here is not listed, one undone in its thread is withdrawn."""
    memory, size = _memory(call), page_size(query.limit)
    if query.item is None:
        found = memory.log(limit=size + 1)
        kept, more = found[:size], len(found) > size
    else:
        kept, more = memory.changes_of(query.item, limit=size)
    commits = [MemoryCommit.of(each) for each in kept]
    call.head = memory.head
    return MemoryChanges(owner=memory.owner, item=query.item, commits=commits, more=more)


@route("GET", "/v1/memory/{owner}/moves", "read")
def list_memory_moves(call: HttpCall, query: PageQuery) -> Paged[MemoryMoves]:
    """List the moves of a memory's head, newest first: changes, undos and redos, each with who made it."""
    memory = _memory(call)
    before = None if query.after is None else read_cursor(query.after)
    found = memory.moves(before=before, limit=query.size + 1)
    kept, more = found[: query.size], len(found) > query.size
    call.head = memory.head
    page = MemoryMoves(owner=memory.owner, moves=[MemoryMoveShape.of(each) for each in kept], more=more)
    return Paged(page, str(kept[-1].version) if more else None)


class MemoryItemQuery(BaseQuery, frozen=True, kw_only=True):
    """The moment of this memory's history; null: now."""

    at: str | None = None


@route("GET", "/v1/memory/{owner}/items/{item}", "read")
def show_memory_item(call: HttpCall, query: MemoryItemQuery) -> MemoryShape:
    """Read one item, now or as a moment left it, whatever was undone or forgotten since."""
    memory = _memory(call)
    call.head = memory.head
    item = call.segments["item"]
    return MemoryShape.of(memory.get(item) if query.at is None else memory.get(item, at=query.at))


class NewItemBody(BaseBody, frozen=True, kw_only=True):
    """What to remember, of which kind, and until when; null: until it is forgotten.

    Under the `id` of an item that is there the text takes the place of its words, and what is left out stays.  `trust`
    is the source of the text; `system` is for programs and people at the store.  Every run of the owner is shown a `pinned` item.
    """

    text: str
    kind: ItemKind | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    id: str | None = None
    trust: SaidBy = "user"
    expires_at: Annotated[datetime, Meta(tz=True)] | UnsetType | None = UNSET
    pinned: bool | UnsetType = UNSET


@route("POST", "/v1/memory/{owner}/items", "operate", status=201, if_match=False)
def add_memory_item(call: HttpCall, body: NewItemBody) -> MemoryAdded:
    """Remember something for an owner; an item that says the same is answered, and none is added."""
    memory = _memory(call)
    added = MemoryAdded.of(
        memory,
        body.id,
        lambda: memory.add(
            body.text,
            kind=body.kind,
            scope=body.scope,
            id=body.id,
            trust=body.trust,
            expires=body.expires_at,
            pinned=body.pinned,
            op_id=call.op_id,
            author=call.access.name,
        ),
    )
    call.status = 200 if added.known or added.replaced is not None else 201
    return added


class EditBody(BaseBody, frozen=True, kw_only=True):
    """What is right; what is left out stays, the words too if they are null.  An `expires_at` of null removes the end."""

    text: str | None = None
    kind: ItemKind | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    trust: SaidBy | UnsetType = UNSET
    expires_at: Annotated[datetime, Meta(tz=True)] | UnsetType | None = UNSET
    pinned: bool | UnsetType = UNSET


@route("PUT", "/v1/memory/{owner}/items/{item}", "operate", if_match=False)
def edit_memory_item(call: HttpCall, body: EditBody) -> MemoryShape:
    """Correct an item; who said other words is a user unless `trust` names another, and its past stays in the history."""
    edited = _memory(call).edit(
        call.segments["item"],
        body.text,
        kind=body.kind,
        scope=body.scope,
        trust=body.trust,
        expires=body.expires_at,
        pinned=body.pinned,
        op_id=call.op_id,
        author=call.access.name,
    )
    return MemoryShape.of(edited)


@route("DELETE", "/v1/memory/{owner}/items/{item}", "operate", if_match=False)
def forget_memory_item(call: HttpCall) -> MemoryHead:
    """Forget an item, whichever author wrote it; its past stays in the history, and an undo brings it back."""
    memory = _memory(call)
    head = memory.forget(call.segments["item"], op_id=call.op_id, author=call.access.name)
    return MemoryHead.of(memory, "forgotten", HeadShape.of(head))


@route(
    "POST",
    "/v1/memory/{owner}/items/{item}/erase",
    "administer",
    if_match=False,
    takes_long=lambda call, body: True,
)
def erase_memory_item(call: HttpCall, body: EmptyBody) -> MemoryErased:
    """Erase an item with all that the memory's history holds of it, also one that was forgotten; no undo brings it back."""
    memory = _memory(call)
    erased = memory.erase(call.segments["item"], author=call.access.name)
    return MemoryErased(
        owner=memory.owner,
        item=call.segments["item"],
        objects=erased.count,
        freed=erased.freed,
        threads=list(erased.threads),
        left_alone=erased.left_alone,
        head=HeadShape.of(erased.head),
    )


@route("POST", "/v1/memory/{owner}/items/{item}/keep", "operate", if_match=False)
def keep_memory_item(call: HttpCall, body: EmptyBody) -> MemoryShape:
    """Make an item that a thread wrote independent of that thread, so that an undo there does not remove it."""
    kept = _memory(call).keep(call.segments["item"], op_id=call.op_id, author=call.access.name)
    return MemoryShape.of(kept)


class RestoreBody(BaseBody, frozen=True, kw_only=True):
    """The moment at which the item was right; null: before its last change.

    `expires` gives it another end: a time in ISO 8601, or a duration such as `30d`; null: the end that it had then.
    """

    at: str | None = None
    expires: str | None = None


@route("POST", "/v1/memory/{owner}/items/{item}/restore", "operate")
def restore_memory_item(call: HttpCall, body: RestoreBody) -> MemoryShape:
    """Put one item back as it was before its last change, or at a moment; other items stay, and an undo takes it back."""
    memory = _memory_to_move(call)
    end = UNSET if body.expires is None else read_moment(body.expires)
    restored = memory.restore(
        call.segments["item"],
        at=UNSET if body.at is None else body.at,
        expires=timedelta(seconds=end) if isinstance(end, float | int) else end,
        op_id=call.op_id,
        author=call.access.name,
    )
    call.head = memory.head
    return MemoryShape.of(restored)


class UndoMemoryBody(BaseBody, frozen=True, kw_only=True):
    """How many changes to undo."""

    changes: int = 1


@route("POST", "/v1/memory/{owner}/undo", "operate")
def undo_memory(call: HttpCall, body: UndoMemoryBody) -> MemoryHead:
    """Undo the last changes of a memory, by a person or by a thread; redo reverses it, and an erasure is refused."""
    memory = _memory_to_move(call)
    head = call.head = memory.undo(body.changes, op_id=call.op_id, author=call.access.name)
    return MemoryHead.of(memory, "undone", HeadShape.of(head))


@route("POST", "/v1/memory/{owner}/redo", "operate")
def redo_memory(call: HttpCall, body: EmptyBody) -> MemoryHead:
    """Reverse the last undo of a memory; refused if something was written after it."""
    memory = _memory_to_move(call)
    head = call.head = memory.redo(op_id=call.op_id, author=call.access.name)
    return MemoryHead.of(memory, "redone", HeadShape.of(head))


def _memory_to_move(call: HttpCall) -> Memory:
    """Open the memory of the path; raises `StaleHead` if it is not as If-Match names it, so that no other change is undone."""
    memory = _memory(call)
    if call.expected is not None and call.expected != (head := memory.head):
        raise StaleHead(call.expected, head)
    return memory


def _memory(call: HttpCall) -> Memory:
    """Open the memory of the path; raises `NotFound` for one that the credential may not see."""
    owner = call.segments["owner"]
    if not call.access.sees_owner(owner):
        raise NotFound(f"'{owner}' has no memory; nothing was done.", code="owner_not_found", owner=owner)
    return call.store.memory(owner)
