"""`perdure memory add`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.memory.shapes import Owner
from perdure.cli.input.stores import writing
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import duration
from perdure.cli.output.screen import Screen
from perdure.model.memory import ItemKind, Trust
from perdure.shapes.store import MemoryShape
from perdure.store.plumbing.handles import system_clock

__all__ = ["MemoryAddAnswer", "add"]


class MemoryAddAnswer(Answer, frozen=True, kw_only=True):
    """Something that is remembered now."""

    item: MemoryShape
    known: bool  # there was an item already that says the same; no other one was added

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        if self.known:
            screen.say(
                f"{self.item.owner} has that {self.item.kind} item already: ", (self.item.id, "digest")
            )
            return
        screen.say(
            f"Remembered for {self.item.owner}, as a {self.item.kind} item: ", (self.item.id, "digest")
        )


def add(
    text: Annotated[str, Parameter(name="TEXT", help="What to remember", allow_leading_hyphen=True)],
    /,
    *,
    owner: Owner,
    kind: Annotated[ItemKind, Parameter(help="The kind of the item")] = "semantic",
    scope: Annotated[
        str, Parameter(metavar="NAME", help="What it is about, such as user or project")
    ] = "user",
    id: Annotated[
        str | None,
        Parameter(metavar="ID", help="Its id, replacing the item that has it; a new one if left out"),
    ] = None,
    trust: Annotated[Trust, Parameter(help="The kind of its author")] = "user",
    keep: Annotated[
        str | None,
        Parameter(
            metavar="TIME",
            help="How long to keep it, such as 12h, 30d, 4w or 1y; until it is forgotten if left out",
        ),
    ] = None,
    everywhere: Everywhere = EVERYWHERE,
) -> MemoryAddAnswer:
    """Add an item to the memory of an owner

    Without --id nothing is added if there is an item of the same text, kind, scope and trust, and neither expires.
    """
    expires = None if keep is None else duration(keep)
    with writing(everywhere) as store:
        began = system_clock()
        item = store.memory(owner).add(text, kind=kind, scope=scope, id=id, trust=trust, expires=expires)
        return MemoryAddAnswer(item=MemoryShape.of(item), known=item.at < began)
