"""`perdure memory pin`.

`perdure memory unpin`.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.memory.shapes import Owner, memory_with
from perdure.cli.completion import in_store
from perdure.cli.input.stores import writing
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, Everywhere, OpId
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen
from perdure.shapes.store import MemoryShape
from perdure.shapes.text import shortened

__all__ = ["MemoryPinned", "pin", "unpin"]

_TEXT_SHOWN = 200


class MemoryPinned(Answer, frozen=True, kw_only=True):
    """An item that every run of its owner is shown, or no longer."""

    item: MemoryShape
    unchanged: bool  # it was so already; nothing was written

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        owner, name = self.item.owner, (self.item.id, "digest")
        text = repr(shortened(self.item.text, _TEXT_SHOWN))
        if self.unchanged:
            how = "is pinned already" if self.item.pinned else "is not pinned"
            screen.sentence(f"{text} {how}; nothing was written: ", name)
        elif self.item.pinned:
            screen.sentence(f"Pinned: every run of {owner} is shown {text}: ", name)
        else:
            screen.sentence(
                f"Unpinned: runs of {owner} are shown {text} only if it matches the input: ", name
            )


def pin(
    item: Annotated[str, Parameter(name="ITEM", completer=in_store, help="The item's id")],
    /,
    *,
    owner: Owner,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> MemoryPinned:
    """Show an item to every run of the owner, whatever the input says

    Pinned items are shown before those that match the input, newest first, as far as the limit and the budget of the
    agent allow: `threads context` says what a model was shown and what was left out. The item no longer depends on the
    thread that wrote it.
    """
    return _with_pin(item, owner, everywhere, op_id, pinned=True)


def unpin(
    item: Annotated[str, Parameter(name="ITEM", completer=in_store, help="The item's id")],
    /,
    *,
    owner: Owner,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> MemoryPinned:
    """Show an item only to runs whose input it matches

    The item stays in the memory, and no longer depends on the thread that wrote it.
    """
    return _with_pin(item, owner, everywhere, op_id, pinned=False)


def _with_pin(
    item: str, owner: str, everywhere: Everywhere, op_id: str | None, *, pinned: bool
) -> MemoryPinned:
    with writing(everywhere) as store, memory_with(store, owner, item) as (memory, whole):
        before = memory.get(whole).reference
        act = memory.pin if pinned else memory.unpin
        found = act(whole, op_id=op_id, author=os_user())
        return MemoryPinned(item=MemoryShape.of(found), unchanged=found.reference == before)
