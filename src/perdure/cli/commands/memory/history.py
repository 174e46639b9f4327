"""`perdure memory log`, `undo` and `redo`: the history of an owner's memory, and the way back and forth in it."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure.cli.commands.memory.shapes import Owner, item_ever, known_memory
from perdure.cli.input.stores import reading, writing
from perdure.cli.input.suggestions import guessing
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, Everywhere, Limit, OpId
from perdure.cli.output.answer import Answer, cut_off
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import count, moment, the_last
from perdure.cli.output.screen import Column, Screen
from perdure.errors import Forgotten, Invalid, NotFound
from perdure.model.memory import item_prefix, items_of
from perdure.model.patch import Clear, Put
from perdure.shapes.text import shortened, stamp
from perdure.shapes.threads import HeadShape
from perdure.store.memory import Memory
from perdure.store.plumbing.revisions import LogEntry

__all__ = ["MemoryCommit", "MemoryLog", "MemoryMoved", "log", "redo", "undo"]

_COLUMNS = (
    Column("change", gives_way=True),
    Column("text", gives_way=True),
    Column("by", leaves=1),
    Column("when", "when", leaves=2),
    Column("commit", "digest"),
    Column("item", "name", is_id=True),
)


_TEXT_LENGTH = 200
_DIRECT = ("memory.add", "memory.keep", "memory.forget", "memory.erase")


class MemoryCommit(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a memory."""

    commit: str
    did: str | None  # to the item of `text`: added, edited, kept or forgotten; null: it wrote no item
    reason: str
    at: str
    run: str | None  # that wrote it; null: none did
    thread: str | None  # that wrote it; null: it was written directly
    by: str | None  # who wrote it directly, where that was said
    items: list[str]  # that it added, changed or forgot
    text: str | None  # of the item asked for, or the first, as this change left it, or forgot it; null: gone


class MemoryLog(Answer, frozen=True, kw_only=True):
    """The changes of an owner's memory, newest first."""

    owner: str
    item: str | None  # whose changes they are; null: of all items
    commits: list[MemoryCommit]
    more: bool  # whether there are older ones beyond the limit

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if not self.commits:
            screen.say("The memory of ", (self.owner, "name"), " has no changes.")
            return
        screen.table(
            _COLUMNS,
            [
                (
                    each.did or each.reason,
                    ("–", "quiet") if each.text is None else shortened(each.text, _TEXT_LENGTH),
                    each.by or each.thread or "",
                    moment(each.at)[5:16],
                    digest(each.commit),
                    self.item or next(iter(each.items), ""),
                )
                for each in self.commits
            ],
        )
        if self.more:
            screen.say((f"{the_last(len(self.commits), 'change')}; --limit 0 shows all.", "quiet"))


class MemoryMoved(Answer, frozen=True, kw_only=True):
    """The head of a memory after an undo or a redo."""

    owner: str
    did: str  # undone, redone
    items: int  # that are remembered now
    head: HeadShape

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        screen.sentence(
            f"{self.did.capitalize()}: the memory of ",
            (self.owner, "name"),
            f" has {count(self.items, 'item')}, version {self.head.version}, ",
            digest(self.head.commit),
        )


def log(
    item: Annotated[
        str | None,
        Parameter(name="ITEM", help="Only changes of this item; of all if left out", show_default=False),
    ] = None,
    /,
    *,
    owner: Owner,
    limit: Limit = 20,
    everywhere: Everywhere = EVERYWHERE,
) -> MemoryLog:
    """Show the changes of an owner's memory, newest first

    An item was added, edited, kept (so that it no longer depends on the thread that wrote it) or forgotten. Each has
    the text that it wrote, or that it forgot; `memory show ITEM --at COMMIT` shows all of it. A change that was undone
    is not listed; redo brings it back.
    """
    with reading(everywhere) as store:
        memory = known_memory(store, owner)
        if item is None:
            shown, more = cut_off(memory.log(limit=limit + 1 if limit else None), limit)
        else:
            item, shown, more = _changes_of(memory, item, limit)
        commits = [_commit(memory, each, item) for each in shown]
        return MemoryLog(owner=owner, item=item, commits=commits, more=more)


def undo(
    *,
    owner: Owner,
    changes: Annotated[int, Parameter(name="--changes", metavar="N", help="How many changes to undo")] = 1,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> MemoryMoved:
    """Undo the last change of an owner's memory

    Nothing is lost: redo reverses it. What a thread has written is also taken back by an undo of that thread.
    """
    with writing(everywhere) as store:
        memory = known_memory(store, owner)
        return _moved(memory, "undone", HeadShape.of(memory.undo(changes, op_id=op_id, author=os_user())))


def redo(*, owner: Owner, op_id: OpId = None, everywhere: Everywhere = EVERYWHERE) -> MemoryMoved:
    """Reverse the last undo of an owner's memory"""
    with writing(everywhere) as store:
        memory = known_memory(store, owner)
        try:
            head = memory.redo(op_id=op_id, author=os_user())
        except NotFound as error:
            if error.code != "nothing_to_redo":
                raise
            raise NotFound(
                f"the memory of '{owner}' has no undo to redo, or something was written after it; nothing was moved.",
                code="memory_redo_not_found",
                advice=f"`perdure memory log --owner {owner}` shows what there is.",
                owner=owner,
            ) from error
        return _moved(memory, "redone", HeadShape.of(head))


def _moved(memory: Memory, did: str, head: HeadShape) -> MemoryMoved:
    return MemoryMoved(owner=memory.owner, did=did, items=sum(1 for _ in memory.items()), head=head)


def _changes_of(memory: Memory, item: str, limit: int) -> tuple[str, list[LogEntry], bool]:
    """Return the id and the changes of an item that is named by its id or a part of it, forgotten or not.

    Raises `NotFound` if there never was one.
    """
    with suppress(NotFound, Invalid):
        whole = memory.get(item).id
        return whole, *memory.changes_of(whole, limit=limit or None)
    whole = item_ever(memory, item)
    if whole is None:
        with guessing(item, lambda: (id for each in memory.log() for id in items_of(each.patch))):
            whole = memory.get(item).id  # raises `NotFound`
    return whole, *memory.changes_of(whole, limit=limit or None)


def _commit(memory: Memory, entry: LogEntry, item: str | None = None) -> MemoryCommit:
    """Return a change as programs read it, with what it did to an item; None: to the first that it wrote."""
    items = items_of(entry.patch)
    subject = item or next(iter(items), None)
    now, before = (_text_at(memory, subject, at) for at in (entry.digest, next(iter(entry.parents), None)))
    is_direct = entry.reason in _DIRECT  # a commit that came from a thread has the thread as its author
    return MemoryCommit(
        commit=entry.digest,
        did=None if subject is None else _did(entry, subject, now, before),
        reason=entry.reason,
        at=stamp(entry.at),
        run=entry.run,
        thread=None if is_direct else entry.author,
        by=entry.author if is_direct else None,
        items=items,
        text=now or before or None,
    )


def _did(entry: LogEntry, item: str, now: str | None, before: str | None) -> str:
    """Return what a change did to an item, by its texts after and before it."""
    is_put = any(isinstance(op, Put) and op.path.startswith(item_prefix(item)) for op in entry.patch.ops)
    if not is_put or now is None:
        return "forgotten"
    if entry.reason == "memory.keep":
        return "kept"
    is_cleared = any(isinstance(op, Clear) and op.prefix == item_prefix(item) for op in entry.patch.ops)
    return "edited" if before or (before == _GONE and is_cleared) else "added"


_GONE = ""  # no item has an empty text


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
