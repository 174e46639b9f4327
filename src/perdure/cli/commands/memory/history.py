"""`perdure memory log`, `moves`, `undo` and `redo`: the history of an owner's memory, and the way back and forth in it."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.memory.shapes import Owner, item_ever, known_memory
from perdure.cli.completion import in_store
from perdure.cli.input.stores import reading, writing
from perdure.cli.input.suggestions import guessing
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, Everywhere, Limit, OpId
from perdure.cli.output.answer import Answer, cut_off
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import count, moment, the_last
from perdure.cli.output.screen import Cell, Column, Part, Screen
from perdure.errors import Invalid, NotFound
from perdure.shapes.memory_log import (
    MemoryChanges,
    MemoryCommit,
    MemoryHead,
    MemoryMoves,
    MemoryMoveShape,
)
from perdure.shapes.text import shortened
from perdure.shapes.threads import HeadShape
from perdure.store.memory import Memory
from perdure.store.plumbing.memory_log import MemoryLogEntry

__all__ = ["MemoryLog", "MemoryMoved", "MemoryMovesAnswer", "log", "moves", "redo", "undo"]

_COLUMNS = (
    Column("change", gives_way=True),
    Column("text", gives_way=True),
    Column("by", leaves=1),
    Column("when", "when", leaves=2),
    Column("commit", "digest"),
    Column("item", "name", is_id=True),
)
_MOVE_COLUMNS = (Column("version", right=True, leaves=3), Column("move", gives_way=True), *_COLUMNS[1:])
_TEXT_LENGTH = 200


class MemoryLog(MemoryChanges, Answer, frozen=True, kw_only=True):
    """The changes of an owner's memory, newest first."""

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if not self.commits:
            screen.say("The memory of ", (self.owner, "name"), " has no changes.")
            return
        screen.table(
            _COLUMNS,
            [
                (
                    f"{each.did or each.reason}{', withdrawn' if each.withdrawn else ''}",
                    _text(each),
                    each.by or each.thread or "",
                    moment(each.at)[5:16],
                    digest(each.commit),
                    each.item or "",
                )
                for each in self.commits
            ],
        )
        if self.more:
            screen.say((f"{the_last(len(self.commits), 'change')}; --limit 0 shows all.", "quiet"))


def _text(change: MemoryCommit | None) -> Part:
    """Return the text that a change left or forgot, or that there is none any more."""
    if change is None or change.text is None:
        return ("(gone)" if change is not None and change.items else "–", "quiet")
    return shortened(change.text, _TEXT_LENGTH)


class MemoryMovesAnswer(MemoryMoves, Answer, frozen=True, kw_only=True):
    """The moves of a memory's head, newest first."""

    def show(self, screen: Screen) -> None:
        """Print a table, and how to bring back a change that was undone."""
        if not self.moves:
            screen.say("The memory of ", (self.owner, "name"), " has no changes.")
            return
        screen.table(_MOVE_COLUMNS, [_move_row(each) for each in self.moves])
        if self.more:
            screen.say((f"{the_last(len(self.moves), 'move')}; --limit 0 shows all.", "quiet"))
        if any(each.act == "undo" for each in self.moves):
            screen.suggest(
                "Put one item back: ", "memory", "restore", "ITEM", "--owner", self.owner, "--at", "COMMIT"
            )


def _move_row(move: MemoryMoveShape) -> tuple[Cell, ...]:
    change = move.change
    did = "" if change is None else change.did or change.reason
    if move.act != "commit":
        did = f"{move.act} of {did if move.changes == 1 else count(move.changes, 'change')}"
    if len(move.items) > 1:
        did += f" ({count(len(move.items), 'item')})"
    return (
        str(move.version),
        did,
        _text(change),
        move.by or "",
        moment(move.at)[5:16] if move.at else "",
        digest(None if change is None else change.commit),
        "" if change is None else change.item or "",
    )


