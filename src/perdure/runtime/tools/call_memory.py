"""The memory of the owner of a call's thread, as the tool of the call sees it.

A search sees the memory as it was when the call looked.  What the call adds or forgets is durable with its result
and visible with its round's commit; until then only the call itself sees it, by id.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from perdure.errors import Invalid, NotFound
from perdure.memory import OwnerMemory, Recall, relevant
from perdure.memory.owner_memory import Line
from perdure.memory.visibility import Visibility
from perdure.memory.write import until
from perdure.model.digest import Digest
from perdure.model.memory import (
    ItemKind,
    MemoryChange,
    MemoryItem,
    Remembering,
    check_item,
    check_item_id,
    remade,
)

__all__ = ["CallMemory", "NoMemory"]

SaidBy: TypeAlias = Literal["user", "model", "tool", "import"]
"""The sources that a tool may name for what it remembers; `system` is Perdure's own."""

_MEMORY_WRITES_MAX = 1_000


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

    __slots__ = ("_check_open", "_line", "_memory", "_root", "_written")

    def __init__(self, memory: OwnerMemory | None, line: Line, check_open: Callable[[], None]) -> None:
        """See what `line` sees; `memory` is None where the thread has no owner.

        `check_open` raises `Invalid` once the call is over.
        """
        self._memory, self._line, self._check_open = memory, line, check_open
        self._root: Digest | None = None
        self._written: dict[str, MemoryChange] = {}

    def add(
        self,
        text: str,
        *,
        kind: ItemKind = "semantic",
        scope: str = "user",
        id: str | None = None,
        trust: SaidBy = "tool",
        expires: datetime | timedelta | None = None,
    ) -> str:
        """Remember `text` for the thread's owner and return its id.  It is visible when the call's round is committed.

        It replaces an item of the same `id`; None: one that says the same, if any.  `trust` is the source of it.
        """
        memory = self._open()
        if str(trust) == "system":
            raise Invalid(
                "a tool cannot remember with the trust of the system; nothing was remembered.",
                code="trust_not_allowed",
                advice="Name the source, for instance the user.",
            )
        now = memory.space.clock()
        wanted = MemoryItem(
            text=remade(text), kind=kind, scope=scope, trust=trust, at=now, expires_at=until(expires, now)
        )
        item = check_item(wanted)
        id = Visibility(memory, None, self._line).id_for(item, self._written) if id is None else id
        self._write(MemoryChange(id=check_item_id(id), item=item))
        return id

    def search(
        self, query: str, *, limit: int = 8, kind: ItemKind | None = None, scope: str | None = None
    ) -> Recall:
        """Return the items about `query`, the best first."""
        memory = self._open()
        found = relevant(memory, query, limit=limit, kind=kind, scope=scope, line=self._line)
        self._root = found.sight.root
        return found

    def get(self, id: str) -> str:
        """Return the text of one item, with this call's own writes; raises `NotFound`."""
        memory = self._open()
        own = self._written.get(check_item_id(id))
        if own is not None and own.item is not None:
            return own.item.text
        visibility = Visibility(memory, None, self._line)
        found = None if own is not None else visibility.item(id)
        self._root = visibility.sight.root
        if found is None or not found.counts or found.version.item is None:
            raise NotFound(
                f"'{memory.owner}' has no item '{id}' in memory; nothing was read.",
                code="memory_item_not_found",
                owner=memory.owner,
                item=id,
            )
        return found.version.item.text

    def forget(self, id: str) -> None:
        """Forget an item; raises `NotFound` if there is none."""
        self.get(id)
        self._write(MemoryChange(id=id))

    def finish(self) -> Remembering | None:
        """Return what the call did to memory; None if that is nothing."""
        is_any = self._written or self._root is not None
        return Remembering(written=tuple(self._written.values()), root=self._root) if is_any else None

    def _write(self, written: MemoryChange) -> None:
        self._written.pop(written.id, None)
        if len(self._written) >= _MEMORY_WRITES_MAX:
            raise Invalid(
                f"one call writes at most {_MEMORY_WRITES_MAX} items; this one was not remembered.",
                code="too_many_memory_writes",
                limit=_MEMORY_WRITES_MAX,
            )
        self._written[written.id] = written

    def _open(self) -> OwnerMemory:
        self._check_open()
        if self._memory is None:
            raise NoMemory
        return self._memory
