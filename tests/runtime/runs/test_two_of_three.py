"""Of three tools side by side two have ended when the process dies.

Their results are durable, with what they wrote; only the third is pending.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.campaign import sized
from tests.runtime.runs.nursery import nursery
from tests.runtime.runs.three_at_once import (
    SLOW,
    book_until_two_are_done,
    book_without_recording,
    look,
    resume,
)
from tests.runtime.runs.world import World

ROUNDS = sized(2, 20)


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("hook", [False, True])
def test_two_results_are_durable_and_the_third_is_pending(memory_path: Path, sent: bool, hook: bool) -> None:
    """Nothing that ended is done again; of the third nobody knows, unless its tool can find out."""
    with nursery() as nest:
        for number in range(ROUNDS):
            path = str(memory_path / f"{number}.db")
            nest.dies(book_until_two_are_done, path, sent)
            before = nest.lives(look, path)
            after = nest.lives(resume, path, hook)

            assert before.states() == {"flight": "succeeded", "train": "succeeded", SLOW: "started"}
            assert (after.status, after.faults) == ("succeeded", [])
            assert after.states()[SLOW] == ("succeeded" if hook else "unknown")
            booked = {"/booked/flight.json", "/booked/train.json", *(["/booked/hotel.json"] if hook else [])}
            assert set(after.state) == booked
            counted = World(f"{path}.world").counted()
            assert counted == {"flight": 1, "train": 1, **({SLOW: 1} if sent or hook else {})}


def test_the_results_of_a_round_stand_in_the_order_of_its_calls(memory_path: Path) -> None:
    """One message answers all three, whichever life they come from."""
    path = str(memory_path / "s.db")
    with nursery() as nest:
        nest.dies(book_until_two_are_done, path, True)
        after = nest.lives(resume, path, True)

    role, _, _, results = after.talk[2]
    assert role == "tool"
    assert [words for _, _, words in results] == ["booked flight", "booked train", "booked hotel"]
    assert [entry[0] for entry in after.talk] == ["user", "assistant", "tool", "assistant"]


def test_where_results_wait_for_their_round_they_are_lost(memory_path: Path) -> None:
    """Control: bookings were made, and nobody knows of any of them."""
    path = str(memory_path / "s.db")
    with nursery() as nest:
        nest.dies(book_without_recording, path, True)
        before = nest.lives(look, path)

    assert len(World(f"{path}.world").deeds()) >= 2
    assert set(before.states().values()) == {"started"}
