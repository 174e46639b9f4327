"""`perdure memory ls`."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.memory.shapes import AnyKind, AnyScope, near_what_was_asked
from perdure.cli.completion import in_store
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, Everywhere, Limit
from perdure.cli.output.answer import Answer, cut_off
from perdure.cli.output.formatting import ago, count
from perdure.cli.output.screen import Column, Screen
from perdure.shapes.store import MemoryOwners, MemoryPage, MemoryShape
from perdure.shapes.text import now, shortened

__all__ = ["Items", "MemoryOwnersAnswer", "ls"]

_TEXT_SHOWN = 200
_COLUMNS = (
    Column("item", "name", is_id=True),
    Column("text", gives_way=True),
    Column("kind", leaves=5),
    Column("scope", gives_way=True, leaves=3),
    Column("said by", leaves=4),
    Column("from", gives_way=True, leaves=1),
    Column("when", "when", leaves=2),
)


_EXPIRED_COLUMNS = (*_COLUMNS[:-1], Column("expired", "when", leaves=2))


class MemoryOwnersAnswer(MemoryOwners, Answer, frozen=True, kw_only=True):
    """Those who have a memory, by name."""

    def show(self, screen: Screen) -> None:
        """Print a line each, and how to go on."""
        if not self.owners:
            screen.say("No owner has a memory.")
            return
        for owner in self.owners:
            screen.say((owner, "name"))
        if self.more:
            screen.say((f"The first {count(len(self.owners), 'owner')}; --limit 0 lists all.", "quiet"))
        screen.suggest("Look at one: ", "memory", "ls", "--owner", self.owners[0])


class Items(MemoryPage, Answer, frozen=True, kw_only=True):
    """What is remembered for an owner, by id."""

    asked: str = ""  # the kind and the scope that alone are listed; empty: all
    expired: bool = False  # those that are not there because they expired

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if not self.items:
            meant = f" Did you mean {' or '.join(self.near)}?" if self.near else ""
            among = f" with {self.asked}" if self.asked else ""
            did = "Nothing has expired of " if self.expired else "Nothing is remembered for "
            screen.say(did, (self.owner, "name"), f"{among}.{meant}")
            return
        at_now = now()
        screen.table(
            _EXPIRED_COLUMNS if self.expired else _COLUMNS,
            [
                (
                    each.id,
                    shortened(each.text, _TEXT_SHOWN),
                    f"{each.kind}, pinned" if each.pinned else each.kind,
                    each.scope,
                    each.trust,
                    each.source.thread if each.source else "",
                    ago(each.expires_at if self.expired and each.expires_at else each.at, at_now),
                )
                for each in self.items
            ],
        )
        if self.more:
            screen.say((f"The first {count(len(self.items), 'item')}; --limit 0 lists all.", "quiet"))
        if self.expired:
            keep = ("--owner", self.owner, "--keep", "30d")
            screen.suggest("Bring one back: ", "memory", "restore", self.items[0].id, *keep)


def ls(
    *,
    owner: Annotated[
        str | None,
        Parameter(
            metavar="WHO",
            completer=in_store,
            help="The owner of the memory; all owners if left out",
            show_default=False,
        ),
    ] = None,
    kind: AnyKind = None,
    scope: AnyScope = None,
    expired: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="List the items that have expired instead"),
    ] = False,
    limit: Limit = 100,
    everywhere: Everywhere = EVERYWHERE,
) -> Items | MemoryOwnersAnswer:
    """List the memory of an owner, or all owners

    Items that were undone, were forgotten or have expired are not listed. A pinned item is shown to every run of the
    owner.
    """
    most = limit + 1 if limit else None
    with reading(everywhere) as store:
        if owner is None:
            owners, more = cut_off(list(islice(store.owners(), most)), limit)
            return MemoryOwnersAnswer(owners=owners, more=more)
        items = store.memory(owner).items(kind=kind, scope=scope, expired=expired)
        found, more = cut_off(list(islice(items, most)), limit)
        asked = " and ".join(
            f"{name} '{value}'" for name, value in (("kind", kind), ("scope", scope)) if value
        )
        near = [] if found else near_what_was_asked(store, owner, scope)
        shapes = [MemoryShape.of(each) for each in found]
        return Items(owner=owner, items=shapes, more=more, near=near, asked=asked, expired=expired)
