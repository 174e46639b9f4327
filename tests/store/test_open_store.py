"""Ids are UUIDv7 and grow within a process, whatever the clock does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import RFC_4122, UUID

import pytest

from perdure.store.plumbing.handles import Ids

DAY = 86_400_000_000


def test_an_id_is_a_uuid_of_version_7_with_the_time_in_it() -> None:
    """Other programs can read it."""
    found = UUID(Ids(lambda: 20_000 * DAY)())

    assert (found.version, found.variant) == (7, RFC_4122)
    assert found.int >> 80 == 20_000 * DAY // 1_000


@pytest.mark.parametrize("step", [0, 1, 1_000, -1_000, -DAY])
def test_ids_grow_whatever_the_clock_does(step: int) -> None:
    """Standing still, going on, going back."""
    now = 20_000 * DAY

    def clock() -> int:
        nonlocal now
        now += step
        return now

    ids = Ids(clock)
    made = [ids() for _ in range(2_000)]

    assert made == sorted(set(made))
    assert {UUID(each).version for each in made} == {7}


def test_threads_never_get_the_same_id() -> None:
    """Eight threads at once, in one millisecond."""
    ids = Ids(lambda: 20_000 * DAY)

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: ids(), range(8_000)))

    assert len(set(made)) == 8_000


def test_two_sources_do_not_meet() -> None:
    """Two processes with the same clock differ by their randomness."""
    one, two = (Ids(lambda: 20_000 * DAY) for _ in range(2))

    assert not {one() for _ in range(1_000)} & {two() for _ in range(1_000)}
