"""The history of an owner's memory as programs read it: what each commit did to an item, and the text that it left."""

from __future__ import annotations

from typing import Self

import msgspec

from perdure.errors import Forgotten, NotFound
from perdure.model.memory import item_prefix, items_of
from perdure.model.patch import Clear, Put
from perdure.shapes.text import stamp
from perdure.shapes.threads import HeadShape
from perdure.store.memory import Memory
from perdure.store.plumbing.revisions import LogEntry

__all__ = ["MemoryChanges", "MemoryCommit", "MemoryHead"]

_DIRECT = ("memory.add", "memory.edit", "memory.keep", "memory.restore", "memory.forget", "memory.erase")
_BY_REASON = {"memory.keep": "kept", "memory.restore": "restored"}
_GONE = ""  # no item has an empty text


class MemoryCommit(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a memory."""

    commit: str
    did: str | None  # added, edited, kept, restored or forgotten, the item of `text`; null: it wrote none
    reason: str
    at: str
    run: str | None  # that wrote it; null: none did
    thread: str | None  # that wrote it; null: it was written directly
    by: str | None  # who wrote it directly, where that was said
    items: list[str]  # that it added, changed or forgot
    withdrawn: (
        bool  # of no effect now: a turn of that thread made it and was undone, or the thread is removed
    )
    text: str | None  # of the item asked for, or the first, as this change left it, or forgot it; null: gone

    @classmethod
    def of(cls, memory: Memory, entry: LogEntry, item: str | None = None) -> Self:
        """Return a change with what it did to an item; None: to the first that it wrote."""
        items = items_of(entry.patch)
        subject = item or next(iter(items), None)
        now, before = (
            _text_at(memory, subject, at) for at in (entry.digest, next(iter(entry.parents), None))
        )
        is_direct = entry.reason in _DIRECT  # a commit that came from a thread has the thread as its author
        return cls(
            commit=entry.digest,
            did=None if subject is None else _did(entry, subject, now, before),
            reason=entry.reason,
            at=stamp(entry.at),
            run=entry.run,
            thread=None if is_direct else entry.author,
            by=entry.author if is_direct else None,
            items=items,
            withdrawn=subject is not None and memory.is_withdrawn(subject, entry),
            text=now or before or None,
        )


class MemoryChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of an owner's memory, newest first."""

    owner: str
    item: str | None  # whose changes they are; null: of all items
    commits: list[MemoryCommit]
    more: bool  # whether there are older ones beyond the limit


class MemoryHead(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a memory after it was moved."""

    owner: str
    did: str  # undone, redone, forgotten
    items: int  # that are remembered now
    head: HeadShape

    @classmethod
    def of(cls, memory: Memory, did: str, head: HeadShape) -> Self:
        """Return the head with what led to it."""
        return cls(owner=memory.owner, did=did, items=sum(1 for _ in memory.items()), head=head)


def _did(entry: LogEntry, item: str, now: str | None, before: str | None) -> str:
    """Return what a change did to an item, by its texts after and before it."""
    is_put = any(isinstance(op, Put) and op.path.startswith(item_prefix(item)) for op in entry.patch.ops)
    if not is_put or now is None:
        return "forgotten"
    if entry.reason in _BY_REASON:
        return _BY_REASON[entry.reason]
    is_cleared = any(isinstance(op, Clear) and op.prefix == item_prefix(item) for op in entry.patch.ops)
    return "edited" if before or (before == _GONE and is_cleared) else "added"


def _text_at(memory: Memory, item: str | None, commit: str | None) -> str | None:
    """Return the text of an item as a commit left it; None: there was none, `_GONE`: it was erased, or let go."""
    if item is None or commit is None:
        return None
    try:
        return memory.get(item, at=commit).text
    except Forgotten:
        return _GONE
    except NotFound:
        return None
