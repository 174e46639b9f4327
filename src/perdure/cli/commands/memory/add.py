"""`perdure memory add`.

`perdure memory edit`.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.memory.shapes import Owner, memory_with
from perdure.cli.completion import in_store
from perdure.cli.input.stores import writing
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import duration
from perdure.cli.output.screen import Screen
from perdure.errors import NotFound
from perdure.model.memory import ItemKind, Trust
from perdure.model.names import id_meant, with_article
from perdure.shapes.store import MemoryShape
from perdure.store.memory import Memory
from perdure.store.plumbing.handles import system_clock

__all__ = ["MemoryAddAnswer", "add", "edit"]


_BEGAN = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryAddAnswer(Answer, frozen=True, kw_only=True):
    """Something that is remembered now."""

    item: MemoryShape
    known: bool  # there was an item already that says the same; no other one was added
    replaced: str | None = None  # the text that the item had before

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        if self.known:
            screen.say(
                f"{self.item.owner} has that {self.item.kind} item already: ", (self.item.id, "digest")
            )
            return
        if self.replaced is not None:
            screen.sentence(
                f"Replaced for {self.item.owner}, was {self.replaced!r}: ", (self.item.id, "digest")
            )
            return
        screen.say(
            f"Remembered for {self.item.owner}, as {with_article(self.item.kind)} item: ",
            (self.item.id, "digest"),
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
        Parameter(
            metavar="ID",
            help="Its id, or the end of one as listed, replacing that item; a new one if left out",
        ),
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
        memory = store.memory(owner)
        if id is not None:
            id = id_meant(id, (each.id for each in memory.items()), what="item") or id
        before = _text_of(memory, id)
        began = system_clock()
        item = memory.add(text, kind=kind, scope=scope, id=id, trust=trust, expires=expires, author=os_user())
        return MemoryAddAnswer(item=MemoryShape.of(item), known=item.at < began, replaced=before)


def _text_of(memory: Memory, id: str | None) -> str | None:
    """Return the text of the item that has this id; None if there is none."""
    with suppress(NotFound):
        return None if id is None else memory.get(id).text
    return None


def edit(
    item: Annotated[str, Parameter(name="ITEM", completer=in_store, help="The item's id")],
    text: Annotated[str, Parameter(name="TEXT", help="What is right", allow_leading_hyphen=True)],
    /,
    *,
    owner: Owner,
    everywhere: Everywhere = EVERYWHERE,
) -> MemoryAddAnswer:
    """Correct the text of an item; its past stays in the history

    Kind, scope and end of the item stay as they are. The author is a user from then on. `memory restore` brings the
    former words back.
    """
    with writing(everywhere) as store, memory_with(store, owner, item) as (memory, whole):
        old = memory.get(whole)
        expires = None if old.expires_at is None else _BEGAN + timedelta(microseconds=old.expires_at)
        new = memory.add(text, kind=old.kind, scope=old.scope, id=whole, expires=expires, author=os_user())
        return MemoryAddAnswer(item=MemoryShape.of(new), known=False, replaced=old.text)
