"""The answer of `perdure verify`, which `perdure backup` shows too."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from perdure import errors
from perdure.cli.errors import CODES
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Screen
from perdure.shapes.store import FaultShape, VerifyShape

__all__ = [
    "Verified",
]

_SHOWN = 50
_NUMBER = re.compile(r"\b(?:[0-9a-f]{64}|[0-9]+)\b")
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


class Verified(VerifyShape, Answer, frozen=True, kw_only=True):
    """What was checked, and what is wrong."""

    only: list[str] = msgspec.field(
        default_factory=list
    )  # the threads, maps and memories that were checked; empty: all

    @property
    def exit_code(self) -> int:
        """Return 0 if nothing is wrong."""
        return 0 if self.ok else CODES[errors.Corrupt]

    def show(self, screen: Screen) -> None:
        """Print each fault, and the sum."""
        shown = list(_together(self.faults).values())[:_SHOWN]
        for alike in shown:
            more = f" (and {len(alike) - 1} more like it)" if len(alike) > 1 else ""
            screen.wrap(_DIGEST.sub(_shortened, _told(alike[0])) + more, indent=2, label=("✗ ", "bad"))
        left = len(self.faults) + self.unnamed - sum(map(len, shown))
        if left > 0:
            screen.say((f"… and {count(left, 'fault')} more; --json names them.", "quiet"))
        looked = ", ".join(count(number, kind) for kind, number in self.checked.items())
        looked = looked or "nothing is stored in it yet"
        if self.ok:
            whole = (
                f"{self.store} is intact"
                if not self.only
                else f"Intact in {self.store}: {', '.join(self.only)}"
            )
            screen.wrap(("✓ ", "good"), f"{whole}{';' if self.only else ':'} {looked}.")
        else:
            faults = count(len(self.faults) + self.unnamed, "fault")
            screen.wrap(("✗ ", "bad"), f"{self.store} has {faults} in {looked}.")
            screen.wrap(
                "Restore a backup from before the damage (perdure restore), or copy what is sound to a new "
                "store (perdure copy … --sound). `perdure threads log` shows what is left of a damaged thread."
            )
        if self.partial:
            spaces = count(self.partial, "space")
            screen.say((f"Of {spaces} only what came since the saved point was read.", "quiet"))
        if self.written:
            spaces = count(self.written, "space")
            screen.say((f"{spaces} changed during the check; the next one reads what was written.", "quiet"))
        if self.forgotten:
            gone = count(self.forgotten, "object")
            screen.say((f"{gone} forgotten under a policy: only digests are left to check.", "quiet"))
        if self.redacted:
            gone = count(self.redacted, "object")
            screen.say((f"{gone} redacted: only digests, and who did it, are left.", "quiet"))
        if self.unchecked:
            left_out = count(self.unchecked, "commit")
            screen.say(
                (f"The state of {left_out} could not be computed again, as a part of it is gone.", "quiet")
            )


def _together(faults: Sequence[FaultShape]) -> dict[tuple[str, str, str], list[FaultShape]]:
    """Return the faults that differ only in digests and numbers together, in their order: one damaged page makes many."""
    found: dict[tuple[str, str, str], list[FaultShape]] = {}
    for fault in faults:
        alike = (
            fault.place or fault.space,
            fault.kind if fault.digest is None else "",
            _NUMBER.sub("#", fault.what),
        )
        found.setdefault(alike, []).append(fault)
    return found


def _told(fault: FaultShape) -> str:
    """Return what is wrong and where, each name once."""
    named = fault.digest or fault.name
    kind = "" if fault.what.startswith(fault.kind) else f"{fault.kind} "
    which = f"{named} " if named and named not in fault.what else ""
    return f"{kind}{which}{'in ' if kind or which else ''}{fault.place or fault.space}: {fault.what}"


def _shortened(full: re.Match[str]) -> str:
    """Return the first digits of a digest, which commands accept; --json has them all."""
    return digest(full[0])[0]
