"""What went wrong, in words and as an exit code.

0 done   1 failed   2 usage   3 not found   4 conflict   5 refused   6 corrupt   7 unavailable
"""

from __future__ import annotations

import sys

from perdure import errors
from perdure.cli.output.screen import Screen, console, safe_json

__all__ = ["CODES", "FAILED", "USAGE", "code_of", "report"]

FAILED, USAGE = 1, 2

CODES: dict[type[errors.PerdureError], int] = {
    errors.Invalid: USAGE,
    errors.NotFound: 3,
    errors.Conflict: 4,
    errors.Refused: 5,
    errors.Corrupt: 6,
    errors.Unavailable: 7,
    errors.Unsupported: FAILED,
}


def code_of(error: BaseException) -> int:
    """The exit code for an error."""
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), FAILED)


def report(name: str, message: str, *, hint: str | None = None, json: bool) -> None:
    """Say on the error stream what was not done, and what to do now."""
    if json:
        shape = {"error": name, "message": message} | ({"hint": hint} if hint else {})
        print(safe_json(shape, indent=None), file=sys.stderr)
        return
    screen = Screen(console(stderr=True))
    tell = screen.wrap if screen.is_terminal else screen.say
    tell((f"{name}: ", "bad"), message)
    if hint:
        screen.say(("Try: ", "quiet"), hint)
