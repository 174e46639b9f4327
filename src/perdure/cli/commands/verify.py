"""`perdure verify`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure import errors
from perdure.cli.input.stores import engine
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.progress import working
from perdure.cli.output.verified import Verified
from perdure.ledger import verify as checking

__all__ = ["verify"]


def verify(
    *,
    space: Annotated[
        list[str] | None,
        Parameter(
            metavar="NAME",
            negative=(),
            show_default=False,
            help="Only this space; may be given several times",
        ),
    ] = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Verified:
    """Verify everything that is stored

    Every byte is hashed again, every state is computed again from the one before it, and every
    head is compared with its last move. Nothing is changed. Exits with 6 if anything is wrong.
    """
    with engine(everywhere) as opened, working("Checking", quiet=everywhere.json) as report_progress:
        for name in space or ():
            if opened.standing(name) == 0:
                raise errors.NotFound(
                    f"this store has no space '{name}'; nothing was checked.",
                    code="space_not_found",
                    advice="Leave --space out to check all.",
                    space=name,
                )
        report = checking.verify(opened, spaces=space, progress=report_progress)
    return Verified.of(everywhere.store, report)
