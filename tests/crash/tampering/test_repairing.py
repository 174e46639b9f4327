"""A thread whose cells were edited is rebuilt from its ledger on purpose, and only from a whole one."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure.errors import Corrupt
from tests.crash.tampering.test_the_ledger_cannot_be_cut import (
    EMPTIED,
    GUARD,
    PAID,
    RECORD,
    TAIL,
    again,
    edited,
    faults,
    paid,
    pay,
)

__all__ = ["paid"]


@pytest.mark.parametrize(
    "edits",
    [
        (GUARD,),
        (RECORD,),
        (GUARD, RECORD),
        (EMPTIED,),
        ("UPDATE cells SET value = replace(value, 'succeeded', 'requested') WHERE name='call/last'",),
    ],
)
def test_what_follows_from_the_ledger_is_rebuilt(paid: Path, edits: tuple[str, ...]) -> None:
    """Afterwards the store verifies, the call gives its first result, and the guard knows it again."""
    edited(paid, *edits)

    with perdure.open(paid) as store:
        repaired = store.repair()

    assert list(repaired) == ["t"]
    assert faults(paid) == 0
    again(paid, "last")
    with perdure.open(paid) as store:
        assert store.thread("t").call(pay, {"amount": 3}, id="last").text == "paid 3"
        assert store.thread("t").calls()[0].state == "succeeded"
    assert len(PAID) == 2


@pytest.mark.parametrize("edits", [(TAIL,), (TAIL, RECORD, GUARD), ("DELETE FROM entries WHERE position=1",)])
def test_nothing_is_rebuilt_from_a_ledger_that_was_cut(paid: Path, edits: tuple[str, ...]) -> None:
    """The thread stays refused, with everything as it was found."""
    edited(paid, *edits)
    found = faults(paid)

    with perdure.open(paid) as store, pytest.raises(Corrupt):
        store.repair()

    assert faults(paid) == found > 0
    assert len(PAID) == 2
