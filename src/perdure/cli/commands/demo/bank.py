"""The bank of the story: a file to which each payment adds a line, and from which no line is ever removed.

For the moment in which a process is killed it can be slow: it takes the money, says so on the
output, and does not answer.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

__all__ = ["TAKEN", "Bank"]

TAKEN = "taken"  # what a slow bank says when it has the money

_FOR_EVER = 3_600  # seconds; the process that waits for it is killed long before


class Bank:
    """Takes payments."""

    def __init__(self, file: Path, *, slow: bool = False) -> None:
        """Record the payments in that file; `slow`: never answer."""
        self._file, self._slow = file, slow

    def pay(self, to: str, amount: int, reference: str) -> str:
        """Take the money; what the payer gets to keep."""
        with self._file.open("a", encoding="utf-8") as book:
            book.write(f"{to} {amount} {reference}\n")
            book.flush()
            os.fsync(book.fileno())
        if self._slow:
            sys.stdout.write(f"{TAKEN}\n")
            sys.stdout.flush()
            time.sleep(_FOR_EVER)
        return f"receipt for {to}, {amount}"

    def find(self, reference: str) -> str | None:
        """Return the receipt of a payment that was made under this reference; None: there was none."""
        for to, amount, known in self._lines():
            if known == reference:
                return f"receipt for {to}, {amount}"
        return None

    def payments(self) -> list[str]:
        """Return every payment: to whom, and how much."""
        return [f"{to} {amount}" for to, amount, _ in self._lines()]

    def _lines(self) -> list[list[str]]:
        if not self._file.exists():
            return []
        return [line.split(" ") for line in self._file.read_text(encoding="utf-8").splitlines()]
