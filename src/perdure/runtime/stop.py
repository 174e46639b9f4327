"""Stop policies: when a run has done enough, whatever the model wants, and which ends of an answer are good ones.

The counters live in run scope, so they survive a crash and never leak into the next run.
A run that a policy ends is `stopped`, which is no failure: what it did stays.  So is a run whose last
answer was cut off, refused, or ended in another way that leaves the answer incomplete, unless the
policy accepts that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from perdure.errors import Invalid
from perdure.model.run import StopKind, StopReason, Usage

__all__ = ["ACCEPTABLE", "COUNTERS", "Counters", "Stop", "in_words"]

COUNTERS = "/__run/stop.json"

_ENDS: dict[StopKind, str] = {
    "truncated": "a limit of tokens cut the answer off",
    "refused": "the model refused to answer, or its backend withheld the answer",
    "malformed": "the model's answer could not be used",
    "cancelled": "the answer was cancelled at the backend",
    "unknown": "the backend ended the answer with a word that is not known, so it may not be complete",
    "pending": "the backend has not finished the answer, and named no id by which it can be fetched",
}
ACCEPTABLE: tuple[StopKind, ...] = ("truncated", "refused", "malformed", "cancelled", "unknown")


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run has come."""

    steps: int = 0
    tokens: int = 0
    cost: float = 0.0
    began_at: int = 0  # µs since 1970, UTC
    calls: dict[str, int] = {}  # how often the same call was made, by fingerprint

    def after(self, usage: Usage, cost: float, fingerprints: list[str]) -> Counters:
        """What they are after one more step."""
        calls = dict(self.calls)
        for each in fingerprints:
            calls[each] = calls.get(each, 0) + 1
        return Counters(
            steps=self.steps + 1,
            tokens=self.tokens + usage.input_tokens + usage.output_tokens,
            cost=self.cost + cost,
            began_at=self.began_at,
            calls=calls,
        )


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one run may do; None: no limit of that kind."""

    steps: int | None = 100  # times that the model is asked
    tokens: int | None = None  # read and written, together
    cost: float | None = None  # in whatever unit `price` gives
    price: Callable[[Usage], float] | None = None
    seconds: float | None = None  # since the run began, waiting included
    repeats: int | None = None  # of one call with the same arguments
    accept: Sequence[StopKind] = ()  # ends of an answer that count as success though it is not complete

    def __post_init__(self) -> None:
        """Raise `Invalid` for a limit that no run could keep, or a cost without a price."""
        for name in ("steps", "tokens", "cost", "seconds", "repeats"):
            most = getattr(self, name)
            if most is not None and not most > 0:
                raise Invalid(
                    f"a run is stopped after more than 0 {name}, not {most!r}; nothing was declared."
                )
        if self.cost is not None and self.price is None:
            raise Invalid("a limit of cost needs a price=, a function of usage; nothing was declared.")
        is_list = isinstance(self.accept, list | tuple | set | frozenset)
        if not is_list or any(kind not in ACCEPTABLE for kind in self.accept):
            raise Invalid(
                f"accept= is a list of {', '.join(ACCEPTABLE)}, not {self.accept!r}; nothing was declared."
            )

    @property
    def counts(self) -> bool:
        """Whether anything but the number of steps has to be counted."""
        return any(each is not None for each in (self.tokens, self.cost, self.seconds, self.repeats))

    def cost_of(self, usage: Usage) -> float:
        """What one step cost."""
        return 0.0 if self.price is None else self.price(usage)

    def accepts(self, kind: StopKind) -> bool:
        """Whether a run whose last answer ended in this way has succeeded."""
        return kind == "completed" or kind in self.accept

    def reached(self, counters: Counters, now: int) -> tuple[StopReason, str] | None:
        """Which limit is reached, and the same in words; None: the run may go on."""
        checks: tuple[tuple[float | None, float, str], ...] = (
            (self.steps, counters.steps, "steps"),
            (self.tokens, counters.tokens, "tokens"),
            (self.cost, counters.cost, "cost"),
            (self.seconds, (now - counters.began_at) / 1e6, "seconds"),
            (self.repeats, max(counters.calls.values(), default=0), "repeats of one call"),
        )
        for most, have, what in checks:
            if most is not None and have >= most:
                return StopReason("limit", what.partition(" ")[0]), f"the limit of {most} {what} is reached"
        return None


def in_words(stop: StopReason) -> str:
    """Why an answer is not complete, with the backend's own word."""
    said = _ENDS.get(stop.reason, stop.reason)
    return said if stop.word is None else f"{said} ({stop.word})"