class MemoryMoved(MemoryHead, Answer, frozen=True, kw_only=True):
    """The head of a memory after an undo or a redo."""

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        screen.sentence(
            f"{self.did.capitalize()}: the memory of ",
            (self.owner, "name"),
            f" has {count(self.items, 'item')}, version {self.head.version}, ",
            digest(self.head.commit),
            f"; {count(len(self.changed), 'item')} changed",
        )


def log(
    item: Annotated[
        str | None,
        Parameter(
            name="ITEM",
            completer=in_store,
            help="Only changes of this item; of all if left out",
            show_default=False,
        ),
    ] = None,
    /,
    *,
    owner: Owner,
    limit: Limit = 20,
    everywhere: Everywhere = EVERYWHERE,
) -> MemoryLog:
    """Show the changes of an owner's memory, newest first

    An item was added, edited, confirmed (another source, or a stronger one, said the same), kept (so that it no longer
    depends on the thread that wrote it), pinned, unpinned, forgotten, restored or erased. Each has the text that it
    wrote, or that it forgot; `memory show ITEM --at COMMIT` shows all of it, and `memory restore ITEM --at COMMIT` puts it
    back. A call that changed several items has a line for each, with one commit. A change that was undone here is not listed: redo brings it back, and `memory moves` lists it. One of a thread
    stays listed, as withdrawn, while the thread has undone it.
    """
    with reading(everywhere) as store:
        memory = known_memory(store, owner)
        if item is None:
            shown, more = cut_off(memory.log(limit=limit + 1 if limit else None), limit)
        else:
            item, shown, more = _changes_of(memory, item, limit)
        commits = [MemoryCommit.of(each) for each in shown]
        return MemoryLog(owner=owner, item=item, commits=commits, more=more)


def moves(*, owner: Owner, limit: Limit = 20, everywhere: Everywhere = EVERYWHERE) -> MemoryMovesAnswer:
    """List what was done to an owner's memory with every undo and redo, newest first

    An undo and a redo name the newest change that they were about, and who made them. A change that was undone is found
    here also after a new one ended the way of redo: `memory restore ITEM --at COMMIT` takes its commit.
    """
    with reading(everywhere) as store:
        memory = known_memory(store, owner)
        shown, more = cut_off(memory.moves(limit=limit + 1 if limit else None), limit)
        return MemoryMovesAnswer(owner=owner, moves=[MemoryMoveShape.of(each) for each in shown], more=more)


def undo(
    *,
    owner: Owner,
    changes: Annotated[int, Parameter(name="--changes", metavar="N", help="How many changes to undo")] = 1,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> MemoryMoved:
    """Undo the last change of an owner's memory, whichever item it was about

    It says how many items that were: all that one call wrote is one change. It goes back a change at a time: to put one item back and leave the later changes of others, use `memory restore`.
    Nothing is lost: redo reverses it. What a thread has written is also taken back by an undo of that thread. An erasure
    cannot be undone: right after one this is refused.
    """
    with writing(everywhere) as store:
        memory = known_memory(store, owner)
        return MemoryMoved.of(
            memory, "undone", HeadShape.of(memory.undo(changes, op_id=op_id, author=os_user()))
        )


def redo(*, owner: Owner, op_id: OpId = None, everywhere: Everywhere = EVERYWHERE) -> MemoryMoved:
    """Reverse the last undo of an owner's memory

    It is refused after a new change; `memory restore` still puts one item back.
    """
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
        return MemoryMoved.of(memory, "redone", HeadShape.of(head))


def _changes_of(memory: Memory, item: str, limit: int) -> tuple[str, list[MemoryLogEntry], bool]:
    """Return the id and the changes of an item that is named by its id or a part of it, forgotten or not.

    Raises `NotFound` if there never was one.
    """
    with suppress(NotFound, Invalid):
        whole = memory.get(item).id
        return whole, *memory.changes_of(whole, limit=limit or None)
    whole = item_ever(memory, item)
    if whole is None:
        with guessing(item, memory.ids_ever):
            whole = memory.get(item).id  # raises `NotFound`
    return whole, *memory.changes_of(whole, limit=limit or None)
