"""Near names: which of the names that there are a mistyped one may have meant.

A guess is only ever told.  Nothing is looked up, opened or written by it, and only so many names are
compared: a store may hold any number of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

__all__ = ["COMPARED_MAX", "did_you_mean", "near"]

COMPARED_MAX = 2_000  # names
_TOLD_MAX = 3
_LENGTH_MAX = 200  # characters of a name: comparing costs their product


def near(name: str, known: Iterable[str], *, likeness: float = 0.6) -> list[str]:
    """Those of the first `COMPARED_MAX` names that are close to `name`, the closest first."""
    from difflib import get_close_matches  # only where something is wrong

    if len(name) > _LENGTH_MAX:
        return []
    by_form: dict[str, str] = {}
    for each in islice(known, COMPARED_MAX):
        if each and each != name and len(each) <= _LENGTH_MAX:
            by_form.setdefault(each.casefold(), each)
    found = get_close_matches(name.casefold(), by_form, n=_TOLD_MAX, cutoff=likeness)
    return [by_form[each] for each in found]


def did_you_mean(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """A question that names what is close, with a space after it; empty where nothing is."""
    found = near(name, known, likeness=likeness)
    return f"Did you mean {' or '.join(repr(each) for each in found)}? " if found else ""
