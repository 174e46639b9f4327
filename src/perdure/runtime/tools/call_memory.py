"""The memory of an owner as one call sees it.

A search sees the memory as it was when the call looked.  What the call adds, edits or forgets is durable with its
result and visible with its round's commit; until then only the call itself sees it, by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from perdure.errors import Invalid, NotFound
from perdure.memory import OwnerMemory, Recall, relevant
from perdure.memory.owner_memory import Line
from perdure.memory.visibility import Visibility, check_not_expired
from perdure.memory.write import End, given_fields
from perdure.model.digest import Digest
from perdure.model.memory import (
    ItemKind,
    MemoryChange,
    MemoryItem,
    Remembered,
    Remembering,
    check_item,
    check_item_id,
    remade,
)

__all__ = ["CallMemory", "NoMemory", "SaidBy"]

SaidBy: TypeAlias = Literal["user", "model", "tool", "import"]
"""The sources that a tool may name for what it remembers; `system` is Perdure's own."""

_WRITES_MAX = 1_000


class NoMemory(Invalid):
    """A call asked for memory on a thread without an owner.  Nothing was read or written."""

    def __init__(self) -> None:
        super().__init__(
            "this thread has no owner, and so no memory; nothing was read or written.",
            code="memory_missing",
            advice="Begin threads with owner=.",
        )


class CallMemory:
    """The memory of the owner of a call's thread."""

    __slots__ = ("_check", "_line", "_memory", "_root", "_written")

    def __init__(self, memory: OwnerMemory | None, line: Line, check: Callable[[], None]) -> None:
        """See what `line` sees; `check` raises when the call is over.  `memory` is None where the thread has no owner."""
        self._memory, self._line, self._check = memory, line, check
        self._root: Digest | None = None
        self._written: dict[str, MemoryChange] = {}

    def add(
        self,
        text: str,
        *,
        kind: ItemKind | UnsetType = UNSET,
        scope: str | UnsetType = UNSET,
        id: str | None = None,
        trust: SaidBy = "tool",
        expires: End = UNSET,
        pinned: bool | UnsetType = UNSET,
    ) -> str:
        """Remember `text` for the thread's owner and return its id.  It is visible when the call's round is committed.

        Under the `id` of an item that is there it replaces the text: kind, scope, end and pin stay unless they are given.
        Without an `id`, one that says the same is taken, if any, but for case and white space; what a stronger source
        has said (user, model, tool, import) stays as it is.  `trust` is the source of the text.  A `pinned` item is shown
        to every run of the owner, whatever the input says.
        """
        memory = self._open()
        _check_trust(trust)
        now = memory.space.clock()
        fields = given_fields(
            now, text=remade(text), trust=trust, kind=kind, scope=scope, expires=expires, pinned=pinned
        )
        item = check_item(MemoryItem(at=now, **fields))
        if id is None:
            judge = Visibility(memory, None, self._line)
            id, is_there = judge.id_for(item, self._written)
            if (there := self._item(id, judge)) is not None:
                is_pinned = fields.get("pinned", there.pinned)
                if is_there and there.pinned is is_pinned:
                    return id
                # A version with another pin stands alone, so it has the words of the strongest source.
                is_changed = there.pinned is not is_pinned and there.is_as_trusted(item)
                item = msgspec.structs.replace(there if is_changed else item, pinned=is_pinned)
        elif (old := self._item(check_item_id(id))) is not None:
            item = msgspec.structs.replace(old, at=now, **fields)
        self._write(MemoryChange(id=id, item=item))
        return id

    def edit(
        self,
        id: str,
        text: str | None = None,
        *,
        kind: ItemKind | UnsetType = UNSET,
        scope: str | UnsetType = UNSET,
        trust: SaidBy | UnsetType = UNSET,
        expires: End = UNSET,
        pinned: bool | UnsetType = UNSET,
    ) -> str:
        """Change an item and return its id: what is not given stays; raises `NotFound` if there is none.

        `trust` is the source of the new text, a tool unless another is given; without a `text` it stays.
        """
        memory = self._open()
        said = "tool" if text is not None and isinstance(trust, UnsetType) else trust
        if not isinstance(said, UnsetType):
            _check_trust(said)
        text = None if text is None else remade(text)
        old, now = self._known_item(id), memory.space.clock()
        fields = given_fields(
            now, text=text, trust=said, kind=kind, scope=scope, expires=expires, pinned=pinned
        )
        self._write(MemoryChange(id=id, item=check_item(msgspec.structs.replace(old, at=now, **fields))))
        return id

    def search(
        self,
        query: str,
        *,
        limit: int = 8,
        kind: ItemKind | None = None,
        scope: str | None = None,
        similarity_min: float | None = None,
    ) -> Recall:
        """Return the items about `query`, the best first; of less similarity than `similarity_min` none.

        What this call itself wrote is not found yet.
        """
        memory = self._open()
        found = relevant(
            memory,
            query,
            limit=limit,
            kind=kind,
            scope=scope,
            similarity_min=similarity_min,
            line=self._line,
        )
        self._root = found.sight.root
        return found

    def items(self, *, kind: ItemKind | None = None, scope: str | None = None) -> Iterator[Remembered]:
        """Yield all items, sorted by id; what this call itself wrote is not among them yet."""
        judge = Visibility(self._open(), None, self._line)
        self._root = judge.sight.root
        return judge.listed(kind=kind, scope=scope)

    def get(self, id: str) -> str:
        """Return the text of one item, with this call's own writes; raises `NotFound`."""
        return self._known_item(id).text

    def forget(self, id: str) -> None:
        """Forget an item; raises `NotFound` if there is none."""
        self._known_item(id)
        self._write(MemoryChange(id=id))

    def finish(self) -> Remembering | None:
        """Return what the call did to memory; None if that is nothing."""
        is_any = self._written or self._root is not None
        return Remembering(written=tuple(self._written.values()), root=self._root) if is_any else None

    def _known_item(self, id: str) -> MemoryItem:
        """Return an item as this call sees it; raises `NotFound` if there is none."""
        memory = self._open()
        found = self._item(check_item_id(id))
        if found is None:
            if id not in self._written:
                check_not_expired(memory, Visibility(memory, None, self._line).item(id))
            raise NotFound(
                f"'{memory.owner}' has no item '{id}' in memory; nothing was done.",
                code="memory_item_not_found",
                owner=memory.owner,
                item=id,
            )
        return found

    def _item(self, id: str, visibility: Visibility | None = None) -> MemoryItem | None:
        own = self._written.get(id)
        if own is not None:
            return own.item
        visibility = visibility or Visibility(self._open(), None, self._line)
        found = visibility.item(id)
        self._root = visibility.sight.root
        return found.version.item if found is not None and found.counts else None

    def _write(self, written: MemoryChange) -> None:
        self._written.pop(written.id, None)
        if len(self._written) >= _WRITES_MAX:
            raise Invalid(
                f"one call writes at most {_WRITES_MAX} items; this one was not remembered.",
                code="too_many_memory_writes",
                limit=_WRITES_MAX,
            )
        self._written[written.id] = written

    def _open(self) -> OwnerMemory:
        self._check()
        if self._memory is None:
            raise NoMemory
        return self._memory


def _check_trust(trust: SaidBy) -> None:
    if str(trust) == "system":
        raise Invalid(
            "a tool cannot remember with the trust of the system; nothing was remembered.",
            code="trust_not_allowed",
            advice="Name the source, for instance the user.",
        )
