"""`perdure memory forget`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.memory.shapes import Owner, memory_with
from perdure.cli.input.stores import writing
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest
from perdure.cli.output.screen import Screen
from perdure.shapes.threads import HeadShape

__all__ = ["Gone", "forget"]


class Gone(Answer, frozen=True, kw_only=True):
    """Something that is not remembered any more."""

    owner: str
    item: str
    head: HeadShape

    def show(self, screen: Screen) -> None:
        """Print one sentence, and how the past goes too."""
        screen.sentence(
            f"Forgot {self.item} of {self.owner}; its past stays in the history: ", digest(self.head.commit)
        )
        screen.suggest(
            "Erase its words in the memory: ", "gc", "--superseded-older-than", "0d", "--owner", self.owner
        )


def forget(
    item: Annotated[str, Parameter(name="ITEM", help="The item's id")],
    /,
    *,
    owner: Owner,
    everywhere: Everywhere = EVERYWHERE,
) -> Gone:
    """Forget an item, no matter which author wrote it; its history stays"""
    with writing(everywhere) as store:
        with memory_with(store, owner, item) as (memory, whole):
            head = memory.forget(whole)
        return Gone(owner=owner, item=whole, head=HeadShape.of(head))
