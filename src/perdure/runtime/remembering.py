"""Memory as a call sees it: what its thread's owner has, and what the call adds to it.

Searching sees the memory as it was when the call looked.  What the call adds or forgets is durable with
its result and true with its round's commit; until then it is seen by the call itself, by id, and by nobody else.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from perdure.errors import Invalid, NotFound
from perdure.memory import Recall, Recollection, relevant
from perdure.memory.judging import Judge
from perdure.memory.reach import Line
from perdure.memory.writing import until
from perdure.model.digest import Digest
from perdure.model.memory import Item, ItemKind, Remembering, Written, check_item, check_item_id, remade

__all__ = ["CallMemory", "NoMemory", "SaidBy"]

SaidBy: TypeAlias = Literal["user", "model", "tool", "import"]
"""For whom a tool may speak; the system speaks for itself."""

_WRITES_MAX = 1_000


class NoMemory(Invalid):
    """A call asked for memory on a thread without an owner.  Nothing was read or written."""

    def __init__(self) -> None:
        """Say what is missing."""
        super().__init__(
            "this thread has no owner, and so no memory; nothing was read or written. Begin threads with owner=."
        )


class CallMemory:
    """The memory of the owner of a call's thread."""

    __slots__ = ("_check", "_line", "_memory", "_root", "_written")

    def __init__(self, memory: Recollection | None, line: Line, check: Callable[[], None]) -> None:
        """Look from where `line` stands; `check` raises once the call is over.  None: the thread has no owner."""
        self._memory, self._line, self._check = memory, line, check
        self._root: Digest | None = None
        self._written: dict[str, Written] = {}

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
        """Remember something for the thread's owner; its id.  It is true when the call's round is committed.

        Under an `id` that there is, it takes the place of what was there.  `trust` is who said it.
        """
        memory = self._open()
        if str(trust) == "system":
            raise Invalid("a tool does not speak for the system; nothing was remembered. Say who said it.")
        now = memory.space.clock()
        item = Item(
            text=remade(text), kind=kind, scope=scope, trust=trust, at=now, expires_at=until(expires, now)
        )
        named = memory.space.ids() if id is None else check_item_id(id)
        self._write(Written(id=named, item=check_item(item)))
        return named

    def search(
        self, query: str, *, limit: int = 8, kind: ItemKind | None = None, scope: str | None = None
    ) -> Recall:
        """What is remembered about `query`, the best first."""
        memory = self._open()
        found = relevant(memory, query, limit=limit, kind=kind, scope=scope, line=self._line)
        self._root = found.sight.root
        return found

    def get(self, id: str) -> str:
        """The words of one item, with this call's own writes; raises `NotFound`."""
        memory = self._open()
        own = self._written.get(check_item_id(id))
        if own is not None and own.item is not None:
            return own.item.text
        judge = Judge(memory, None, self._line)
        found = None if own is not None else judge.item(id)
        self._root = judge.sight.root
        if found is None or not found.counts or found.version.item is None:
            raise NotFound(f"'{memory.owner}' has no item '{id}' in memory; nothing was read.")
        return found.version.item.text

    def forget(self, id: str) -> None:
        """Let there be no such item; raises `NotFound` if there is none."""
        self.get(id)
        self._write(Written(id=id))

    def finish(self) -> Remembering | None:
        """What the call did to memory; None if that is nothing."""
        if not self._written and self._root is None:
            return None
        return Remembering(written=tuple(self._written.values()), root=self._root)

    def _write(self, written: Written) -> None:
        self._written.pop(written.id, None)
        if len(self._written) >= _WRITES_MAX:
            raise Invalid(f"one call writes at most {_WRITES_MAX} items; this one was not remembered.")
        self._written[written.id] = written

    def _open(self) -> Recollection:
        self._check()
        if self._memory is None:
            raise NoMemory
        return self._memory
