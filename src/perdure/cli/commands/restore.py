"""`perdure restore`."""

from __future__ import annotations

import shlex
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.input.stores import stores_near
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import count
from perdure.cli.output.progress import checking
from perdure.cli.output.screen import Screen
from perdure.cli.usage import to_be_named
from perdure.errors import NotFound
from perdure.model.names import shown_address
from perdure.store.plumbing.handles import system_clock
from perdure.store.upkeep.restore import restore as restore_backup

__all__ = ["Restored", "restore"]


_SINCE = "the store that the backup was made of may have carried them out since."


class Restored(Answer, frozen=True, kw_only=True):
    """The store that was made from a backup, and what waits in it."""

    backup: str
    store: str
    resumed: bool  # true: an earlier restore was interrupted, and went on
    checked: dict[str, int]  # in the backup, by kind
    threads: list[str]  # whose open runs and approvals are held
    unknown: int  # calls that were under way when the backup was made
    leases: int  # that were ended
    set_aside: list[str]  # files that were in the way, under their new names
    newer: int  # writes in them that can be read and that the backup lacks

    def show(self, screen: Screen) -> None:
        """Print one sentence, the check, and what is held."""
        screen.say(f"Restored {self.backup} to ", (self.store, "name"), ".")
        looked = count(sum(self.checked.values()), "thing")
        screen.say(("✓ ", "good"), f"The backup and the store are equal and intact: {looked} checked.")
        for file in self.set_aside:
            screen.say(("! ", "warn"), "What was there is now ", (file, "name"), ".")
        if self.newer:
            screen.say(("! ", "warn"), f"It has {count(self.newer, 'write')} that the backup lacks.")
            screen.suggest("See where: ", "compare", self.set_aside[0], store=to_be_named(self.store))
        if self.unknown:
            screen.say(
                ("! ", "warn"), f"{count(self.unknown, 'call')} under way: the outcome is unknown here."
            )
        if self.threads:
            held = count(len(self.threads), "thread")
            screen.wrap(("! ", "warn"), f"Runs and approvals of {held} are held: {_SINCE}")
            if not self.newer:
                screen.suggest(
                    "See what that store has more: ", "compare", "ORIGINAL", store=to_be_named(self.store)
                )
            label = "If nothing else runs them: "
            screen.suggest(label, "runs", "release", "--all", store=to_be_named(self.store))


def restore(
    file: Annotated[
        str, Parameter(name="FILE", help="The backup: a file that `perdure backup` made, or any store")
    ],
    /,
    *,
    replace: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Set the present store aside under another name, if it is damaged or has nothing that the backup lacks",
        ),
    ] = False,
    set_aside_newer: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Set the present store aside under another name, also if it has writes that the backup lacks",
        ),
    ] = False,
    everywhere: Everywhere = EVERYWHERE,
) -> Restored:
    """Restore the store from a backup, after a check of it

    Nothing is ever written over. A store that has anything that the backup lacks is left as it is: restore the backup
    beside it, with --store, or set the store aside with --set-aside-newer. A write-ahead log whose store is gone is set aside too. In the restored store, runs and
    approvals are held until `perdure runs release`, and calls that were under way have an unknown outcome. Interrupted,
    the same command goes on. To put back one item of a memory, use `perdure memory restore`.
    """
    with _guessing(file), checking("Checking and restoring", quiet=everywhere.json) as bar:
        done = restore_backup(
            file,
            everywhere.store,
            replace=replace,
            set_aside_newer=set_aside_newer,
            clock=system_clock,
            progress=bar,
            checked=bar,
        )
    return Restored(
        backup=shown_address(file),
        store=shown_address(everywhere.store),
        resumed=done.copy.resumed,
        checked=done.backup.checked,
        threads=list(done.copy.open),
        unknown=done.copy.unknown,
        leases=done.copy.leases,
        set_aside=list(done.set_aside),
        newer=done.newer,
    )


@contextmanager
def _guessing(file: str) -> Generator[None]:
    """Let the error for a missing backup name stores in its directory, those with a close name first."""
    try:
        yield
    except NotFound as error:
        close = stores_near(file) if error.code == "backup_not_found" else []
        if not close:
            raise
        meant = f"{error.message} Did you mean {' or '.join(map(shlex.quote, close))}?"
        facts = error.facts | {"near": tuple(close)}
        raise NotFound(meant, code=error.code, advice=error.advice, **facts) from error
