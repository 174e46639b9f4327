"""Lists are read whole in pages, and a caller that stops early has read little."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pytest

from perdure.engines import loops
from perdure.engines.contract import CellWrite
from perdure.engines.loops import ATTEMPTS_MAX, Attempts
from perdure.engines.memory import MemoryEngine
from perdure.errors import Conflict
from perdure.testing.engines.builders import SPACE, write
from tests.coded import raises


class Numbers:
    """Answers with the numbers up to 1,000 in pages, and remembers how many it gave."""

    def __init__(self) -> None:
        self.given = 0

    def read(self, after: int, limit: int) -> Sequence[int]:
        page = range(after + 1, min(after + limit, 1_000) + 1)
        self.given += len(page)
        return page


def test_pages_are_read_to_the_end() -> None:
    """Every item comes once, in order."""
    assert list(loops.pages(Numbers().read, 0, int)) == list(range(1, 1_001))


def test_a_caller_that_stops_early_has_read_little() -> None:
    """The first page is small."""
    numbers = Numbers()

    assert list(islice(loops.pages(numbers.read, 0, int), 3)) == [1, 2, 3]
    assert numbers.given < 20


@pytest.mark.parametrize("descending", [False, True])
def test_cells_and_entries_are_paged_in_both_directions(descending: bool) -> None:
    """Pages put together are the whole list between the bounds, in the order asked for."""
    engine = MemoryEngine()
    names = [f"a/{number:03}" for number in range(600)]
    cells = [CellWrite(name=name, expected=0, value=b"{}") for name in [*names, "b"]]
    engine.apply(write("op", *cells, *(b"%d" % number for number in range(600))))
    step = -1 if descending else 1

    cells_read = loops.cells(engine, SPACE, prefix="a/", after="a/002", before="a/590", descending=descending)
    entries_read = loops.entries(engine, SPACE, after=3, before=591, descending=descending)

    assert [cell.name for cell in cells_read] == names[3:590][::step]
    assert [entry.position for entry in entries_read] == [*range(4, 591)][::step]


def test_attempts_end_with_a_conflict() -> None:
    """A writer that is overtaken again and again gives up, and says what is not done."""
    attempts = Attempts("call 'c1'", "it was not decided")
    for _ in range(ATTEMPTS_MAX):
        attempts.begin()

    with raises(Conflict, "contended", what="call 'c1'", attempts=ATTEMPTS_MAX) as caught:
        attempts.begin()

    assert "it was not decided" in caught.value.message


def test_attempts_are_counted_for_each_write_alone() -> None:
    """Control: other attempts do not count."""
    for _ in range(2 * ATTEMPTS_MAX):
        Attempts("call 'c1'", "nothing was done").begin()

    with pytest.raises(Conflict):
        [Attempts.begin(each) for each in [Attempts("call 'c1'", "nothing was done")] * (ATTEMPTS_MAX + 1)]
