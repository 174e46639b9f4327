"""A check that begins where an earlier one ended: what it reads, what it finds, and what it does not claim."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from perdure.engines.contract import CellWrite, Fact, LedgerEntry, Write
from perdure.engines.memory import MemoryEngine, MemoryStore
from perdure.errors import Corrupt
from perdure.history.space import ALIVE
from perdure.history.tree import EMPTY
from perdure.history.verify import VerifiedPoint, verify
from perdure.history.verify.report import decode_points, encode_points
from perdure.model.digest import Digest
from perdure.model.head import MAIN
from tests.coded import raises
from tests.history.hand import Hand, damage

NAME = "thread:1"


@pytest.fixture
def hand() -> Hand:
    """A space with two timelines and a ledger."""
    hand = Hand()
    for number in range(20):
        hand.write({f"/n/{number}": number}, run=f"run-{number}")
    hand.fork("other", hand.head().commit)
    hand.write({"/other": 1}, timeline="other")
    entries = (b'{"call":"call-1"}', b'{"call":"call-2"}')
    hand.engine.apply(Write(space=NAME, op_id="ledger", intent=EMPTY, entries=entries))
    return hand


def store_of(hand: Hand) -> MemoryStore:
    """What the engine keeps, for a look behind the curtain."""
    assert isinstance(hand.engine, MemoryEngine)
    return hand.engine._store


def test_only_what_came_later_is_read(hand: Hand) -> None:
    """The report says so, and its own point covers everything again."""
    first = verify(hand.engine)
    hand.write({"/later": 1})

    second = verify(hand.engine, since=first.points)

    assert second.ok
    assert (first.partial, second.partial) == (0, 1)
    assert (first.checked["commit"], second.checked["commit"]) == (21, 1)
    assert second.checked["head"] == 2
    assert second.points == verify(hand.engine).points


def test_nothing_is_left_to_read_at_the_end(hand: Hand) -> None:
    """A second check right after the first reads no object."""
    first = verify(hand.engine)

    second = verify(hand.engine, since=first.points)

    assert second.ok
    assert "commit" not in second.checked
    assert second.points == first.points


def test_damage_after_the_point_is_found(hand: Hand) -> None:
    """It is named as a full check names it."""
    points = verify(hand.engine).points
    new = hand.write({"/later": 1})
    hand.write({"/later": 2})
    damage(hand.engine, NAME, new)

    assert new in {fault.digest for fault in verify(hand.engine, since=points).faults}


def test_damage_before_the_point_is_left_to_a_full_check(hand: Hand) -> None:
    """The report does not claim to have read the older part."""
    older = hand.write({"/older": 1})
    hand.write({"/newer": 1})
    points = verify(hand.engine).points
    hand.write({"/later": 1})
    damage(hand.engine, NAME, older)

    partial, full = verify(hand.engine, since=points), verify(hand.engine)

    assert (partial.partial, full.partial) == (1, 0)
    assert older not in {fault.digest for fault in partial.faults}
    assert older in {fault.digest for fault in full.faults}


def test_a_history_that_was_rewritten_is_found(hand: Hand) -> None:
    """Another store with the same names is sound by itself; the point tells that it is not the one that was verified."""
    points = verify(hand.engine).points
    forged = Hand()
    for number in range(30):
        forged.write({f"/n/{number}": "forged"}, run=f"run-{number}")

    report = verify(forged.engine, since=points)

    assert verify(forged.engine).ok
    assert {fault.kind for fault in report.faults} == {"point"}
    assert report.partial == 0  # nothing of such a point is believed
    assert report.checked["commit"] == 30


def test_a_store_that_was_put_back_is_found(hand: Hand) -> None:
    """An older copy is sound by itself."""
    older = Hand()
    for number in range(20):
        older.write({f"/n/{number}": number}, run=f"run-{number}")

    report = verify(older.engine, since=verify(hand.engine).points)

    assert verify(older.engine).ok
    assert any("put back" in fault.what for fault in report.faults)


@pytest.mark.parametrize(
    "change",
    [
        {"moves": {MAIN: (20, EMPTY)}},
        {"moves": {"nowhere": (3, EMPTY)}},
        {"position": 2, "chain": EMPTY},
        {"position": 9, "chain": EMPTY},
        {"standing": 1_000},
    ],
)
def test_an_edited_point_is_not_believed(hand: Hand, change: dict[str, object]) -> None:
    """It is a fault of its own, and everything is checked."""
    point = verify(hand.engine).points[NAME]

    report = verify(hand.engine, since={NAME: msgspec.structs.replace(point, **change)})

    assert {fault.kind for fault in report.faults} == {"point"}
    assert report.checked["commit"] == 21


def test_a_point_that_skips_commits_is_found(hand: Hand) -> None:
    """A standing that was raised leaves more commits on the line than were read."""
    point = verify(hand.engine).points[NAME]
    for number in range(5):
        hand.write({"/later": number})
    raised = msgspec.structs.replace(point, standing=hand.engine.standing(NAME))

    report = verify(hand.engine, since={NAME: raised})

    assert any("were found in storage" in fault.what for fault in report.faults)


def test_a_changed_entry_after_the_point_is_found(hand: Hand) -> None:
    """The chain goes on from the entry of the point."""
    points = verify(hand.engine).points
    hand.engine.apply(Write(space=NAME, op_id="more", intent=EMPTY, entries=(b'{"call":"call-3"}',)))
    entries = store_of(hand).spaces[NAME].entries
    entries[3] = LedgerEntry(3, entries[3].chain, b"{}")

    report = verify(hand.engine, since=points)

    assert "entry 3" in {fault.name for fault in report.faults}


def test_a_damaged_space_has_no_point(hand: Hand) -> None:
    """So a later check reads it whole."""
    damage(hand.engine, NAME, hand.head().commit or EMPTY)

    assert verify(hand.engine).points == {}


def test_a_space_that_is_gone_is_found(hand: Hand) -> None:
    """Another store under the same name has none of the spaces that were verified, and was once called sound."""
    points = verify(hand.engine).points
    other = MemoryEngine()
    other.apply(Write(space="thread:2", op_id="ledger", intent=EMPTY, entries=(b"{}",)))

    report = verify(other, since=points)

    assert verify(other).ok
    assert [(fault.kind, fault.space, fault.name) for fault in report.faults] == [("point", NAME, NAME)]
    assert verify(other, since=points, spaces=["thread:2"]).ok  # of the others nothing was asked


def test_a_removed_thread_is_no_fault(hand: Hand) -> None:
    """Its moves are gone, and the cell that says so is sealed."""
    points = verify(hand.engine).points
    mark = CellWrite(name=ALIVE, expected=0, value=b'{"removed_at":1}')
    hand.engine.apply(Write(space=NAME, op_id="remove", intent=EMPTY, cells=(mark,)))
    hand.engine.drop(NAME, why="asked")

    assert verify(hand.engine, since=points).ok


def test_saved_points_are_read_back_and_an_edited_file_is_refused() -> None:
    """The file has a digest of its own."""
    points = {"thread:1": VerifiedPoint(standing=3, commits=2, moves={MAIN: (2, Digest("ab"))}, position=1)}
    body = encode_points(points)

    assert decode_points(body) == points
    with raises(Corrupt, "points_damaged"):
        decode_points(body.replace(b'"standing":3', b'"standing":4'))
    with raises(Corrupt, "points_unreadable"):
        decode_points(body[:-20])


def test_a_check_ends_though_others_write_faster() -> None:
    """Two commits are written for each page that is read; what they hold is left to the next check."""
    pages = 0

    class Busy(MemoryEngine):
        def scan(self, space: str, *, after: int = 0, limit: int) -> tuple[Sequence[Fact], int | None]:
            nonlocal pages
            pages += 1
            assert pages < 100, "it never ends"
            found = super().scan(space, after=after, limit=limit)
            for number in range(200):
                hand.write({"/n": number})
            return found

    hand = Hand(Busy())
    hand.write({"/n": 0})

    report = verify(hand.engine)

    assert report.ok
    assert report.written == 1
    assert hand.head().version > 1
