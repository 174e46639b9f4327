"""What went wrong, in words and as an exit code.

0 done   1 failed   2 usage   3 not found   4 conflict   5 refused   6 corrupt   7 unavailable
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from perdure import errors
from perdure.cli.output.screen import Screen, console
from perdure.shapes.text import named, safe_json

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
    """Return the exit code for an error."""
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), FAILED)


def report(
    name: str,
    message: str,
    *,
    advice: str = "",
    code: str = "",
    facts: Mapping[str, object] | None = None,
    hint: str | None = None,
    json: bool,
) -> None:
    """Print on the error stream what happened and what to do now.

    `advice` follows the message as a sentence; `hint` is a command on a line of its own.
    `code` is that of a `PerdureError`, "" for another error.
    """
    if json:
        shape: dict[str, object] = {"error": name}
        shape |= {"code": code} if code else {}
        shape |= {"message": message}
        shape |= {"facts": _json_facts(facts)} if facts is not None else {}
        shape |= {"hint": advice or hint} if advice or hint else {}
        print(safe_json(shape, indent=None), file=sys.stderr)
        return
    screen = Screen(console(stderr=True))
    print_line = screen.sentence if screen.is_terminal else screen.say
    print_line((f"{name}: ", "bad"), f"{message} {advice}".rstrip())
    if hint:
        screen.command("Try: ", hint)


def _json_facts(facts: Mapping[str, object]) -> dict[str, object]:
    """Return the facts that JSON can hold; a fact that is an object of the program is left out."""
    found: dict[str, object] = {}
    for name, value in facts.items():
        with suppress(TypeError, ValueError):
            found[name] = msgspec.to_builtins(named(value))
    return found
