"""What a user with write access removes from the ledger, or changes in a call, is found before a tool starts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import perdure
from perdure.engines.sqlite import open_sqlite
from perdure.errors import Corrupt

PAID: list[tuple[int, str]] = []


@perdure.tool(effect="external_write")
def pay(amount: int, call: perdure.Call) -> str:
    """Pay."""
    PAID.append((amount, call.key))
    return f"paid {amount}"


@pytest.fixture
def paid(tmp_path: Path) -> Path:
    """A store in which a payment was made by hand, and nothing came after it."""
    path = tmp_path / "store.db"
    PAID.clear()
    with perdure.open(path) as store:
        thread = store.thread("t", agent="clerk")
        thread.call(pay, {"amount": 1}, id="first")
        thread.put("/note.json", "x")
        thread.call(pay, {"amount": 3}, id="last")
    return path


def edited(path: Path, *statements: str) -> None:
    """Edit the file behind everybody's back."""
    with closing(sqlite3.connect(path)) as database, database:
        for sql in statements:
            assert database.execute(sql).rowcount > 0


def again(path: Path, id: str = "again") -> None:
    """Ask for the same payment."""
    with perdure.open(path) as store:
        store.thread("t").call(pay, {"amount": 3}, id=id)


def faults(path: Path) -> int:
    """How many faults `verify` names."""
    with perdure.open(path) as store:
        return len(store.verify().faults)


TAIL = "DELETE FROM entries WHERE position > 2"
RECORD = "DELETE FROM cells WHERE name = 'call/last'"
EMPTIED = "UPDATE cells SET value = NULL WHERE name = 'call/last'"
GUARD = "DELETE FROM cells WHERE name LIKE 'twin/%'"


@pytest.mark.parametrize(
    "cut", [(TAIL,), (TAIL, RECORD), (GUARD,), (RECORD,), (EMPTIED,), (TAIL, RECORD, GUARD)]
)
def test_a_ledger_that_was_cut_pays_nothing_again(paid: Path, cut: tuple[str, ...]) -> None:
    """Neither under the same id nor under another; `verify` says so before and after."""
    edited(paid, *cut)
    found = faults(paid)

    for id in ("last", "again"):
        with pytest.raises(Corrupt):
            again(paid, id)

    assert len(PAID) == 2
    assert faults(paid) == found > 0


def test_a_list_of_calls_misses_none_that_was_emptied(paid: Path) -> None:
    """A cell without a value is left out of lists, so what it held must be known to be nothing."""
    edited(paid, EMPTIED)

    with perdure.open(paid) as store, pytest.raises(Corrupt) as damaged:
        store.thread("t").calls()

    assert damaged.value.cell == "call/last"


def test_a_damaged_key_is_not_handed_to_a_tool(paid: Path) -> None:
    """The call's record names itself, and stays as it is."""
    edited(
        paid,
        "UPDATE cells SET value = replace(value, '\"key\":\"pd-', '\"key\":\"pe-') WHERE name='call/last'",
    )

    with pytest.raises(Corrupt):
        again(paid, "last")

    assert len(PAID) == 2
    assert faults(paid) > 0


def test_a_call_that_was_sealed_again_must_still_match_the_ledger(paid: Path) -> None:
    """The ledger shows an edit of a state, even if its digest and seal were computed again."""
    edited(paid, "UPDATE cells SET value = replace(value, 'succeeded', 'requested') WHERE name='call/last'")
    with closing(open_sqlite(paid, read_only=False, create=False, durability="power_loss")) as engine:
        engine.reseal(next(name for name in engine.spaces(limit=9) if name.startswith("thread:")))

    with pytest.raises(Corrupt) as damaged:
        again(paid, "last")

    assert damaged.value.cell == "call/last"
    assert len(PAID) == 2
    assert faults(paid) > 0


@pytest.mark.parametrize(
    "write",
    [
        lambda thread: thread.put("/a.json", 1),
        lambda thread: thread.on("other").put("/a.json", 1),
    ],
    ids=["on main", "on a fork"],
)
def test_a_commit_by_hand_binds_the_ledger(paid: Path, write: Callable[[perdure.Thread], object]) -> None:
    """It names the position and the chain of the newest entry."""
    with perdure.open(paid) as store:
        thread = store.thread("t")
        thread.fork("other")
        end = thread._space.engine.ledger(thread._space.name)

        write(thread)

        commits = [
            thread._space.step(hold.head.commit).commit for hold in thread.timelines() if hold.head.commit
        ]
        assert end in [commit.ledger for commit in commits]
        assert end.position > 2
