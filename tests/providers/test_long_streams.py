"""Reading a streamed answer costs what it is long, whatever the vendor's ids and pieces are like."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import pytest

from perdure.providers import registry
from tests.providers.long_streams import SHAPES

LENGTH = 150
TIMES_LONGER = 8
PIECE = 4096


def seconds(read: Callable[[], object], *, tries: int = 3) -> float:
    """The least processor time of some tries."""
    took: list[float] = []
    for _ in range(tries):
        begun = process_time()
        read()
        took.append(process_time() - begun)
    return min(took)


def grows(read: Callable[[int], Callable[[], object]]) -> bool:
    """Whether what is `TIMES_LONGER` times as long takes more than three times as many times longer to read.

    One try that is quick enough says that it does not.
    """
    short, long = seconds(read(LENGTH)), read(LENGTH * TIMES_LONGER)
    return all(seconds(long, tries=1) > 3 * TIMES_LONGER * short for _ in range(3))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_is_read_in_linear_time(shape: str) -> None:
    """Eight times the length takes about eight times the time, far from sixty-four."""
    api, made = SHAPES[shape]
    adapter = registry.adapter(api)

    def read(count: int) -> Callable[[], object]:
        data = made(count)
        pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
        return lambda: adapter.parse_stream(pieces)

    assert not grows(read)


def test_reading_that_looks_back_would_be_found() -> None:
    """Control: telling equal ids apart by counting from the beginning each time takes the square."""

    def read(count: int) -> Callable[[], object]:
        return lambda: _told_apart(count)

    assert grows(read)


def _told_apart(count: int) -> set[str]:
    taken: set[str] = set()
    for _ in range(count):
        number = 1
        while f"call-{number}" in taken:
            number += 1
        taken.add(f"call-{number}")
    return taken
