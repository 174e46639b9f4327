from __future__ import annotations

from typing import Any

import pytest

from perdure.engines.contract import Step
from perdure.engines.memory import MemoryEngine
from perdure.history import ancestry
from perdure.model.digest import Digest
from tests.history.hand import Hand


@pytest.mark.parametrize("apart", [0, 1, 2, 3, 7, 64, 99, 100])
def test_lines_meet_where_they_parted(apart: int) -> None:
    """However far back, and whichever of them is longer."""
    hand = Hand()
    commits = [hand.write() for _ in range(100)]
    parted = commits[99 - apart] if apart < 100 else None
    hand.fork("other", parted)
    tip = hand.write(timeline="other")

    met = ancestry.meet(hand.space, ancestry.point(hand.space, commits[-1]), ancestry.point(hand.space, tip))

    assert (met.digest if met else None) == parted


def test_lines_that_share_nothing_do_not_meet() -> None:
    """Two beginnings have no common ancestor."""
    hand = Hand()
    first = hand.write()
    hand.fork("other", None)
    second = hand.write(timeline="other")
    a, b = (ancestry.point(hand.space, each) for each in (first, second))

    assert ancestry.meet(hand.space, a, b) is None
    assert ancestry.common(hand.space, a, b) is None
    assert not ancestry.contains(hand.space, a, b)


def test_meeting_costs_a_logarithm() -> None:
    """A line of 4,000 commits is not walked."""

    class Counting(MemoryEngine):
        """Counts the commits that it gives."""

        given = 0

        def steps(self, space: str, at: Digest, *, limit: int, **options: Any) -> list[Step]:
            found = super().steps(space, at, limit=limit, **options)
            self.given += len(found)
            return list(found)

    engine = Counting()
    hand = Hand(engine)
    commits = [hand.write() for _ in range(4_000)]
    hand.fork("other", commits[10])
    ends = [ancestry.point(hand.space, each) for each in (commits[-1], hand.write(timeline="other"))]
    engine.given = 0

    met = ancestry.meet(hand.space, *ends)

    assert met == ancestry.point(hand.space, commits[10])
    assert engine.given < 60
