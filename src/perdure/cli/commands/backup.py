"""`perdure backup`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.input.stores import engine
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import count
from perdure.cli.output.progress import checking, working
from perdure.cli.output.screen import Screen
from perdure.cli.output.verified import Verified
from perdure.errors import Invalid, NotFound
from perdure.ledger import verify as verification
from perdure.model.names import shown_address
from perdure.shapes.text import size

__all__ = ["Copied", "backup"]


class Copied(Answer, frozen=True, kw_only=True):
    """A copy of the store, and whether it was found intact."""

    store: str
    backup: str
    size: int
    verified: Verified | None  # null: it was not checked

    @property
    def exit_code(self) -> int:
        """Return 0 unless the copy is damaged."""
        return self.verified.exit_code if self.verified else 0

    def show(self, screen: Screen) -> None:
        """Print one sentence, and the check."""
        screen.say(f"Copied {self.store} to ", (self.backup, "name"), f", {size(self.size)}.")
        if self.verified is None:
            screen.say(("The copy was not checked.", "quiet"))
        elif self.verified.ok:
            looked = count(sum(self.verified.checked.values()), "thing")
            screen.say(("✓ ", "good"), f"The copy is intact: {looked} checked.")
        else:
            self.verified.show(screen)


def backup(
    dest: Annotated[str, Parameter(name="DEST", help="The new file; it must not exist")],
    /,
    *,
    verify: Annotated[
        bool, Parameter(negative="--no-verify", help="Check the copy", show_default=False)
    ] = True,
    everywhere: Everywhere = EVERYWHERE,
) -> Copied:
    """Back up the store to a new file, while it is in use

    The copy is the store as it was at one moment, and can be opened like any other. It is
    checked as `perdure verify` does.
    """
    if dest == "-":
        raise Invalid(
            "a backup is a file, not a stream; nothing was copied.",
            code="backup_no_stream",
            advice="Name a new file; one that is called - is ./-.",
        )
    if not Path(dest).absolute().parent.is_dir():
        raise NotFound(
            f"{dest} would be in a directory that is not there; nothing was copied.",
            code="directory_not_found",
            advice="Make it first.",
            file=dest,
        )
    with engine(everywhere) as opened, working("Copying", quiet=everywhere.json):
        opened.backup(Path(dest))
    checked = _verified(Everywhere(store=dest, json=everywhere.json)) if verify else None
    return Copied(
        store=shown_address(everywhere.store), backup=dest, size=Path(dest).stat().st_size, verified=checked
    )


def _verified(copy: Everywhere) -> Verified:
    with engine(copy) as opened, checking("Checking the copy", quiet=copy.json) as report_progress:
        return Verified.of(copy.store, verification.verify(opened, progress=report_progress))
