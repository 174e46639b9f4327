"""`perdure memory restore` and `keep`: one item is put back, or made independent of the thread that wrote it."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from cyclopts import Parameter
from msgspec import UNSET

from perdure.cli.commands.memory.shapes import Owner, end_of, memory_with
from perdure.cli.input.stores import writing
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, Everywhere, OpId
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen
from perdure.errors import NotFound
from perdure.shapes.store import MemoryShape
from perdure.shapes.text import shortened

__all__ = ["MemoryKept", "MemoryRestored", "keep", "restore"]

_TEXT_SHOWN = 200


class MemoryRestored(Answer, frozen=True, kw_only=True):
    """An item that was put back."""

    item: MemoryShape
    unchanged: bool  # it was so already; nothing was written
    replaced: str | None  # the text that it had before; null: it was not there

    def show(self, screen: Screen) -> None:
        """Print one sentence, and how to take it back."""
        owner, name = self.item.owner, (self.item.id, "digest")
        text = repr(shortened(self.item.text, _TEXT_SHOWN))
        if self.unchanged:
            screen.sentence(f"{owner} has {text} already; nothing was written: ", name)
            return
        was = "" if self.replaced is None else f", was {shortened(self.replaced, _TEXT_SHOWN)!r}"
        screen.sentence(f"Restored {text} for {owner}{was}: ", name)
        screen.suggest("Take it back: ", "memory", "undo", "--owner", owner)


def restore(
    item: Annotated[
        str, Parameter(name="ITEM", help="The item's id, or a part of it as `memory log` shows it")
    ],
    /,
    *,
    owner: Owner,
    at: Annotated[
        str | None,
        Parameter(
            name="--at",
            metavar="COMMIT",
            help="As this commit of `memory log` left it; as it was before its last change if left out",
        ),
    ] = None,
    keep: Annotated[
        str | None,
        Parameter(
            metavar="TIME",
            help="How long to keep it from now on, such as 12h, 30d, 4w, 1y or forever; until the end that it had if left out",
        ),
    ] = None,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> MemoryRestored:
    """Put one item back as it was before its last change, or at a commit

    A forgotten item comes back, an edited one gets its former words; kind, scope, trust and end are those of then. Other
    items stay as they are: `memory undo` takes back the last change of the whole memory instead. An item that was
    withdrawn, because the turn that wrote it was undone, comes back and no longer depends on the thread. One whose end
    has passed needs another with --keep, and one that was erased cannot be restored.
    """
    with writing(everywhere) as store, memory_with(store, owner, item, forgotten=True) as (memory, whole):
        before = None
        with suppress(NotFound):
            before = memory.get(whole)
        moment = UNSET if at is None else at
        restored = memory.restore(whole, at=moment, expires=end_of(keep), op_id=op_id, author=os_user())
        return MemoryRestored(
            item=MemoryShape.of(restored),
            unchanged=before is not None and before.reference == restored.reference,
            replaced=None if before is None else before.text,
        )


class MemoryKept(Answer, frozen=True, kw_only=True):
    """An item that depends on no thread now."""

    item: MemoryShape

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        source = "" if self.item.source is None else f", whatever becomes of thread {self.item.source.thread}"
        screen.sentence(f"Kept for {self.item.owner}{source}: ", (self.item.id, "digest"))


def keep(
    item: Annotated[str, Parameter(name="ITEM", help="The item's id")],
    /,
    *,
    owner: Owner,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> MemoryKept:
    """Make an item independent of the thread that wrote it

    An undo of that turn, or the removal of that thread, no longer takes it away.
    """
    with writing(everywhere) as store, memory_with(store, owner, item) as (memory, whole):
        return MemoryKept(item=MemoryShape.of(memory.keep(whole, op_id=op_id, author=os_user())))
