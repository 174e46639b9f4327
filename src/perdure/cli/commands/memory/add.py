"""`perdure memory add`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.memory.shapes import MemoryShape, Owner
from perdure.cli.input.stores import writing
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import days
from perdure.cli.output.screen import Screen
from perdure.model.memory import ItemKind, Trust

__all__ = ["MemoryAddAnswer", "add"]


class MemoryAddAnswer(Answer, frozen=True, kw_only=True):
    """Something that is remembered now."""

    item: MemoryShape

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        screen.say(
            f"Remembered for {self.item.owner}, as a {self.item.kind} item: ", (self.item.id, "digest")
        )


def add(
    text: Annotated[str, Parameter(name="TEXT", help="What to remember", allow_leading_hyphen=True)],
    /,
    *,
    owner: Owner,
    kind: Annotated[ItemKind, Parameter(help="What kind of thing it is")] = "semantic",
    scope: Annotated[
        str, Parameter(metavar="NAME", help="What it is about, such as user or project")
    ] = "user",
    id: Annotated[
        str | None,
        Parameter(metavar="ID", help="Its id, in place of what has it; one is made up if left out"),
    ] = None,
    trust: Annotated[Trust, Parameter(help="Who said it")] = "user",
    keep: Annotated[
        str | None,
        Parameter(metavar="TIME", help="For how long, such as 30d, 4w or 1y; for good if left out"),
    ] = None,
    everywhere: Everywhere = EVERYWHERE,
) -> MemoryAddAnswer:
    """Remember something for an owner"""
    expires = None if keep is None else timedelta(days=days(keep))
    with writing(everywhere) as store:
        item = store.memory(owner).add(text, kind=kind, scope=scope, id=id, trust=trust, expires=expires)
        return MemoryAddAnswer(item=MemoryShape.of(item))
