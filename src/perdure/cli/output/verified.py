"""The answer of `perdure verify`, which `perdure backup` shows too."""

from __future__ import annotations

import msgspec

from perdure import errors
from perdure.cli.errors import CODES
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Screen
from perdure.history.verify import VerifyReport

__all__ = ["Verified", "FaultShape"]

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
    written: int  # spaces that others wrote to during the check: what they wrote then was not checked
    partial: int  # spaces of which only what was written since the given point was checked

    @classmethod
    def of(cls, store: str, report: VerifyReport) -> Verified:
        """Return the report in the shape of --json."""
        return cls(
            store=store,
            ok=report.ok,
            faults=[FaultShape(**msgspec.structs.asdict(fault)) for fault in report.faults],
            checked=report.checked,
            unchecked=report.unchecked,
            unnamed=report.unnamed,
            written=report.written,
            partial=report.partial,
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
        if self.partial:
            spaces = count(self.partial, "space")
            screen.say((f"Of {spaces} only what came since the saved point was read.", "quiet"))
        if self.written:
            spaces = count(self.written, "space")
            screen.say((f"{spaces} changed during the check; the next one reads what was written.", "quiet"))
        if self.unchecked:
            left_out = count(self.unchecked, "commit")
            screen.say(
                (f"The state of {left_out} could not be computed again, as a part of it is gone.", "quiet")
            )
