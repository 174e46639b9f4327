"""`perdure memory log`, `undo` and `redo`: the history of an owner's memory, and the way back and forth in it."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure.cli.commands.memory.shapes import Owner, known_memory
from perdure.cli.input.stores import reading, writing
from perdure.cli.input.suggestions import guessing
from perdure.cli.options import EVERYWHERE, Everywhere, Limit, OpId
from perdure.cli.output.answer import Answer, cut_off
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import count, moment, the_last
from perdure.cli.output.screen import Column, Screen
from perdure.errors import NotFound
from perdure.model.memory import parse_version_path
from perdure.model.names import id_meant
from perdure.model.patch import Clear, Put
from perdure.shapes.text import shortened, stamp
from perdure.shapes.threads import HeadShape
from perdure.store.memory import Memory
from perdure.store.plumbing.revisions import LogEntry

__all__ = ["MemoryCommit", "MemoryLog", "MemoryMoved", "log", "redo", "undo"]

_COLUMNS = (
    Column("change", gives_way=True),
    Column("text", gives_way=True),
    Column("by", leaves=2),
    Column("when", "when", leaves=1),
    Column("commit", "digest"),
    Column("item", "name", is_id=True),
)


_TEXT_LENGTH = 200


class MemoryCommit(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a memory."""

    commit: str
    reason: str
    at: str
    run: str | None  # that wrote it; null: none did
    thread: str | None  # that wrote it; null: it was written directly
    items: list[str]  # that it added, changed or forgot
    text: (
        str | None
    )  # of the first of them, as this change left it, or as it was before it was forgotten; null: gone


class MemoryLog(Answer, frozen=True, kw_only=True):
    """The changes of an owner's memory, newest first."""

    owner: str
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
                    each.reason.removeprefix("memory."),
                    ("–", "quiet") if each.text is None else shortened(each.text, _TEXT_LENGTH),
                    each.thread or "",
                    moment(each.at)[5:16],
                    digest(each.commit),
                    next(iter(each.items), ""),
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

    Each has the text that it wrote, or that it forgot; `memory show ITEM --at COMMIT` shows all of it. A change that
    was undone is not listed; redo brings it back.
    """
    with reading(everywhere) as store:
        memory = known_memory(store, owner)
        found = memory.log(limit=limit + 1 if limit else None) if item is None else _changes_of(memory, item)
        shown, more = cut_off(found, limit)
        return MemoryLog(owner=owner, commits=[_commit(memory, each) for each in shown], more=more)


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
        return _moved(memory, "undone", HeadShape.of(memory.undo(changes, op_id=op_id)))


def redo(*, owner: Owner, op_id: OpId = None, everywhere: Everywhere = EVERYWHERE) -> MemoryMoved:
    """Reverse the last undo of an owner's memory"""
    with writing(everywhere) as store:
        memory = known_memory(store, owner)
        try:
            head = memory.redo(op_id=op_id)
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


def _changes_of(memory: Memory, item: str) -> list[LogEntry]:
    """Return the changes of an item that is named by its id or a part of it, forgotten or not; raises `NotFound`."""
    changes = [(each, _items(each)) for each in memory.log()]
    known = list(dict.fromkeys(id for _, items in changes for id in items))
    with guessing(item, lambda: known):
        whole = id_meant(item, known, what="item", beginnings=True)
        if whole is None:
            memory.get(item)  # raises `NotFound`
    return [each for each, items in changes if whole in items]


def _commit(memory: Memory, entry: LogEntry) -> MemoryCommit:
    items = _items(entry)
    text = _text(memory, items[0], entry) if items else None
    return MemoryCommit(
        commit=entry.digest,
        reason=entry.reason,
        at=stamp(entry.at),
        run=entry.run,
        thread=entry.author,
        items=items,
        text=text,
    )


def _text(memory: Memory, item: str, entry: LogEntry) -> str | None:
    """Return the text of an item as a commit left it, or as it was before a commit that forgot it; None: it is gone."""
    for at in (entry.digest, *entry.parents[:1]):
        with suppress(NotFound):
            return memory.get(item, at=at).text
    return None


def _items(entry: LogEntry) -> list[str]:
    """Return the ids of the items that a commit wrote, each once."""
    found: list[str] = []
    for op in entry.patch.ops:
        match op:
            case Put(path=path):
                found.append(parse_version_path(path)[0])
            case Clear(prefix=prefix):
                found.append(prefix.removesuffix("/").rpartition("/")[2])
            case _:
                continue
    return list(dict.fromkeys(found))
