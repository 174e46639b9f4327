"""`perdure memory forget`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.memory.shapes import Owner, known_memory, memory_with
from perdure.cli.completion import in_store
from perdure.cli.input.stores import writing
from perdure.cli.input.terminal import is_agreed
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Screen
from perdure.errors import Invalid, Refused
from perdure.shapes.text import inline
from perdure.shapes.threads import HeadShape

__all__ = ["AllGone", "Gone", "forget"]

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
        _show_rest(screen, self.threads, self.left_alone)


class AllGone(Answer, frozen=True, kw_only=True):
    """All items of an owner that are not remembered any more."""

    owner: str
    items: list[str]  # their ids
    head: HeadShape
    erased: bool  # their past, too, and that of those that were forgotten before
    objects: int  # that were erased
    threads: list[str]  # that hold their words too; only known where they were erased
    left_alone: str | None  # why some of their past is left

    def show(self, screen: Screen) -> None:
        """Print one sentence, and how the rest goes too."""
        many = count(len(self.items), "item")
        erase = ("memory", "forget", "--all", "--owner", self.owner, "--erase")
        if self.erased:
            objects = count(self.objects, "object")
            screen.sentence(
                f"Erased all that {self.owner}'s memory ever had, {many}, {objects}: ",
                digest(self.head.commit),
            )
            _show_rest(screen, self.threads, self.left_alone)
        elif self.items:
            screen.sentence(
                f"Forgot {many} of {self.owner}; their past stays in the history: ", digest(self.head.commit)
            )
            screen.suggest("Bring them back: ", "memory", "undo", "--owner", self.owner)
            screen.suggest("Erase their words there too: ", *erase)
        else:
            screen.say(f"{self.owner} has no item in memory; nothing was forgotten.")
            screen.suggest("Erase what the history still has: ", *erase)


def _show_rest(screen: Screen, threads: list[str], left_alone: str | None) -> None:
    """Print what an erasure has left, in the memory and in threads."""
    if left_alone is not None:
        screen.wrap(("! ", "warn"), f"Some of it is left: {left_alone}. Erase it again.")
    if threads:
        screen.wrap(
            ("! ", "warn"),
            f"The words are also in {count(len(threads), 'thread')}, in what was said or shown.",
        )
        for thread in threads[:_SHOWN]:
            screen.suggest("Remove it: ", "threads", "rm", thread)
        if len(threads) > _SHOWN:
            # All are named: another erasure, which does not know the words any more, would not find them again.
            screen.wrap(("Also in: ", "quiet"), ", ".join(map(inline, threads[_SHOWN:])))
        screen.suggest("Then erase what was removed: ", "gc", "--removed", "--apply")


def forget(
    item: Annotated[
        str | None, Parameter(name="ITEM", completer=in_store, help="The item's id", show_default=False)
    ] = None,
    /,
    *,
    owner: Owner,
    all_: Annotated[
        bool,
        Parameter(
            name="--all",
            negative=(),
            show_default=False,
            help="All items of the owner; with --erase also those that were forgotten or undone, or expired",
        ),
    ] = False,
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
) -> Gone | AllGone:
    """Forget an item, no matter which author wrote it; its history stays unless it is erased

    `memory restore` brings it back. With --erase nothing does, so on a terminal you are asked first; other items stay,
    with their past.
    Threads that hold its words too are named. With --all it is every item of the owner, by one change, which
    `memory undo` takes back unless they are erased.
    """
    if (item is None) is not all_:
        raise Invalid(
            "name the item to forget, or give --all; nothing was forgotten.",
            code="forget_what",
            advice=f"`perdure memory ls --owner {owner}` lists the items.",
        )
    if item is None:
        return _all_forgotten(owner, erase=erase, yes=yes, everywhere=everywhere)
    return _one_forgotten(owner, item, erase=erase, yes=yes, everywhere=everywhere)


def _one_forgotten(owner: str, item: str, *, erase: bool, yes: bool, everywhere: Everywhere) -> Gone:
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


def _all_forgotten(owner: str, *, erase: bool, yes: bool, everywhere: Everywhere) -> AllGone:
    with writing(everywhere) as store:
        memory = known_memory(store, owner)
        act = f"Erase all that is or was in the memory of {inline(owner)} for good"
        if erase and not (yes or everywhere.json or is_agreed(act)):
            raise Refused(
                f"the memory of '{owner}' is still there, as you did not say yes",
                code="not_confirmed",
                owner=owner,
            )
        erased = memory.erase_all(author=os_user()) if erase else None
        before = memory.head
        head = memory.forget_all(author=os_user()) if erased is None else erased.head
        forgotten = memory.log(limit=1)[0].items if head != before else ()
        return AllGone(
            owner=owner,
            items=list(erased.items if erased else forgotten),
            head=HeadShape.of(head),
            erased=erase,
            objects=erased.count if erased else 0,
            threads=list(erased.threads) if erased else [],
            left_alone=erased.left_alone if erased else None,
        )
