"""What `make test` leaves to `make deep`.

A test that is marked `deep` runs with `PERDURE_DEEP=1` alone.  A test of an upper layer runs on the engine that most
stores have, and one in twenty-four, always the same ones, on the others too: the conformance suite, the crash tests and
`tests/store/test_same_on_every_engine.py` hold every engine to the same laws.  `PERDURE_DEEP=1` runs each test on
each engine.  Of many cases that show one fact `some` takes a part.  How long a test is that runs in both is said by `sized` of `tests/crash/campaign.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from zlib import crc32

import pytest
from _pytest.mark.structures import ParameterSet

from tests.crash.campaign import DEEP

__all__ = ["engines", "leave_out", "some"]

_ONE_OF = 24


def engines(usual: str, *others: str) -> list[str | ParameterSet]:
    """Return the parameters of a fixture or a test that offers engines; most tests leave the `others` out."""
    return [usual, *(pytest.param(each, marks=pytest.mark.other_engine) for each in others)]


def some(cases: Iterable[Any], *, one_of: int) -> list[ParameterSet]:
    """Return the parameters of a test, a tuple for each case or a value; most tests leave out all but one in `one_of`."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=[pytest.mark.deep] if at % one_of else []
        )
        for at, case in enumerate(cases)
    ]


def leave_out(items: list[pytest.Item]) -> None:
    """Leave out what only a deep run does."""
    if not DEEP:
        items[:] = [item for item in items if _is_short(item)]


def _is_short(item: pytest.Item) -> bool:
    if item.get_closest_marker("other_engine"):
        return crc32(item.name.encode()) % _ONE_OF == 0
    return item.get_closest_marker("deep") is None
