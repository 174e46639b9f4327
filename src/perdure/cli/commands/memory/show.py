"""`perdure memory show`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.memory.shapes import ItemId, Owner, memory_with
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import moment
from perdure.cli.output.screen import Part, Screen
from perdure.shapes.store import MemoryShape

__all__ = ["MemoryShowAnswer", "show"]


class MemoryShowAnswer(Answer, frozen=True, kw_only=True):
    """One item."""

    item: MemoryShape

    def show(self, screen: Screen) -> None:
        """Print what is known, a line each, and the words."""
        item, source = self.item, self.item.source
        facts: list[tuple[str, Part | None]] = [
            ("item", (item.id, "name")),
            ("owner", item.owner),
            ("kind", f"{item.kind}, pinned" if item.pinned else item.kind),
            ("scope", item.scope),
            ("said by", item.trust),
            ("when", moment(item.at)),
            ("until", moment(item.expires_at) if item.expires_at else None),
            ("thread", source.thread if source else None),
            ("agent", source.agent if source else None),
            ("run", source.run if source else None),
            ("call", source.call if source else None),
            ("commit", (source.commit, "digest") if source else None),
            ("reference", item.reference),
        ]
        screen.facts([(name, fact) for name, fact in facts if fact])
        screen.wrap(item.text, indent=2)


def show(
    item: ItemId,
    /,
    *,
    owner: Owner,
    at: Annotated[
        str | None,
        Parameter(
            name="--at",
            metavar="COMMIT",
            help="As this commit of `memory log` left it, even if it was undone or forgotten since",
        ),
    ] = None,
    everywhere: Everywhere = EVERYWHERE,
) -> MemoryShowAnswer:
    """Show one item: its text, its author and its source

    A reference with a commit shows that version, even if it was undone or forgotten since.
    """
    with reading(everywhere) as store:
        with memory_with(store, owner, item, at=at) as (memory, whole):
            if item.startswith("mem://"):
                found = memory.resolve(item)
            else:
                found = memory.get(whole) if at is None else memory.get(whole, at=at)
        return MemoryShowAnswer(item=MemoryShape.of(found))
