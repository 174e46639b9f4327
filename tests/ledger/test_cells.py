"""The last cells by name, at the cost of a few, however the names are spread."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from perdure.engines.contract import Cell, CellWrite, Write
from perdure.engines.memory import MemoryEngine
from perdure.history.space import Space
from perdure.history.tree import EMPTY, NodeCache
from tests.selection import some

NAME = "thread:1"
MANY, LIMIT = 3_000, 10
NOW = 1_700_000_000_000  # ms


class Metered(MemoryEngine):
    """An engine that counts the cells that it gives."""

    read = 0

    def cells(self, space: str, **how: Any) -> Sequence[Cell]:
        """As the engine does."""
        found = super().cells(space, **how)
        self.read += len(found)
        return found


def space_with(engine: MemoryEngine, ids: list[str]) -> Space:
    """A space with a cell of each id."""
    numbers = count()
    for start in range(0, len(ids), 500):
        cells = tuple(CellWrite(name=f"run/{id}", expected=0, value=b"{}") for id in ids[start : start + 500])
        engine.apply(Write(space=NAME, op_id=f"op-{next(numbers)}", intent=EMPTY, cells=cells))
    return Space(
        engine=engine, name=NAME, label=NAME, clock=lambda: NOW * 1_000, ids=lambda: "", cache=NodeCache()
    )


def at(ms: int, rest: int) -> str:
    """An id that begins with the time, as ours do."""
    digits = f"{ms:012x}"
    return f"{digits[:8]}-{digits[8:]}-7{rest:019x}"


@pytest.mark.parametrize("seed", some(range(40), one_of=4))
def test_the_last_few_cost_a_few_whenever_they_came(seed: int) -> None:
    """Bursts that end some time ago, also across the turn of a digit; control: reading all costs all."""
    rng = random.Random(seed)
    end = (
        NOW - rng.choice([0, 700, 1_500, 9_000, 40_000_000]) >> 8 << 8
    )  # where a digit of the time turns over
    before, after = rng.choice([1, 200, 3_000, 5_000_000]), rng.choice([0, 3, 8, 12, 20])
    ids = sorted(
        {at(end - rng.randrange(1, before + 1), rng.getrandbits(72)) for _ in range(MANY - after)}
        | {at(end + rng.randrange(3), rng.getrandbits(72)) for _ in range(after)}
    )
    engine = Metered()
    space = space_with(engine, ids)
    engine.read = 0

    found = space.last_cells("run/", LIMIT)

    assert [cell.name for cell in found] == [f"run/{id}" for id in ids[-LIMIT:]]
    assert engine.read < 60 * LIMIT
    engine.read = 0
    assert len(list(space.engine.cells(NAME, prefix="run/", limit=MANY))) == len(ids)
    assert engine.read > 60 * LIMIT
