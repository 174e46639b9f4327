"""The clock goes backwards between writers, and the order is unaffected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perdure
from perdure.errors import StaleHead

DAY = 86_400_000_000


@pytest.fixture
def times() -> list[int]:
    """What the clock will say, the last one for ever."""
    return [10 * DAY, 9 * DAY, 8 * DAY, 7 * DAY, 6 * DAY, 5 * DAY, 4 * DAY, 3 * DAY]


@pytest.fixture
def store(store_url: str, times: list[int]) -> Iterator[perdure.Store]:
    """A store whose clock runs backwards."""
    with perdure.open(store_url, clock=lambda: times.pop(0) if len(times) > 1 else times[0]) as opened:
        yield opened


def test_order_comes_from_parents_and_versions(store: perdure.Store) -> None:
    """Times are data: the log, the transcript, undo and names of moments do not look at them."""
    thread = store.thread("trip-42", agent="planner")
    for number in range(4):
        with thread.change(f"step {number}") as change:
            change.say("user", f"message {number}")
            change.put("/n.json", number)

    assert [entry.reason for entry in thread.log()] == ["step 3", "step 2", "step 1", "step 0"]
    assert [entry.text for entry in thread.transcript()] == [f"message {number}" for number in range(4)]
    assert thread.at("turn:2").get("/n.json") == 1
    thread.undo()
    assert thread.get("/n.json") == 2
    stamps = [entry.at for entry in thread.log()]
    assert stamps == sorted(stamps), "control: by time the log would be upside down"


def test_a_writer_from_the_past_is_judged_by_its_head(store: perdure.Store, store_url: str) -> None:
    """A later head wins over a later clock."""
    thread = store.thread("trip-42", agent="planner")
    with perdure.open(store_url, clock=lambda: 20 * DAY) as ahead, pytest.raises(StaleHead):
        late = ahead.thread("trip-42")
        with late.change("from the future") as change:
            change.put("/n.json", "late")
            thread.put("/n.json", "first")

    assert thread.get("/n.json") == "first"


def test_minted_ids_go_on_growing(store: perdure.Store) -> None:
    """Ids of one process sort in the order in which they were made, also when the clock goes back."""
    ids = [store._resources.ids() for _ in range(1_000)]

    assert ids == sorted(set(ids))
