"""Results, and the table that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

__all__ = ["Result", "Skipped", "render"]

Bound: TypeAlias = Literal["at least", "at most"]

_SIGN = {"at least": "≥", "at most": "≤"}
_HEADINGS = ("measure", "Perdure", "compared with", "its figure", "ratio", "bar", "")
_BARE = "bare SQLite"


class Result(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One measure: our figure, that of what it is compared with, and their ratio against a bar."""

    measure: str
    ours: float | None = None  # None: the row tells about the other alone
    baseline: float | None = None  # None: the bar is for `ours` itself
    unit: str
    baseline_is: str = ""  # empty: bare SQLite; else what is compared with
    bound: Bound | None = None  # None: for information
    bar: float | None = None
    spread: tuple[float, float] | None = None  # lowest and highest ratio of the repetitions
    given_ratio: float | None = None  # where it is a median of ratios, not a ratio of medians

    @property
    def ratio(self) -> float | None:
        """Ours over the baseline."""
        if self.given_ratio is not None:
            return self.given_ratio
        return self.ours / self.baseline if self.baseline and self.ours is not None else None

    @property
    def ok(self) -> bool | None:
        """Whether the bar is met; None if there is none."""
        judged = self.ours if self.baseline is None else self.ratio
        if self.bar is None or judged is None:
            return None
        return judged >= self.bar if self.bound == "at least" else judged <= self.bar


class Skipped(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A measure that could not be taken here."""

    measure: str
    why: str


def render(results: Sequence[Result | Skipped]) -> str:
    """The table as text."""
    rows = [_HEADINGS, *(_cells(result) for result in results)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADINGS))]
    lines = ["  ".join(_padded(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths).rstrip())
    skipped = [f"skipped: {each.measure}: {each.why}" for each in results if isinstance(each, Skipped)]
    return "\n".join([*lines, *skipped])


def _cells(result: Result | Skipped) -> tuple[str, ...]:
    if isinstance(result, Skipped):
        return result.measure, "-", "-", "-", "-", "-", "skipped"
    return (
        result.measure,
        _figure(result.ours, result.unit),
        "-" if result.baseline is None else result.baseline_is or _BARE,
        _figure(result.baseline, result.unit),
        _ratio(result),
        _bar(result),
        {None: "", True: "ok", False: "MISSED"}[result.ok],
    )


def _padded(row: tuple[str, ...], widths: list[int]) -> list[str]:
    return [
        cell.ljust(width) if at == 0 else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _ratio(result: Result) -> str:
    if result.ratio is None:
        return "-"
    if result.spread is None:
        return f"{result.ratio:.2f}×"
    low, high = result.spread
    return f"{result.ratio:.2f}× ({low:.2f}–{high:.2f})"


def _bar(result: Result) -> str:
    if result.bar is None or result.bound is None:
        return "-"
    bar = f"{result.bar:g}×" if result.baseline is not None else _figure(result.bar, result.unit)
    return f"{_SIGN[result.bound]} {bar}"


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "bytes":
        for name, size in (("MB", 1e6), ("KB", 1e3)):
            if value >= size:
                return f"{value / size:,.2f} {name}"
        return f"{value:,.0f} B"
    shown = f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"
    return f"{shown} {unit}"
