"""Words for numbers: times, counts and durations as people read them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from perdure.errors import Invalid

__all__ = ["ago", "count", "duration", "moment", "the_last"]

_DURATION = re.compile(r"\+?([0-9]{1,6})([smhdwy])")
_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "y": timedelta(days=365),
}
_AGES = ((60, 1, "s"), (3_600, 60, "min"), (86_400, 3_600, "h"), (86_400 * 60, 86_400, "d"))


def moment(at: str) -> str:
    """Return a time of `stamp` as people read it, to the second, UTC."""
    return at[:19].replace("T", " ")


def ago(at: str | None, at_now: int) -> str:
    """Return how long ago a time of `stamp` was; '–' for never, the date if it is long ago or in the future."""
    if at is None:
        return "–"
    seconds = at_now // 1_000_000 - int(datetime.fromisoformat(at).timestamp())
    if seconds in (0, -1):
        return "now"
    for limit, unit, name in _AGES:
        if 0 <= seconds < limit:
            return f"{seconds // unit} {name} ago"
    return at[:10]


def count(number: int, noun: str) -> str:
    """Return a number of things: 1 turn, 12 turns, 1,204 bodies."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"


def the_last(number: int, noun: str) -> str:
    """Return what a shortened list has, for the beginning of a sentence: The last turn, The last 12 turns."""
    return f"The last {noun}" if number == 1 else f"The last {count(number, noun)}"


def duration(text: str) -> timedelta:
    """Return how long a text such as 45s, 10m, 12h, 30d, 4w or 1y says; raises `Invalid`, also for a number alone."""
    given = _DURATION.fullmatch(text)
    if given is None:
        days = text if _DURATION.fullmatch(f"{text}d") else "30"
        raise Invalid(
            f"{text!r} is not a duration; nothing was done.",
            code="duration_invalid",
            advice=f"Write a number with its unit: {days}d for days, or 12h, 4w, 1y.",
            duration=text,
        )
    return int(given[1]) * _UNITS[given[2]]
