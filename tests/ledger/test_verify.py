"""Verifying with the books: a call's cell that is not what the log says is found."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import perdure
from perdure import Agent
from perdure.errors import Unavailable
from perdure.testing import Script, say, use


@perdure.tool(effect="external_write")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.fixture
def paid(tmp_path: Path) -> Path:
    """A store in which one payment was made."""
    path = tmp_path / "store.db"
    with perdure.open(path) as store:
        thread = store.thread(
            "t", agent=Agent("a", backend=Script(use("pay", amount=3), say("Done.")), tools=[pay])
        )
        thread.run("Pay 3")
    return path


def test_books_in_order_verify(paid: Path) -> None:
    """What a run wrote is sound, ledger included."""
    with perdure.open(paid) as store:
        report = store.verify()

    assert report.ok, report.faults
    assert report.checked["entry"] == 2


def test_an_altered_call_is_named(paid: Path) -> None:
    """The digest of the cell gives it away, and so does the seal of its space."""
    connection = apsw.Connection(str(paid))
    connection.execute(
        "UPDATE cells SET value = replace(value, 'succeeded', 'failed') WHERE name LIKE 'call/%'"
    )
    connection.close()

    with perdure.open(paid) as store:
        report = store.verify()

    assert [fault.kind for fault in report.faults] == ["cell", "space"]
    assert (report.faults[0].name or "").startswith("call/")


def test_a_store_that_is_closed_is_not_damaged(paid: Path) -> None:
    """That nothing can be read is no fault of what is stored."""
    store = perdure.open(paid)
    store.close()

    with pytest.raises(Unavailable):
        store.verify()
