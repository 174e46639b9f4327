"""The command line: the same verbs as in Python, for people and for scripts.

A surface without rules of its own: each command reads its words, calls the face, and gives
back an answer, which is printed as tables for people or as JSON for programs.  One file
holds one command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(words: Sequence[str] | None = None) -> None:
    """Run the command that `words` spell, those of this process if None, and exit with its code."""
    from perdure.cli.run import run

    sys.exit(run(sys.argv[1:] if words is None else words))
