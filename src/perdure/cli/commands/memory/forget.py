"""`perdure memory forget`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.memory.shapes import Owner, memory_with
from perdure.cli.completion import in_store
from perdure.cli.input.stores import writing
from perdure.cli.input.terminal import is_agreed
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Screen
from perdure.errors import Refused
from perdure.shapes.text import inline
from perdure.shapes.threads import HeadShape

__all__ = ["Gone", "forget"]

_SHOWN = 10


class Gone(Answer, frozen=True, kw_only=True):
    """Something that is not remembered any more."""

    owner: str
    item: str
    head: HeadShape
    erased: bool  # its past, too
    objects: int  # that were erased
    threads: list[str]  # that hold its words too; only known where it was erased
    left_alone: str | None  # why some of its past is left

    def show(self, screen: Screen) -> None:
        """Print one sentence, and how the rest goes too."""
        if not self.erased:
            screen.sentence(
                f"Forgot {self.item} of {self.owner}; its past stays in the history: ",
                digest(self.head.commit),
            )
            erase = ("memory", "forget", self.item, "--owner", self.owner, "--erase")
            screen.suggest("Bring it back: ", "memory", "restore", self.item, "--owner", self.owner)
            screen.suggest("Erase its words there too: ", *erase)
            return
        objects = count(self.objects, "object")
        screen.sentence(
            f"Erased {self.item} of {self.owner} and its past in the memory, {objects}: ",
            digest(self.head.commit),
        )
        if self.left_alone is not None:
            screen.wrap(("! ", "warn"), f"Some of it is left: {self.left_alone}. Erase it again.")
        if self.threads:
            threads = count(len(self.threads), "thread")
            screen.wrap(("! ", "warn"), f"Its words are also in {threads}, in what was said or shown.")
            for thread in self.threads[:_SHOWN]:
                screen.suggest("Remove it: ", "threads", "rm", thread)
            if len(self.threads) > _SHOWN:
                screen.say((f"… and {len(self.threads) - _SHOWN} more; --json names them.", "quiet"))
            screen.suggest("Then erase what was removed: ", "gc", "--removed", "--apply")


def forget(
    item: Annotated[str, Parameter(name="ITEM", completer=in_store, help="The item's id")],
    /,
    *,
    owner: Owner,
    erase: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Erase its words from the history of the memory too, for ever; also of an item that was forgotten",
        ),
    ] = False,
    yes: Annotated[
        bool, Parameter(negative=(), show_default=False, help="With --erase: do not ask first")
    ] = False,
    everywhere: Everywhere = EVERYWHERE,
) -> Gone:
    """Forget an item, no matter which author wrote it; its history stays unless it is erased

    `memory restore` brings it back. With --erase nothing does, so on a terminal you are asked first; other items stay,
    with their past.
    Threads that hold its words too are named.
    """
    with writing(everywhere) as store, memory_with(store, owner, item, forgotten=erase) as (memory, whole):
        act = f"Erase {inline(whole)} of {inline(owner)} and its past for good"
        if erase and not (yes or everywhere.json or is_agreed(act)):
            raise Refused(
                f"item '{whole}' is still there, as you did not say yes",
                code="not_confirmed",
                owner=owner,
                item=whole,
            )
        erased = memory.erase(whole, author=os_user()) if erase else None
        head = memory.forget(whole, author=os_user()) if erased is None else erased.head
        return Gone(
            owner=owner,
            item=whole,
            head=HeadShape.of(head),
            erased=erase,
            objects=erased.count if erased else 0,
            threads=list(erased.threads) if erased else [],
            left_alone=erased.left_alone if erased else None,
        )
