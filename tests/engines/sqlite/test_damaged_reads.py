"""What a read of damaged rows leaves behind: nothing that later reads notice."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.engines.contract import CellWrite, Engine, Write
from perdure.engines.loops import DamagedCell, listed_or_damaged
from perdure.engines.registry import open_engine
from perdure.errors import Corrupt
from perdure.model.digest import Digest, Kind, digest_of
from perdure.testing.engines.builders import SPACE, Pen


def opened(path: Path) -> Engine:
    """The engine of a file."""
    return open_engine(str(path), read_only=False, create=True, durability="power_loss")


def put(engine: Engine, space: str, name: str) -> None:
    """Write a listed cell."""
    cell = CellWrite(name=name, expected=0, value=b'"one"', listed=True)
    intent = digest_of(Kind.BODY, name.encode())
    engine.apply(Write(space=space, op_id=name, intent=intent, cells=(cell,)))


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store with a listed cell in each of four spaces, the second of which is damaged."""
    path = tmp_path / "store.db"
    engine = opened(path)
    for number in range(4):
        put(engine, f"space {number}", f"x/{number}")
    engine.close()
    with closing(sqlite3.connect(path)) as database, database:
        sql = "UPDATE cells SET value = replace(value, 'one', 'two') WHERE name = 'x/1'"
        assert database.execute(sql).rowcount == 1
    return path


def test_an_error_that_is_kept_does_not_pin_an_old_moment(damaged: Path) -> None:
    """The rows behind the damaged one were not read, and still the next read sees the newest write."""
    engine = opened(damaged)

    with pytest.raises(Corrupt) as kept:
        engine.listed(prefix="x/", limit=8)
    put(engine, "space 9", "y/9")
    found = [cell.name for cell in engine.listed(prefix="y/", limit=8)]

    engine.close()
    assert (kept.value.cell, kept.value.facts["space"], found) == ("x/1", "space 1", ["y/9"])


@pytest.mark.parametrize("limit", [1, 2, 3, 8])
def test_a_damaged_cell_does_not_hide_the_others(damaged: Path, limit: int) -> None:
    """They are listed in their order, page by page."""
    engine = opened(damaged)
    found: list[tuple[str, bool]] = []

    after = ("", "")
    while page := listed_or_damaged(engine, prefix="x/", after=after, limit=limit):
        found += [(each.name, isinstance(each, DamagedCell)) for each in page]
        after = page[-1].name, page[-1].space

    engine.close()
    assert found == [("x/0", False), ("x/1", True), ("x/2", False), ("x/3", False)]


def test_a_list_that_lost_a_cell_is_not_trusted(damaged: Path) -> None:
    """What is missing cannot be named, so nothing is returned."""
    with closing(sqlite3.connect(damaged)) as database, database:
        assert database.execute("DELETE FROM cells WHERE name = 'x/2'").rowcount == 1
    engine = opened(damaged)

    with pytest.raises(Corrupt) as refused:
        listed_or_damaged(engine, prefix="x/", limit=8)

    engine.close()
    assert refused.value.code == "listed_cells_damaged"


@pytest.fixture
def line(tmp_path: Path) -> tuple[Path, Digest]:
    """A store with a line of nine commits, each with a message, and its last commit."""
    path = tmp_path / "line.db"
    engine = opened(path)
    pen = Pen(engine)
    for number in range(9):
        pen.commit(f"item {number}", messages=[f"m-{number}"])
    assert pen.tip is not None
    engine.close()
    return path, pen.tip.digest


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE log SET prev = prev - 1 WHERE depth = 5",
        "UPDATE log SET prev = NULL WHERE depth = 5",
        "UPDATE log SET depth = 4 WHERE depth = 5",
        "UPDATE log SET keys = 7 WHERE depth = 5",
        "UPDATE log SET changeset = replace(changeset, 'm-2', 'm-3') WHERE depth = 2",
        "DELETE FROM log WHERE depth = 5",
    ],
)
def test_a_label_is_not_looked_for_past_a_damaged_row(line: tuple[Path, Digest], edit: str) -> None:
    """A commit behind a row that does not lead to it is not said to be on the line; without the edit it is."""
    path, tip = line
    engine = opened(path)
    (found,) = engine.steps(SPACE, tip, limit=9, labels=["m-2"])
    engine.close()
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute(edit).rowcount == 1
    engine = opened(path)

    with pytest.raises(Corrupt):
        engine.steps(SPACE, tip, limit=9, labels=["m-2"])

    engine.close()
    assert found.place.depth == 2


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE log SET prev = prev - 1 WHERE depth = 8",
        "UPDATE log SET jump = jump - 1 WHERE depth = 8",
        "UPDATE log SET jump = 99 WHERE depth = 8",
        "UPDATE log SET depth = 6 WHERE depth = 7",
        "UPDATE log SET depth = NULL WHERE depth = 8",
        "UPDATE log SET turn = 'x' WHERE depth = 7",
        "UPDATE log SET space = 2 WHERE depth = 7",
        "UPDATE log SET digest = 7 WHERE depth = 7",
        "DELETE FROM log WHERE depth = 7",
    ],
)
def test_a_damaged_row_is_not_passed_on_the_way_to_an_ancestor(line: tuple[Path, Digest], edit: str) -> None:
    """Neither by a jump nor by a step; without the edit the ancestor is found."""
    path, tip = line
    engine = opened(path)
    found = [engine.steps(SPACE, tip, skip=3, limit=1)[0].place.depth, engine.turn(SPACE, tip, 6)]
    engine.close()
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute(edit).rowcount == 1
    engine = opened(path)

    with pytest.raises(Corrupt):
        engine.steps(SPACE, tip, skip=3, limit=1)
    with pytest.raises(Corrupt):
        engine.turn(SPACE, tip, 6)

    engine.close()
    assert found[0] == 5
    assert found[1] is not None
