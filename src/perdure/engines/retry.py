"""Bounds how often a write is tried that other writers keep overtaking.

attempts = Attempts("call 'c1'", "it was not decided")
while True:
    attempts.begin()  # raises Conflict after the last one
    ...  # read, decide, write; return if nothing has changed since the read
"""

from __future__ import annotations

from perdure.errors import Conflict, Unavailable

__all__ = ["ATTEMPTS_MAX", "Attempts", "delayed"]

ATTEMPTS_MAX = 64


class Attempts:
    """Counts the attempts of one optimistic write.

    `what` names what other writers change, and `undone` says what is not done if all attempts fail.
    """

    def __init__(self, what: str, undone: str) -> None:
        self._what, self._undone = what, undone
        self._count = 0

    def begin(self) -> None:
        """Count one more attempt; raise `Conflict` with code `contended` instead if there were too many."""
        if self._count == ATTEMPTS_MAX:
            raise Conflict(
                f"other writers changed {self._what} during each of {ATTEMPTS_MAX} attempts; {self._undone}.",
                code="contended",
                advice="Try again.",
                what=self._what,
                attempts=ATTEMPTS_MAX,
            )
        self._count += 1


def delayed(what: str) -> Unavailable:
    """Return the error for a second write that keeps being overtaken after the first one is durable.

    The caller's own write is done, so it sees a delay and no conflict.
    """
    return Unavailable(
        f"other writers changed {what} during each of {ATTEMPTS_MAX} attempts; it was not changed yet.",
        code="delivery_delayed",
        advice="The next change of the thread, or the next opening of the store, does it.",
        what=what,
        attempts=ATTEMPTS_MAX,
    )
