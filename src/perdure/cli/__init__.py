"""The command line: the same verbs as in Python, for people and for scripts.

A surface without rules of its own: each command reads its words, calls the face, and gives
back an answer, which is printed as tables for people or as JSON for programs.  One file
holds one command.

The version, the first page of help and those of nouns are printed at once: nothing is loaded that parses words or draws tables.
"""

from __future__ import annotations

import gc
import sys

from perdure.cli.output import streams as _streams
from perdure.version import __version__

TYPE_CHECKING = False  # importing it from `typing` would cost more than printing the version

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_HELP = ((), ("--help",), ("-h",), ("help",))


def main(words: Sequence[str] | None = None) -> None:
    """Run the command that `words` spell, those of this process if None, and exit with its code."""
    asked = tuple(sys.argv[1:] if words is None else words)
    _streams.accept_any_text()
    if asked[:1] == ("__complete",):
        from perdure.cli.completion import answer

        answer(asked[1:])
        sys.exit(0)
    text = _known_text(asked)
    if text is not None and sys.stdout is not None and (code := _printed(text)) is not None:
        sys.exit(code)
    gc.disable()  # modules are no garbage, and looking for some takes a fifth of the time of loading them
    from perdure.cli.run import run

    gc.enable()
    sys.exit(run(asked))


def _known_text(words: tuple[str, ...]) -> str | None:
    """Return what the words ask for if it is the version, the first page of help or that of a noun; None: another command."""
    if words == ("--version",):
        return f"perdure {__version__}\n"
    match words:
        case (noun, "--help" | "-h") | ("help", noun):
            pass
        case _:
            noun = None
    if words in _HELP or noun is not None:
        from perdure.cli.command_list import SPELLINGS, page

        if noun is None or noun in SPELLINGS:
            return page(None if noun is None else SPELLINGS[noun])
    return None


def _printed(text: str) -> int | None:
    """Return the code to exit with; None: it cannot be printed, which the general way reports."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        return _streams.end_without_reader()
    except OSError:
        return None
    return 0
