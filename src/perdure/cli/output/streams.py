"""The streams of the process, as every command uses them, and the files that commands write."""

from __future__ import annotations

import io
import os
import sys

__all__ = ["accept_any_text", "drop_unwritten", "end_without_reader", "for_owner"]

_PIPE_CLOSED = 141  # as shells have it: 128 and the number of the signal


def accept_any_text() -> None:
    """Let streams escape a character that their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def for_owner(path: str, flags: int) -> int:
    """Open a file that only its owner may read if it is new, as the store itself: the `opener` of what a store gives out."""
    return os.open(path, flags, 0o600)


def drop_unwritten() -> None:
    """Drop what cannot be written to the output: Python would try it again at its end, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def end_without_reader() -> int:
    """End quietly, because the reader of the output has ended, as in `perdure threads log t | head -1`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _PIPE_CLOSED
