"""`perdure verify`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure import errors
from perdure.cli.errors import CODES
from perdure.cli.input.stores import engine
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import count
from perdure.cli.output.progress import working
from perdure.cli.output.screen import Screen
from perdure.history.verify import Report
from perdure.ledger import verify as checking

__all__ = ["FaultShape", "Verified", "verify"]

_SHOWN = 50


class FaultShape(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it was written, or not as the rules want it."""

    space: str
    kind: str
    what: str
    digest: str | None
    name: str | None


class Verified(Answer, frozen=True, kw_only=True):
    """What was checked, and what is wrong."""

    store: str
    ok: bool
    faults: list[FaultShape]
    checked: dict[str, int]  # by kind
    unchecked: int  # commits whose state could not be computed again, as a part was forgotten or damaged
    unnamed: int  # faults beyond the first ten thousand

    @classmethod
    def of(cls, store: str, report: Report) -> Verified:
        """Return the report in the shape of --json."""
        return cls(
            store=store,
            ok=report.ok,
            faults=[FaultShape(**msgspec.structs.asdict(fault)) for fault in report.faults],
            checked=report.checked,
            unchecked=report.unchecked,
            unnamed=report.unnamed,
        )

    @property
    def exit_code(self) -> int:
        """Return 0 if nothing is wrong."""
        return 0 if self.ok else CODES[errors.Corrupt]

    def show(self, screen: Screen) -> None:
        """Print each fault, and the sum."""
        for fault in self.faults[:_SHOWN]:
            named = fault.digest or fault.name or ""
            screen.say(("✗ ", "bad"), f"{fault.kind} in {fault.space}: {fault.what} ", (named, "digest"))
        left = len(self.faults) + self.unnamed - _SHOWN
        if left > 0:
            screen.say((f"… and {count(left, 'fault')} more; --json names them.", "quiet"))
        looked = ", ".join(count(number, kind) for kind, number in self.checked.items())
        if self.ok:
            screen.wrap(("✓ ", "good"), f"{self.store} is intact: {looked}.")
        else:
            faults = count(len(self.faults) + self.unnamed, "fault")
            screen.wrap(("✗ ", "bad"), f"{self.store} has {faults} in {looked}.")
        if self.unchecked:
            left_out = count(self.unchecked, "commit")
            screen.say(
                (f"The state of {left_out} could not be computed again, as a part of it is gone.", "quiet")
            )


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
