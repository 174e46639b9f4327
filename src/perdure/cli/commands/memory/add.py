"""`perdure memory add`.

`perdure memory edit`.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from cyclopts import Parameter
from msgspec import UNSET

from perdure.cli.commands.memory.shapes import Owner, end_of, memory_with
from perdure.cli.completion import in_store
from perdure.cli.input.stores import writing
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen
from perdure.model.memory import ItemKind, Trust
from perdure.model.names import id_meant, with_article
from perdure.shapes.store import MemoryAdded, MemoryShape

__all__ = ["MemoryAddAnswer", "add", "edit"]


class MemoryAddAnswer(MemoryAdded, Answer, frozen=True, kw_only=True):
    """Something that is remembered now."""

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        pinned = ", pinned" if self.item.pinned else ""
        if self.known:
            whose = (
                ""
                if self.confirmed is None
                else f", said by the {self.confirmed}; now the {self.item.trust} says it"
            )
            screen.sentence(
                f"{self.item.owner} has that {self.item.kind} item already{pinned}{whose}: ",
                (self.item.id, "digest"),
            )
            return
        if self.replaced is not None:
            did = (
                f"Changed for {self.item.owner}, with the words that it had: "
                if self.replaced == self.item.text
                else f"Replaced for {self.item.owner}, was {self.replaced!r}: "
            )
            screen.sentence(did, (self.item.id, "digest"))
            return
        screen.say(
            f"Remembered for {self.item.owner}, as {with_article(self.item.kind)} item{pinned}: ",
            (self.item.id, "digest"),
        )


def add(
    text: Annotated[str, Parameter(name="TEXT", help="What to remember", allow_leading_hyphen=True)],
    /,
    *,
    owner: Owner,
    kind: Annotated[
        ItemKind | None,
        Parameter(help="The kind of the item; semantic if left out", show_default=False),
    ] = None,
    scope: Annotated[
        str | None,
        Parameter(metavar="NAME", help="What it is about, such as user or project; user if left out"),
    ] = None,
    id: Annotated[
        str | None,
        Parameter(
            metavar="ID",
            help="Its id, or the end of one as listed, whose text is replaced; a new one if left out",
        ),
    ] = None,
    trust: Annotated[Trust, Parameter(help="The kind of its author")] = "user",
    keep: Annotated[
        str | None,
        Parameter(
            metavar="TIME",
            help="How long to keep it, such as 12h, 30d, 4w or 1y; forever, until it is forgotten, if left out",
        ),
    ] = None,
    pin: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Show it to every run of the owner, whatever the input says",
        ),
    ] = False,
    everywhere: Everywhere = EVERYWHERE,
) -> MemoryAddAnswer:
    """Add an item to the memory of an owner

    Without --id nothing is added if there is an item of the same text, but for case and white space, and of the same kind
    and scope, and neither expires; what a model or a tool noted becomes the user's who adds it. With the --id of an item
    that is there, its kind, scope, end and pin stay unless they are given; --keep forever removes the end.
    """
    with writing(everywhere) as store:
        memory = store.memory(owner)
        if id is not None:
            id = id_meant(id, (each.id for each in memory.items()), what="item") or id
        adding = partial(
            memory.add,
            text,
            kind=kind or UNSET,
            scope=UNSET if scope is None else scope,
            id=id,
            trust=trust,
            expires=end_of(keep),
            pinned=True if pin else UNSET,
            author=os_user(),
        )
        return MemoryAddAnswer.of(memory, id, adding)


def edit(
    item: Annotated[str, Parameter(name="ITEM", completer=in_store, help="The item's id")],
    text: Annotated[
        str | None,
        Parameter(
            name="TEXT",
            help="What is right; the words stay if left out",
            allow_leading_hyphen=True,
            show_default=False,
        ),
    ] = None,
    /,
    *,
    owner: Owner,
    kind: Annotated[ItemKind | None, Parameter(help="Another kind", show_default=False)] = None,
    scope: Annotated[str | None, Parameter(metavar="NAME", help="Another scope")] = None,
    trust: Annotated[
        Trust | None, Parameter(help="The kind of its author; a user if TEXT is given", show_default=False)
    ] = None,
    keep: Annotated[
        str | None,
        Parameter(
            metavar="TIME", help="How long to keep it from now on, such as 12h, 30d, 4w, 1y or forever"
        ),
    ] = None,
    everywhere: Everywhere = EVERYWHERE,
) -> MemoryAddAnswer:
    """Correct an item; its past stays in the history

    What is not given stays: words, kind, scope, end and pin. The author of other words is a user unless --trust says
    otherwise. `memory restore` brings the former ones back.
    """
    with writing(everywhere) as store, memory_with(store, owner, item) as (memory, whole):
        old = memory.get(whole)
        new = memory.edit(
            whole,
            text,
            kind=kind or UNSET,
            scope=UNSET if scope is None else scope,
            trust=trust or UNSET,
            expires=end_of(keep),
            author=os_user(),
        )
        known = new.reference == old.reference
        return MemoryAddAnswer(item=MemoryShape.of(new), known=known, confirmed=None, replaced=old.text)
