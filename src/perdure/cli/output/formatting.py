"""Words for numbers: times, counts and durations as people read them."""

from __future__ import annotations

import re
from datetime import datetime

from perdure.errors import Invalid

__all__ = ["ago", "count", "days", "moment"]

_DURATION = re.compile(r"([0-9]{1,6})([dwy]?)\Z")
_DAYS = {"": 1, "d": 1, "w": 7, "y": 365}
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


def days(text: str) -> int:
    """Return the days that a duration such as 30d, 4w or 1y names; raises `Invalid`."""
    match = _DURATION.match(text)
    if match is None:
        raise Invalid(
            f"{text!r} is not a duration; nothing was done.",
            code="duration_invalid",
            advice="Write 30d, 4w or 1y.",
            duration=text,
        )
    return int(match[1]) * _DAYS[match[2]]
