"""The history of an owner's memory as programs read it: what each commit did to an item, and how the head moved."""

from __future__ import annotations

from typing import Self

import msgspec

from perdure.shapes.text import stamp
from perdure.shapes.threads import HeadShape
from perdure.store.memory import Memory
from perdure.store.plumbing.memory_log import MemoryLogEntry, MemoryMove

__all__ = ["MemoryChanges", "MemoryCommit", "MemoryErased", "MemoryHead", "MemoryMoveShape", "MemoryMoves"]


class MemoryCommit(msgspec.Struct, frozen=True, kw_only=True):
    """What one commit of a memory did to one item; a commit that changed several has one of these for each."""

    commit: str
    # added, edited, confirmed (it says what it said), kept, pinned, unpinned, restored, forgotten or erased; null: it
    # wrote no item
    did: str | None
    reason: str
    at: str
    run: str | None  # that wrote it; null: none did
    thread: str | None  # that wrote it; null: it was written directly
    by: str | None  # who wrote it directly, where that was said
    item: str | None  # that `did`, `text` and `withdrawn` are about; null: it wrote no item
    items: list[str]  # that the commit added, changed, forgot or erased, in the order of the writes
    withdrawn: (
        bool  # of no effect now: a turn of that thread made it and was undone, or the thread is removed
    )
    text: str | None  # as this change left it, or forgot it; null: it is erased, or a policy let it go

    @classmethod
    def of(cls, entry: MemoryLogEntry) -> Self:
        """Return a change in the shape of --json."""
        return cls(
            commit=entry.digest,
            did=entry.did,
            reason=entry.reason,
            at=stamp(entry.at),
            run=entry.run,
            thread=entry.thread,
            by=entry.by,
            item=entry.item,
            items=list(entry.items),
            withdrawn=entry.withdrawn,
            text=entry.text,
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
    changed: list[str]  # the items that the changes were about which it took back, put back or made
    head: HeadShape

    @classmethod
    def of(cls, memory: Memory, did: str, head: HeadShape) -> Self:
        """Return the head with what led to it."""
        moved = memory.moves(before=head.version + 1, limit=1)  # its own, also if others came after it
        changed = [item for move in moved for item in move.items]
        there = sum(1 for _ in memory.items())
        return cls(owner=memory.owner, did=did, items=there, changed=changed, head=head)


class MemoryErased(msgspec.Struct, frozen=True, kw_only=True):
    """An item that is erased, with its past."""

    owner: str
    item: str
    objects: int  # that were erased
    freed: int  # bytes
    threads: list[str]  # that hold its words too, in what was said or shown
    left_alone: str | None  # why some of its past is left; erase it again then
    head: HeadShape


class MemoryMoveShape(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One recorded move of a memory's head."""

    version: int
    act: str  # commit, undo or redo
    from_: str | None
    to: str | None
    at: str | None  # when it was made; null: a move of an older version that was no commit
    by: str | None  # who made it, where that was said: a person, a program, or a thread by its id
    changes: int  # that it made, took back or put back
    items: list[str]  # that those changes were about
    change: MemoryCommit | None  # the newest of them, with its first item; null: there are none

    @classmethod
    def of(cls, move: MemoryMove) -> Self:
        """Return the move in the shape of --json."""
        return cls(
            version=move.version,
            act=str(move.act),
            from_=move.from_,
            to=move.to,
            at=None if move.at is None else stamp(move.at),
            by=move.author,
            changes=move.changes,
            items=list(move.items),
            change=None if move.change is None else MemoryCommit.of(move.change),
        )


class MemoryMoves(msgspec.Struct, frozen=True, kw_only=True):
    """The moves of a memory's head, newest first."""

    owner: str
    moves: list[MemoryMoveShape]
    more: bool  # whether there are older ones beyond the limit
